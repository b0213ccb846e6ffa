package kv

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The columns of Fairlead.
const (
	ours  = "fairlead"
	again = "again"
)

// plan is how much is measured.
type plan struct {
	rounds   int
	window   time.Duration // of puts
	short    time.Duration // of reads
	keys     int           // that are there to be read
	large    int           // keys of a large cluster
	restarts int           // of that one
	trials   int           // of a failover
	events   int           // each to 1,000 watchers, in a round
	traced   int           // puts under strace
	syncs    int           // of the disk itself
	smoke    bool          // the numbers mean nothing
}

// planned returns the full plan when FAIRLEAD_BENCH_ROUNDS says how many rounds,
// and otherwise the least that runs all of the code.
func planned(t *testing.T) plan {
	text := os.Getenv("FAIRLEAD_BENCH_ROUNDS")
	if text == "" {
		return plan{
			rounds: 1, window: 200 * time.Millisecond, short: 100 * time.Millisecond, keys: 200, large: 2000, restarts: 1, trials: 1,
			events: 3, traced: 5, syncs: 20, smoke: true,
		}
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("FAIRLEAD_BENCH_ROUNDS is %q: want a number such as 5", text)
	}
	large := 1_000_000
	if text := os.Getenv("FAIRLEAD_BENCH_KEYS"); text != "" {
		if large, err = strconv.Atoi(text); err != nil || large < 1 || large > keySpace {
			t.Fatalf("FAIRLEAD_BENCH_KEYS is %q: want a number up to %d", text, keySpace)
		}
	}
	return plan{
		rounds: rounds, window: 2 * time.Second, short: time.Second, keys: 10_000, large: large, restarts: 3, trials: rounds,
		events: 60, traced: 50, syncs: 1000,
	}
}

// part is one that FAIRLEAD_BENCH_PART can name.
type part struct {
	name string
	run  func(b *bench, out *strings.Builder)
}

func parts() []part {
	return []part{
		{"fsync", (*bench).fsync},
		{"writes", (*bench).writes},
		{"reads", (*bench).reads},
		{"open", (*bench).openLoop},
		{"beside", (*bench).beside},
		{"watch", (*bench).watching},
		{"failover", (*bench).failover},
		{"large", (*bench).large},
	}
}

// chosen are the parts to run.
func chosen(t *testing.T) []part {
	text := os.Getenv("FAIRLEAD_BENCH_PART")
	if text == "" {
		return parts()
	}
	names := strings.Split(text, ",")
	all := parts()
	for _, n := range names {
		if !slices.ContainsFunc(all, func(p part) bool { return p.name == n }) {
			t.Fatalf("FAIRLEAD_BENCH_PART is %q: there is no part %q", text, n)
		}
	}
	return slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(names, p.name) })
}

// bench is one run.
type bench struct {
	t       *testing.T
	plan    plan
	dir     string
	ports   ports
	systems []system
	running []*cluster
	most    float64 // puts a second that the better etcd takes from 256 clients; 0: not measured
	failed  int64   // requests in windows
}

// TestKV measures the store beside etcd. It fails when something does not work,
// never because of a number.
func TestKV(t *testing.T) {
	b := &bench{t: t, plan: planned(t)}
	all := chosen(t)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	b.dir = b.directory()
	b.systems = b.found()
	var out strings.Builder
	fmt.Fprintf(&out, "%d rounds, windows of %v and %v\n%s, %d CPUs, load %s before, %s\n", b.plan.rounds, b.plan.window, b.plan.short,
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version())
	for _, s := range b.systems {
		fmt.Fprintf(&out, "  %s: %s; %s\n", s.name, s.version, s.flags)
	}
	disk := b.diskLatency()
	fmt.Fprintf(&out, "  fdatasync of 512 bytes: p50 %.2f ms, p99 %.2f ms\n", disk.quantile(0.5), disk.quantile(0.99))
	for _, p := range all {
		begun := time.Now()
		p.run(b, &out)
		t.Logf("%s: %v", p.name, time.Since(begun).Round(time.Second))
	}
	if b.failed > 0 {
		fmt.Fprintf(&out, "\n%d requests failed\n", b.failed)
	}
	t.Logf("\n%s", out.String())
}

// found are the systems that can be measured here. The benchmark needs all of
// them; a quick look does without what is not installed or takes long to build.
func (b *bench) found() (systems []system) {
	b.t.Helper()
	tls := os.Getenv("FAIRLEAD_BENCH_PEER_TLS") == "1"
	if path, err := exec.LookPath("etcd"); err == nil {
		systems = append(systems, etcd(b.t, path, tls))
	} else if b.plan.smoke {
		b.skip("etcd", "etcd is not installed: Debian package etcd-server")
	} else {
		b.t.Fatal("etcd is not installed: scripts/setup.sh, as root")
	}
	if !b.plan.smoke {
		systems = append(systems, etcd(b.t, b.build("testdata/etcdpeer", "."), tls))
	}
	program := b.built()
	systems = append(systems, fairlead(b.t, ours, program))
	if !b.plan.smoke {
		systems = append(systems, fairlead(b.t, again, program))
	}
	if text := os.Getenv("FAIRLEAD_BENCH_SYSTEMS"); text != "" {
		names := strings.Split(text, ",")
		systems = slices.DeleteFunc(systems, func(s system) bool { return !slices.Contains(names, s.name) })
	}
	return systems
}

func (b *bench) skip(name, why string) { b.t.Run(name, func(t *testing.T) { t.Skip(why) }) }

// clusters are one of each system, with keys to be read. They run until the test
// ends, or until they are stopped.
func (b *bench) clusters() []*cluster {
	b.t.Helper()
	if b.running != nil {
		return b.running
	}
	for _, s := range b.systems {
		c := b.newCluster(s)
		c.start()
		if err := c.fill(b.plan.keys, 64); err != nil {
			b.t.Fatalf("%s: %v", c.name, err)
		}
		b.running = append(b.running, c)
	}
	return b.running
}

// rounds calls do for each cluster once in each round, beginning with another one
// each time.
func (b *bench) rounds(do func(c *cluster)) {
	b.t.Helper()
	all := b.clusters()
	for round := range b.plan.rounds {
		for k := range all {
			do(all[(round+k)%len(all)])
		}
	}
}

func (b *bench) show(out *strings.Builder, title string, figures ...*figure) {
	b.t.Helper()
	if b.plan.smoke {
		for _, f := range figures {
			f.bar, f.limit = 0, 0
		}
	}
	fmt.Fprintln(out)
	if err := print(out, title, b.systems, figures); err != nil {
		b.t.Fatal(err)
	}
}

// TestVerdicts holds the judgement of figures against their bars.
func TestVerdicts(t *testing.T) {
	systems := []system{{name: "old", etcd: true}, {name: "new", etcd: true}, {name: ours}}
	of := func(f figure, values ...float64) *figure {
		for i, v := range values {
			f.add(systems[i].name, v)
		}
		return &f
	}
	cpu := func(v float64) *figure { return of(figure{name: "CPU", bar: 0.5}, 10, 12, v) }
	for _, c := range []struct {
		f    *figure
		want string
	}{
		{of(figure{more: true, bar: 1.5}, 10, 12, 18), "met"},
		{of(figure{more: true, bar: 1.5}, 10, 12, 17), "missed"},
		{of(figure{more: true, bar: 1.5, or: cpu(5)}, 10, 12, 17), "met by CPU"},
		{of(figure{more: true, bar: 1.5, or: cpu(6)}, 10, 12, 17), "missed"},
		{of(figure{bar: 0.5}, 10, 12, 5), "met"},
		{of(figure{bar: 0.5}, 10, 12, 6), "missed"},
		{of(figure{bar: 1, limit: 5}, 10, 12, 6), "missed"},
		{of(figure{bar: 1, limit: 5}, 10, 12, 4), "met"},
		{of(figure{bar: 1}, 10, 12, math.NaN()), "missed"},
		{of(figure{}, 10, 12, 6), ""},
		{of(figure{bar: 1}, 10, 12), ""},
	} {
		if got := c.f.verdict(systems); got != c.want {
			t.Errorf("%v, bar %s: %q, want %q", c.f.values, c.f.bars(), got, c.want)
		}
	}
}
