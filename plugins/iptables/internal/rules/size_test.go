package rules

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// fleet is n services of five endpoints, at addresses that are given by number.
func fleet(n int, at func(i int) netip.AddrPort) []*dataplane.Service {
	services := make([]*dataplane.Service, n)
	for i := range services {
		services[i] = plain(i, at(i), 5)
	}
	return services
}

func plain(i int, at netip.AddrPort, endpoints int) *dataplane.Service {
	var list []dataplane.Endpoint
	for j := range endpoints {
		a := netip.AddrFrom4([4]byte{172, 16 + byte(j>>8), byte(i >> 8), byte(i)})
		if at.Addr().Is6() {
			a = netip.AddrFrom16([16]byte{0xfd, 0x77, 4: byte(i >> 8), 5: byte(i), 15: 1})
		}
		list = append(list, dataplane.Endpoint{ID: uint64(i)<<20 | uint64(j+1), Addr: netip.AddrPortFrom(a, uint16(9000+j)), Weight: 1})
	}
	return &dataplane.Service{
		Key:       dataplane.Key{Namespace: "default", Name: fmt.Sprintf("s%05d", i)},
		Frontends: []dataplane.Frontend{{Addr: at, Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
		Endpoints: dataplane.NewEndpoints(list...),
	}
}

// Addresses of ten thousand services, by number.
var spreads = map[string]func(i int) netip.AddrPort{
	"one after the other": func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte((i + 1) >> 8), byte(i + 1)}), 80)
	},
	"all over a pool": func(i int) netip.AddrPort {
		n := uint16(i * 40503) // odd, so no two meet
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)}), 80)
	},
	"ports of one address": func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("10.200.0.1"), uint16(1000+5*i))
	},
	"all over a /64": func(i int) netip.AddrPort {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		a := netip.MustParseAddr("fd00:200::").As16()
		for j := 8; j < 16; j++ {
			a[j] = byte(r.Uint32())
		}
		return netip.AddrPortFrom(netip.AddrFrom16(a), 443)
	},
	"anywhere, no pool": func(i int) netip.AddrPort {
		r := rand.New(rand.NewPCG(uint64(i), 2))
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{20 + byte(r.IntN(100)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}), 80)
	},
}

func fleetOptions() Options {
	return Options{Instance: "i1", Pools: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")}}
}

// TestTenThousand: what a packet costs, and a change.
func TestTenThousand(t *testing.T) {
	const services, lead, pass, changed, changedBytes = 10_000, 72, 3, 120, 12 << 10
	for name, at := range spreads {
		t.Run(name, func(t *testing.T) {
			list := fleet(services, at)
			f := familyOf(at(0).Addr())
			plan := Build(f, slices.Values(list), fleetOptions(), nil)
			k := newKernel()
			if err := k.restore(Repair(must(Parse([]byte(k.save()))), plan)); err != nil {
				t.Fatal(err)
			}
			var most, sum, ways int
			for i := 0; i < services; i += 29 {
				b := dataplane.Binding{Addr: at(i), Protocol: dataplane.TCP}
				for _, h := range []hook{pre, out} {
					for _, way := range k.trace(packet{hook: h, to: b}) {
						if way.verdict != "DNAT" || way.addr.Addr() != list[i].Endpoints.Slice()[0].Addr.Addr() {
							t.Fatalf("%v goes to %v by %q", b, way.addr, way.path)
						}
						most, sum, ways = max(most, way.tests), sum+way.tests, ways+1
					}
				}
				origin := k.trace(packet{hook: post, to: b, origin: b.Addr, led: true, out: "eth0"})
				if len(origin) != 1 || origin[0].verdict != "MASQUERADE" || origin[0].tests > lead {
					t.Fatalf("%v leaves by %+v", b, origin)
				}
			}
			t.Logf("%d lines; tests: %d at most, %.1f on average", k.lines, most, float64(sum)/float64(ways))
			if most > lead {
				t.Errorf("a packet is compared with %d rules, want %d at most", most, lead)
			}
			for _, p := range []packet{
				{hook: pre, to: binding("192.0.2.1:80")},
				{hook: out, to: binding("192.0.2.1:80")},
				{hook: out, to: binding("[2001:db8::1]:80")},
				{hook: post, to: binding("192.0.2.1:80")},
			} {
				if way := k.trace(p); name != "anywhere, no pool" && way[0].tests > pass || way[0].tests > pass+fanout || way[0].verdict != "" {
					t.Errorf("a packet to elsewhere is compared with %d rules in %s, want %d at most", way[0].tests, p.hook.base(), pass)
				}
			}

			next := slices.Clone(list)
			next[services/2] = withEndpoint(list[services/2])
			after := Build(f, slices.Values(next), fleetOptions(), plan)
			text := Restore(plan, after)
			lines := bytes.Count(text, []byte("\n"))
			t.Logf("one endpoint more: %d lines, %d bytes", lines, len(text))
			if lines > changed || len(text) > changedBytes {
				t.Errorf("one endpoint more takes %d lines, %d bytes; want %d and %d at most:\n%s", lines, len(text), changed, changedBytes, text)
			}
			if err := k.restore(text); err != nil {
				t.Fatal(err)
			}
			if chains := len(after.chains) + 4 + 4; len(k.chains) != chains {
				t.Fatalf("%d chains stand, want %d with the roots and the kernel's", len(k.chains), chains)
			}
		})
	}
}

// TestNothingChanged: a plan of what it was before is the plan before.
func TestNothingChanged(t *testing.T) {
	list := fleet(100, spreads["all over a pool"])
	plan := Build(IPv4, slices.Values(list), fleetOptions(), nil)
	if again := Build(IPv4, slices.Values(list), fleetOptions(), plan); again != plan {
		t.Error("the same services make another plan")
	}
	if text := Restore(plan, plan); text != nil {
		t.Errorf("the same plan takes %q", text)
	}
	if again := Build(IPv4, slices.Values(list[1:]), fleetOptions(), plan); again == plan {
		t.Error("a service less makes the same plan")
	}
	other := Build(IPv4, slices.Values(fleet(100, spreads["all over a pool"])), fleetOptions(), plan)
	if text := Restore(plan, other); other == plan || text != nil {
		t.Errorf("equal services take %q", text)
	}
}

// TestLargeService: an endpoint of a thousand costs a few chains.
func TestLargeService(t *testing.T) {
	svc := plain(1, netip.MustParseAddrPort("10.200.0.1:80"), 1000)
	plan := Build(IPv4, slices.Values([]*dataplane.Service{svc}), fleetOptions(), nil)
	next := Build(IPv4, slices.Values([]*dataplane.Service{withEndpoint(svc)}), fleetOptions(), plan)
	k := newKernel()
	for _, text := range [][]byte{Restore(nil, plan), Restore(plan, next)} {
		if err := k.restore(text); err != nil {
			t.Fatal(err)
		}
	}
	text := Restore(plan, next)
	if lines := bytes.Count(text, []byte("\n")); lines > 100 {
		t.Errorf("one endpoint more takes %d lines:\n%s", lines, text)
	}
	// The base chain does not lead there yet.
	k.chains["OUTPUT"].rules = []*kernelRule{{to: rootName(Tag("i1"), out)}}
	most := 0
	for _, way := range k.trace(packet{hook: out, to: binding("10.200.0.1:80")}) {
		most = max(most, way.tests)
	}
	if most > 48 { // 2 to the service, some ten halves of two rules, and eight
		t.Errorf("a packet is compared with %d rules", most)
	}
}

func withEndpoint(svc *dataplane.Service) *dataplane.Service {
	next := *svc
	next.Endpoints = dataplane.NewEndpoints(append(svc.Endpoints.Slice(), dataplane.Endpoint{
		ID: 77, Addr: netip.MustParseAddrPort("172.31.255.1:9999"), Weight: 1,
	}, dataplane.Endpoint{
		ID: 78, Addr: netip.MustParseAddrPort("[fd77::ffff]:9999"), Weight: 1,
	})...)
	return &next
}

func binding(s string) dataplane.Binding {
	return dataplane.Binding{Addr: netip.MustParseAddrPort(s), Protocol: dataplane.TCP}
}

func BenchmarkBuild(b *testing.B) {
	list := fleet(10_000, spreads["all over a pool"])
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			Build(IPv4, slices.Values(list), fleetOptions(), nil)
		}
	})
	plan := Build(IPv4, slices.Values(list), fleetOptions(), nil)
	next := slices.Clone(list)
	next[5000] = withEndpoint(list[5000])
	b.Run("one changed", func(b *testing.B) {
		for b.Loop() {
			Restore(plan, Build(IPv4, slices.Values(next), fleetOptions(), plan))
		}
	})
	b.Run("none changed", func(b *testing.B) {
		for b.Loop() {
			Build(IPv4, slices.Values(list), fleetOptions(), plan)
		}
	})
}
