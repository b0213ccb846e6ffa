package rules

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// world is a random set of services that changes, and a model of the kernel of each
// family that follows it by the texts of this package.
type world struct {
	t        *testing.T
	r        *rand.Rand
	opts     Options
	services map[dataplane.Key]*dataplane.Service // as asked for
	held     map[dataplane.Key]*dataplane.Service // as they can be
	taken    map[dataplane.Binding]bool
	plans    map[Family]*Plan
	kernels  map[Family]*kernel
	next     uint64
}

// foreign are rules of others, which have to stay in their order.
var foreign = map[Family]string{
	IPv4: "*nat\n:DOCKER - [0:0]\n-A PREROUTING -m comment --comment \"a \\\"b\\\" c\" -j DOCKER\n-A DOCKER -d 10.0.0.9/32 -p tcp -m tcp --dport 99 -j DNAT --to-destination 172.17.0.2:80\n-A POSTROUTING -d 10.9.9.9/32 -j MASQUERADE\nCOMMIT\n",
	IPv6: "*nat\n-A OUTPUT -d fd99::9/128 -j RETURN\nCOMMIT\n",
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 11)),
		services: make(map[dataplane.Key]*dataplane.Service), held: make(map[dataplane.Key]*dataplane.Service),
		taken: make(map[dataplane.Binding]bool), plans: make(map[Family]*Plan), kernels: make(map[Family]*kernel),
	}
	w.opts = Options{
		Instance: fmt.Sprint("world ", seed), Mode: Mode(w.r.IntN(4) / 3), RouteLocalnet: w.r.IntN(3) == 0, NoIPv6: w.r.IntN(5) == 0,
		Pools: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")},
		Own:   Own{netip.MustParseAddrPort("127.255.3.4:7499"), netip.MustParseAddrPort("127.0.0.1:41000")},
	}
	for _, f := range Families() {
		w.kernels[f] = newKernel()
		if err := w.kernels[f].restore([]byte(foreign[f])); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// services in the order of their keys.
func sorted(m map[dataplane.Key]*dataplane.Service) []*dataplane.Service {
	return slices.SortedFunc(maps.Values(m), func(a, b *dataplane.Service) int { return a.Key.Compare(b.Key) })
}

// edit changes one service, or a few.
func (w *world) edit() {
	for range 1 + w.r.IntN(3) {
		old := w.any()
		switch n := w.r.IntN(10); {
		case old == nil || n < 3:
			w.next++
			w.set(w.service(dataplane.Key{Namespace: "default", Name: fmt.Sprint("s", w.next)}))
		case n < 4:
			w.drop(old.Key)
		case n < 5:
			w.set(w.service(old.Key))
		case n < 6: // it keeps what it has, and one frontend more
			next := *old
			if f := (dataplane.Frontend{Addr: w.frontend(), Protocol: dataplane.TCP, Kind: dataplane.FrontendIntercept}); !w.taken[f.Binding()] {
				next.Frontends = append(slices.Clone(old.Frontends), f)
			} else {
				next.Frontends = nil
			}
			w.set(&next)
		default:
			next := *old
			list := old.Endpoints.Slice()
			if len(list) > 0 && w.r.IntN(2) == 0 {
				i := w.r.IntN(len(list))
				list = slices.Delete(list, i, i+1)
			} else {
				list = append(list, w.endpoint())
			}
			next.Endpoints = dataplane.NewEndpoints(list...)
			w.set(&next)
		}
	}
}

func (w *world) any() *dataplane.Service {
	all := sorted(w.services)
	if len(all) == 0 {
		return nil
	}
	return all[w.r.IntN(len(all))]
}

func (w *world) set(svc *dataplane.Service) {
	if p := svc.Check(); p != nil {
		w.t.Fatalf("the test made a service that no provider is given: %+v", p)
	}
	w.services[svc.Key] = svc
	if p := Assess(svc, w.opts); p == nil || p.Status != dataplane.StatusUnsupported {
		w.held[svc.Key] = svc
	}
	w.take()
}

func (w *world) drop(key dataplane.Key) {
	delete(w.services, key)
	delete(w.held, key)
	w.take()
}

// take notes the frontends that nobody else may have.
func (w *world) take() {
	clear(w.taken)
	for _, services := range []map[dataplane.Key]*dataplane.Service{w.services, w.held} {
		for _, svc := range services {
			for _, f := range svc.Frontends {
				w.taken[f.Binding()] = true
			}
		}
	}
}

func (w *world) service(key dataplane.Key) *dataplane.Service {
	svc := &dataplane.Service{Key: key}
	for range w.r.IntN(5) {
		f := dataplane.Frontend{
			Addr: w.frontend(), Protocol: dataplane.Protocol(1 + w.r.IntN(2)),
			Kind: dataplane.FrontendKind(1 + w.r.IntN(2)), OnEmpty: dataplane.OnEmpty(w.r.IntN(3)),
		}
		if !w.taken[f.Binding()] {
			w.taken[f.Binding()] = true
			svc.Frontends = append(svc.Frontends, f)
		}
	}
	if w.r.IntN(4) == 0 {
		svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Duration(w.r.IntN(3)) * 1500 * time.Millisecond}
	}
	var list []dataplane.Endpoint
	for range []int{0, 1, 2, 5, 8, 9, 40}[w.r.IntN(7)] {
		list = append(list, w.endpoint())
	}
	svc.Endpoints = dataplane.NewEndpoints(list...)
	return svc
}

// frontend is an address of one of several neighbourhoods, some dense.
func (w *world) frontend() netip.AddrPort {
	four := func(a, b, c, d int) netip.Addr { return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)}) }
	v6 := netip.MustParseAddr("fd00:200::").As16()
	var a netip.Addr
	switch w.r.IntN(8) {
	case 0, 1:
		a = four(10, 200, 0, w.r.IntN(64))
	case 2:
		a = four(10, 200, w.r.IntN(256), w.r.IntN(256))
	case 3:
		a = four(10, 200, 7, 7) // one address, many ports
	case 4:
		a = four(1+w.r.IntN(200), w.r.IntN(256), w.r.IntN(256), w.r.IntN(256))
		if a.IsLoopback() {
			a = four(9, 9, 9, 9)
		}
	case 5:
		v6[15], v6[7] = byte(w.r.IntN(64)), byte(w.r.IntN(2))
		a = netip.AddrFrom16(v6)
	case 6:
		v6[2], v6[9], v6[15] = byte(w.r.IntN(3)), byte(w.r.IntN(256)), 1
		a = netip.AddrFrom16(v6)
	default:
		a = []netip.Addr{four(127, 0, 0, 1), four(127, 0, 0, 1), netip.IPv6Loopback(), four(192, 168, 1, 5)}[w.r.IntN(4)]
	}
	return netip.AddrPortFrom(a, uint16([]int{80, 443, 1 + w.r.IntN(65535), 8000 + w.r.IntN(40)}[w.r.IntN(4)]))
}

func (w *world) endpoint() dataplane.Endpoint {
	w.next++
	e := dataplane.Endpoint{
		ID: w.next, Weight: uint16([]int{1, 1, 1, 0, 2, 7, 65535}[w.r.IntN(7)]),
		State: dataplane.EndpointState([]int{0, 0, 0, 1, 2}[w.r.IntN(5)]),
	}
	port := uint16(20000 + w.next%10000)
	at := func() netip.AddrPort {
		a := netip.AddrFrom4([4]byte{172, 30, byte(w.next >> 8), byte(w.next)})
		switch w.r.IntN(6) {
		case 0:
			a = netip.AddrFrom4([4]byte{127, 0, 0, 2})
		case 1, 2:
			a = netip.AddrFrom16([16]byte{0xfd, 0x77, 14: byte(w.next >> 8), 15: byte(w.next)})
		}
		return netip.AddrPortFrom(a, port)
	}
	e.Addr = at()
	if w.r.IntN(3) == 0 {
		e.AddrForeign = at()
	}
	return e
}

// follow brings the kernels to what the services are now.
func (w *world) follow() {
	w.t.Helper()
	for _, f := range Families() {
		k, was := w.kernels[f], w.plans[f]
		next := Build(f, slices.Values(sorted(w.services)), w.opts, was)
		text := Restore(was, next)
		if was == nil {
			text = Repair(w.found(f), next)
		}
		if err := k.restore(text); err != nil {
			w.t.Fatalf("%v: %v\n%s", f, err, text)
		}
		w.plans[f] = next
	}
}

// found is what iptables-save would show.
func (w *world) found(f Family) *Table {
	w.t.Helper()
	table, err := Parse([]byte(w.kernels[f].save()))
	if err != nil {
		w.t.Fatal(err)
	}
	return table
}

// fate is what ought to become of a packet.
type fate struct {
	verdict string
	shares  map[netip.AddrPort]float64 // DNAT: of all weights
	service *dataplane.Service
}

// expect looks through all services for the packet's frontend.
func (w *world) expect(p packet) fate {
	if w.opts.Mode == Forwarded && p.hook == out {
		return fate{}
	}
	if own := w.opts.Own; p.hook == out && p.to.Addr == own.Frontend && p.to.Protocol == dataplane.TCP {
		return fate{verdict: "DNAT", shares: map[netip.AddrPort]float64{own.Endpoint: 1}}
	}
	for _, svc := range w.held {
		for _, f := range svc.Frontends {
			if f.Binding() == p.to {
				return w.expectAt(svc, f, p)
			}
		}
	}
	return fate{}
}

func (w *world) expectAt(svc *dataplane.Service, f dataplane.Frontend, p packet) fate {
	v4 := f.Addr.Addr().Is4()
	if f.Addr.Addr().IsLoopback() && (p.hook == pre || !v4 || !w.opts.RouteLocalnet) || !v4 && w.opts.NoIPv6 {
		return fate{}
	}
	shares, sum := make(map[netip.AddrPort]float64), 0.0
	for _, e := range svc.Usable() {
		a := e.Addr
		if p.hook == pre {
			a = e.Foreign()
			if a.Addr().IsLoopback() && !(v4 && w.opts.RouteLocalnet) {
				continue
			}
		}
		if a.Addr().Is4() == v4 {
			shares[a] += float64(e.Weight)
			sum += float64(e.Weight)
		}
	}
	for a := range shares {
		shares[a] /= sum
	}
	switch {
	case len(shares) > 0:
		return fate{"DNAT", shares, svc}
	case !f.Refuses():
		return fate{}
	case p.hook == pre:
		return fate{verdict: "REDIRECT", service: svc}
	case v4:
		return fate{"DNAT", map[netip.AddrPort]float64{netip.MustParseAddrPort("127.0.0.1:0"): 1}, svc}
	default:
		return fate{"DNAT", map[netip.AddrPort]float64{netip.MustParseAddrPort("[::1]:0"): 1}, svc}
	}
}

// packets to every frontend, and beside it.
func (w *world) packets() (list []packet) {
	seen := maps.Clone(w.taken)
	for b := range w.taken {
		for _, near := range []netip.AddrPort{
			netip.AddrPortFrom(b.Addr.Addr().Next(), b.Addr.Port()), netip.AddrPortFrom(b.Addr.Addr().Prev(), b.Addr.Port()),
			netip.AddrPortFrom(b.Addr.Addr(), b.Addr.Port()^1), netip.AddrPortFrom(b.Addr.Addr(), b.Addr.Port()^0x8000),
		} {
			seen[dataplane.Binding{Addr: near, Protocol: b.Protocol}] = true
		}
		seen[dataplane.Binding{Addr: b.Addr, Protocol: 3 - b.Protocol}] = true
	}
	seen[dataplane.Binding{Addr: w.opts.Own.Frontend, Protocol: dataplane.TCP}] = true
	for range 20 {
		seen[dataplane.Binding{Addr: w.frontend(), Protocol: dataplane.TCP}] = true
	}
	for b := range seen {
		list = append(list, packet{hook: pre, to: b}, packet{hook: out, to: b})
	}
	slices.SortFunc(list, func(a, b packet) int {
		return cmp.Or(a.to.Addr.Compare(b.to.Addr), cmp.Compare(a.to.Protocol, b.to.Protocol), cmp.Compare(a.hook, b.hook))
	})
	return list
}

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
