package rules

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

// TestRandomEdits: after any edit, by the text from the plan before, the kernel has
// what it would have from nothing, rules of others are as they were, and packets go
// where a look through the services says, with the chances that the weights say.
func TestRandomEdits(t *testing.T) {
	for seed := range uint64(scale.N(250)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 15 {
				w.edit()
				w.follow()
				w.check()
			}
		})
	}
}

func (w *world) check() {
	w.t.Helper()
	for _, f := range Families() {
		if lines := Drift(w.found(f), w.plans[f]); lines != nil {
			w.t.Fatalf("%v: not as planned:\n%s\n%s", f, strings.Join(lines, "\n"), w.kernels[f].save())
		}
		if got, want := ours(w.kernels[f]), ours(w.scratch(f)); got != want {
			w.t.Fatalf("%v: by edits:\n%s\nfrom nothing:\n%s", f, got, want)
		}
		if got := theirs(w.found(f)); got != theirs(must(Parse([]byte(newForeign(f).save())))) {
			w.t.Fatalf("%v: rules of others are now\n%s", f, got)
		}
	}
	led := make(map[dataplane.Binding]bool)
	for _, p := range w.packets() {
		if w.walk(p); w.expect(p).verdict != "" {
			led[p.to] = true
		}
	}
	stand := make(map[dataplane.Binding]bool)
	for _, f := range Families() {
		for _, b := range Frontends(w.found(f), w.opts.Instance, false) {
			stand[b] = true
		}
		if others := Frontends(w.found(f), "another", false); others != nil {
			w.t.Fatalf("another instance leads %v", others)
		}
	}
	if !maps.Equal(led, stand) {
		w.t.Fatalf("the rules lead %v, want %v", stand, led)
	}
}

// scratch is a kernel that was brought to the services at once.
func (w *world) scratch(f Family) *kernel {
	k := newForeign(f)
	plan := Build(f, slices.Values(sorted(w.held)), w.opts, nil)
	if err := k.restore(Repair(must(Parse([]byte(k.save()))), plan)); err != nil {
		w.t.Fatal(err)
	}
	return k
}

func newForeign(f Family) *kernel {
	k := newKernel()
	if err := k.restore([]byte(foreign[f])); err != nil {
		panic(err)
	}
	return k
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// ours prints the chains of all instances and the jumps to them.
func ours(k *kernel) string {
	var b strings.Builder
	for line := range strings.Lines(k.save()) {
		if strings.Contains(line, chainPrefix) || strings.Contains(line, commentPrefix) {
			b.WriteString(strings.ReplaceAll(line, `"`, "")) // which need not be there
		}
	}
	return b.String()
}

// theirs prints all else.
func theirs(t *Table) string {
	var b strings.Builder
	for _, c := range t.Chains {
		if strings.HasPrefix(c.Name, chainPrefix) {
			continue
		}
		fmt.Fprintf(&b, ":%s\n", c.Name)
		for _, r := range c.Rules {
			if !strings.Contains(r.Spec, commentPrefix) {
				fmt.Fprintf(&b, "-A %s %s\n", c.Name, r.Spec)
			}
		}
	}
	return b.String()
}

// walk compares what the rules do with a packet with what they ought to.
func (w *world) walk(p packet) {
	w.t.Helper()
	k := w.kernels[familyOf(p.to.Addr.Addr())]
	want := w.expect(p)
	got := make(map[netip.AddrPort]float64)
	for _, way := range k.trace(p) {
		if way.verdict != want.verdict {
			w.t.Fatalf("%s %v: %q, want %q, by\n%s\n%s", p.hook.base(), p.to, way.verdict, want.verdict, strings.Join(way.path, "\n"), k.save())
		}
		got[way.addr] += way.chance
	}
	if want.verdict != "DNAT" {
		return
	}
	for addr, share := range want.shares {
		if math.Abs(got[addr]-share) > 1e-7 {
			w.t.Fatalf("%s %v: %v has a chance of %v, want %v", p.hook.base(), p.to, addr, got[addr], share)
		}
	}
	if len(got) != len(want.shares) {
		w.t.Fatalf("%s %v: leads to %v, want %v", p.hook.base(), p.to, got, want.shares)
	}
	w.answer(p, want)
}

// answer follows a packet that was led, when it leaves.
func (w *world) answer(p packet, f fate) {
	w.t.Helper()
	if f.service == nil || len(f.shares) == 1 && (f.shares[netip.MustParseAddrPort("127.0.0.1:0")] == 1 || f.shares[netip.MustParseAddrPort("[::1]:0")] == 1) {
		return // stays here
	}
	family := familyOf(p.to.Addr.Addr())
	here, there, self := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("127.0.0.1")
	if family == IPv6 {
		here, there, self = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd77::1"), netip.IPv6Loopback()
	}
	for _, leaving := range []struct {
		from, to netip.Addr
		out      string
		ofDevice bool
		want     string
	}{
		{here, there, "eth0", true, ""},
		{here, there, "eth0", false, "MASQUERADE"},
		{self, there, "eth0", false, "MASQUERADE"},
		{here, there, "lo", false, ""},
		{here, self, "lo", false, "SNAT"},
		{self, self, "lo", true, ""},
		{self, there, "lo", true, ""},
	} {
		for _, way := range w.kernels[family].trace(packet{
			hook: post, from: leaving.from, to: dataplane.Binding{Addr: netip.AddrPortFrom(leaving.to, 1), Protocol: p.to.Protocol},
			origin: p.to.Addr, led: true, out: leaving.out, ofDevice: leaving.ofDevice,
		}) {
			if way.verdict != leaving.want || leaving.want == "SNAT" && way.addr.Addr() != self {
				w.t.Fatalf("%v leaves as %+v: %q %v, want %q", p.to, leaving, way.verdict, way.addr, leaving.want)
			}
		}
	}
}
