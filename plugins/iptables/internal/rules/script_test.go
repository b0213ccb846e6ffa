package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fairlead/fairlead/dataplane"
)

// TestScripts plays the scripts of testdata, which show the texts as they are.
// `go test ./plugins/iptables/internal/rules -run TestScripts -rewrite` writes what
// happens into them. Every text is applied to a model of the kernel.
//
//	options [instance=ID] [mode=forwarded] [pools=A,B] [route-localnet] [no-ipv6]
//	        [random-fully] [no-addrtype] [own=FRONTEND,ENDPOINT]
//	service NAME [affinity=DURATION] [balance=hash]
//	    vip|intercept ADDR:PORT/PROTOCOL [pass|refuse]
//	    endpoint ID ADDR:PORT [foreign=ADDR:PORT] [weight=N] [suspect|draining]
//	        → what Assess says
//	delete NAME
//	begin [v6]       Repair from what stands, applied
//	apply [v6]       Restore from the plan before, applied
//	trace HOOK ADDR:PORT/PROTOCOL [from=ADDR] [origin=ADDR:PORT] [out=DEVICE]
//	        [of-device]
//	        → each way with its chance and the rules that matched
//	others           input is applied as others would
//	drift [v6]
//	cleanup [all] [instance=ID] [keep-inert]
//	        → what is found, and the text, applied
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t, 0)
		w.opts = Options{Instance: "i1", Pools: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")}}
		for _, f := range Families() {
			w.kernels[f] = newKernel()
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.do(t, d) })
	})
}

func (w *world) do(t *testing.T, d *datadriven.TestData) string {
	f := IPv4
	if d.HasArg("v6") {
		f = IPv6
	}
	k := w.kernels[f]
	switch d.Cmd {
	case "options":
		w.options(d)
		return ""
	case "service":
		svc := parseService(t, d)
		w.services[svc.Key] = svc
		if p := svc.Check(); p != nil {
			t.Fatalf("%s: %+v", d.Pos, p)
		}
		if p := Assess(svc, w.opts); p != nil {
			return fmt.Sprintf("%v %s: %s\n", p.Status, p.Reason, p.Message)
		}
		return "programmed\n"
	case "delete":
		delete(w.services, dataplane.Key{Namespace: "default", Name: d.CmdArgs[0].Key})
		return ""
	case "begin", "apply":
		plan := Build(f, slices.Values(sorted(w.services)), w.opts, w.plans[f])
		text := Restore(w.plans[f], plan)
		if d.Cmd == "begin" {
			text = Repair(w.found(f), plan)
		}
		w.plans[f] = plan
		return w.applied(t, d, k, text)
	case "trace":
		return w.traced(t, d)
	case "others":
		for line := range strings.Lines(d.Input) {
			if err := k.line(strings.TrimSpace(line)); err != nil {
				t.Fatalf("%s: %q: %v", d.Pos, line, err)
			}
		}
		return ""
	case "drift":
		return lines(Drift(w.found(f), w.plans[f]))
	case "cleanup":
		instance := w.opts.Instance
		d.MaybeScanArgs(t, "instance", &instance)
		text, items := Cleanup(w.found(f), instance, d.HasArg("all"), d.HasArg("keep-inert"))
		var found []string
		for _, i := range items {
			what := "goes"
			if !i.Goes {
				what = "stays: " + i.Why
			}
			found = append(found, fmt.Sprintf("%s (%s) %s", i.Object, i.Tag, what))
		}
		return lines(found) + "\n" + w.applied(t, d, k, text)
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func lines(list []string) string {
	if len(list) == 0 {
		return "none\n"
	}
	return strings.Join(list, "\n") + "\n"
}

func (w *world) applied(t *testing.T, d *datadriven.TestData, k *kernel, text []byte) string {
	if err := k.restore(text); err != nil {
		t.Fatalf("%s: %v\n%s", d.Pos, err, text)
	}
	if text == nil {
		return "nothing to do\n"
	}
	return string(text)
}

func (w *world) options(d *datadriven.TestData) {
	o := Options{Instance: "i1"}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "instance":
			o.Instance = a.Vals[0]
		case "mode":
			o.Mode = Forwarded
		case "pools":
			for _, p := range a.Vals {
				o.Pools = append(o.Pools, netip.MustParsePrefix(p))
			}
		case "route-localnet":
			o.RouteLocalnet = true
		case "no-ipv6":
			o.NoIPv6 = true
		case "random-fully":
			o.Features.RandomFully = true
		case "no-addrtype":
			o.Features.NoAddrType = true
		case "own":
			o.Own = Own{netip.MustParseAddrPort(a.Vals[0]), netip.MustParseAddrPort(a.Vals[1])}
		default:
			d.Fatalf(w.t, "unknown option %q", a.Key)
		}
	}
	w.opts = o
}

func parseService(t *testing.T, d *datadriven.TestData) *dataplane.Service {
	svc := &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: d.CmdArgs[0].Key}}
	var affinity time.Duration
	if d.MaybeScanArgs(t, "affinity", &affinity) {
		svc.Affinity = dataplane.Affinity{ByClient: true, TTL: affinity}
	}
	if d.HasArg("balance") {
		svc.Balance = dataplane.BalanceHash
	}
	var endpoints []dataplane.Endpoint
	for line := range strings.Lines(d.Input) {
		w := strings.Fields(line)
		switch w[0] {
		case "vip", "intercept":
			b := parseBinding(w[1])
			f := dataplane.Frontend{Addr: b.Addr, Protocol: b.Protocol, Kind: dataplane.FrontendVIP}
			if w[0] == "intercept" {
				f.Kind = dataplane.FrontendIntercept
			}
			if len(w) > 2 {
				f.OnEmpty = map[string]dataplane.OnEmpty{"pass": dataplane.OnEmptyPass, "refuse": dataplane.OnEmptyRefuse}[w[2]]
			}
			svc.Frontends = append(svc.Frontends, f)
		case "endpoint":
			e := dataplane.Endpoint{ID: must(strconv.ParseUint(w[1], 10, 64)), Addr: netip.MustParseAddrPort(w[2]), Weight: 1}
			for _, option := range w[3:] {
				key, value, _ := strings.Cut(option, "=")
				switch key {
				case "foreign":
					e.AddrForeign = netip.MustParseAddrPort(value)
				case "weight":
					e.Weight = uint16(must(strconv.ParseUint(value, 10, 16)))
				case "suspect":
					e.State = dataplane.Suspect
				case "draining":
					e.State = dataplane.Draining
				default:
					d.Fatalf(t, "unknown option %q", option)
				}
			}
			endpoints = append(endpoints, e)
		default:
			d.Fatalf(t, "unknown line %q", line)
		}
	}
	svc.Endpoints = dataplane.NewEndpoints(endpoints...)
	return svc
}

func parseBinding(s string) dataplane.Binding {
	addr, protocol, _ := strings.Cut(s, "/")
	b := dataplane.Binding{Addr: netip.MustParseAddrPort(addr), Protocol: dataplane.TCP}
	if protocol == "udp" {
		b.Protocol = dataplane.UDP
	}
	return b
}

// traced prints every way of a packet.
func (w *world) traced(t *testing.T, d *datadriven.TestData) string {
	p := packet{to: parseBinding(d.CmdArgs[1].Key), out: "eth0", ofDevice: d.HasArg("of-device")}
	p.hook = map[string]hook{"PREROUTING": pre, "OUTPUT": out, "POSTROUTING": post}[d.CmdArgs[0].Key]
	var from, origin string
	if d.MaybeScanArgs(t, "from", &from) {
		p.from = netip.MustParseAddr(from)
	}
	if d.MaybeScanArgs(t, "origin", &origin) {
		p.origin, p.led = netip.MustParseAddrPort(origin), true
	}
	d.MaybeScanArgs(t, "out", &p.out)
	var b strings.Builder
	for _, way := range w.kernels[familyOf(p.to.Addr.Addr())].trace(p) {
		verdict := "untouched"
		if way.verdict != "" {
			verdict = way.verdict
		}
		if way.addr.Addr().IsValid() {
			verdict += " " + way.addr.String()
		}
		fmt.Fprintf(&b, "%.3f %s, %d tests\n", way.chance, verdict, way.tests)
		for _, rule := range way.path {
			b.WriteString("    " + rule + "\n")
		}
	}
	return b.String()
}
