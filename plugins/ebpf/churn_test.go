package ebpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
	"github.com/fairlead/fairlead/test/scale"
)

// pool is what services of the random test take their frontends from: few, so that
// they move between services, of both families and transports.
func pool() (all []dataplane.Binding) {
	for i := range byte(16) {
		for _, protocol := range []dataplane.Protocol{dataplane.TCP, dataplane.UDP} {
			four, six := netip.AddrFrom4([4]byte{10, 200, 6, i}), netip.AddrFrom16([16]byte{0xfd, 0, 15: i})
			all = append(all, dataplane.Binding{Addr: netip.AddrPortFrom(four, 80), Protocol: protocol}, dataplane.Binding{Addr: netip.AddrPortFrom(six, 80), Protocol: protocol})
		}
	}
	return all
}

// random makes a service out of frontends that nobody has, and of endpoints of both
// families: some mean another address to other network namespaces, some nothing.
func random(r *rand.Rand, key string, taken map[dataplane.Binding]bool) *dataplane.Service {
	svc := service(key, nil)
	for _, b := range pool() {
		if !taken[b] && r.IntN(12) == 0 {
			taken[b] = true
			svc.Frontends = append(svc.Frontends, dataplane.Frontend{Addr: b.Addr, Protocol: b.Protocol, Kind: dataplane.FrontendKind(1 + r.IntN(2))})
		}
	}
	var list []dataplane.Endpoint
	for range r.IntN(12) {
		id := byte(1 + r.IntN(30))
		places := []netip.Addr{
			netip.AddrFrom4([4]byte{192, 0, 2, id}), netip.AddrFrom4([4]byte{127, 0, 0, id}),
			netip.AddrFrom16([16]byte{0xfd, 1, 15: id}), netip.IPv6Loopback(),
		}
		e := dataplane.Endpoint{
			ID: uint64(id), Weight: uint16(r.IntN(4)), State: dataplane.EndpointState(r.IntN(2) * r.IntN(3)),
			Addr: netip.AddrPortFrom(places[r.IntN(4)], 80),
		}
		if r.IntN(4) == 0 {
			e.AddrForeign = netip.AddrPortFrom(places[2*r.IntN(2)], 8080)
		}
		list = append(list, e)
	}
	svc.Endpoints = dataplane.NewEndpoints(list...)
	if r.IntN(4) == 0 {
		svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Duration(1+r.IntN(100)) * time.Second}
	}
	return svc
}

// TestKernelEqualsModel: after each of many random generations what is in the maps,
// read through the kernel, is what the services say and nothing else; and as places
// are used again, the maps that it began with do.
func TestKernelEqualsModel(t *testing.T) {
	w := newWorld(t)
	w.apply()
	size := w.provider.data.Table().Size()
	const seed = 11
	r := rand.New(rand.NewPCG(seed, seed))
	for n := range scale.N(10_000) {
		taken := make(map[dataplane.Binding]bool)
		var services []*dataplane.Service
		for old := range w.now.Services() {
			if r.IntN(4) > 0 {
				services = append(services, old)
				for _, f := range old.Frontends {
					taken[f.Binding()] = true
				}
			}
		}
		for i := range 8 {
			key := fmt.Sprint("s", i)
			if r.IntN(3) == 0 && !slices.ContainsFunc(services, func(s *dataplane.Service) bool { return s.Key == name(key) }) {
				services = append(services, random(r, key, taken))
			}
		}
		for _, st := range w.apply(services...).Statuses {
			if st.Status != dataplane.StatusPartial { // a frontend whose family no endpoint has
				t.Fatalf("seed %d, generation %d: %s is %v: %s", seed, n, st.Service, st.Status, st.Message)
			}
		}
		if err := w.compare(); err != nil {
			t.Fatalf("seed %d, generation %d: %v", seed, n, err)
		}
	}
	if now := w.provider.data.Table().Size(); now != size {
		t.Errorf("the maps were made anew for %+v, at first they were for %+v", now, size)
	}
}

// compare reads the maps as a program would.
func (w *world) compare() error {
	maps := w.provider.data.Maps()
	there := make(map[dataplane.Binding]uint32)
	var indexes [layout.Families]*layout.Index
	for family := range layout.Families {
		entries, foreign := maps.Frontends(family)
		indexes[family] = layout.NewIndex(family, entries, foreign)
		for entry := range uint32(len(foreign)) {
			if b, is, err := indexes[family].Binding(entry); err != nil {
				return err
			} else if is {
				there[b] = entry
			}
		}
	}
	delete(there, dataplane.Binding{Addr: w.provider.own.frontend, Protocol: dataplane.TCP})
	for svc := range w.now.Services() {
		plan, _ := layout.Compile(svc)
		for _, f := range svc.Frontends {
			entry, is := there[f.Binding()]
			if !is {
				return fmt.Errorf("frontend %v of %s is missing", f.Addr, svc.Key)
			}
			family := layout.FamilyOf(f.Addr.Addr())
			want := plan.Slots[family]
			if plan.Shared[family] {
				want[layout.Foreign] = want[layout.Home]
			}
			home, foreign := indexes[family].Published(entry)
			for scope, word := range map[layout.Scope]layout.Publication{layout.Home: home, layout.Foreign: foreign} {
				place, slots := word.Set(), []layout.Slot(nil)
				if word.Count() > 0 {
					set := maps.Slots(family, word.Set(), word.Count())
					place, slots = layout.ParseOwner(set, family).Place, layout.ParseSlots(set, family)
				}
				owner, err := layout.ParseService(maps.Service(place))
				if err != nil {
					return err
				}
				if owner.Key != svc.Key {
					return fmt.Errorf("frontend %v leads to %s, not to %s", f.Addr, owner.Key, svc.Key)
				}
				if owner.AffinitySeconds != plan.Affinity {
					return fmt.Errorf("frontend %v of %s keeps clients for %d s, not for %d", f.Addr, svc.Key, owner.AffinitySeconds, plan.Affinity)
				}
				if !slices.Equal(slots, want[scope]) {
					return fmt.Errorf("frontend %v of %s leads in scope %d to %v, want %v", f.Addr, svc.Key, scope, slots, want[scope])
				}
				if refuses := word.Flags()&layout.Refuses != 0; refuses != f.Refuses() {
					return fmt.Errorf("frontend %v refuses: %v", f.Addr, refuses)
				}
			}
			delete(there, f.Binding())
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("frontends of nobody: %v", there)
	}
	named := 0
	for at := range maps.Size().Services {
		if s, err := layout.ParseService(maps.Service(at)); err != nil {
			return err
		} else if s.ID != 0 {
			named++
		}
	}
	if named != w.now.Len()+1 {
		return fmt.Errorf("%d services have names, want %d and the provider's own", named, w.now.Len())
	}
	return nil
}

// TestReadersNeverSeeAnothersSet: sockets connect without end while sets are
// published, given up and used again by others. Each must be led to an endpoint of
// the service that it asked for.
func TestReadersNeverSeeAnothersSet(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.MaxSlots = 2048         // little room: all is used again soon
		s.CheckInterval = "1000h" // the keeper must not look at a table that this test changes
	})
	const services = 8
	version := func(i, size int) *dataplane.Service {
		svc := service(fmt.Sprint("s", i), vip(fmt.Sprintf("10.200.7.%d:53", i), dataplane.UDP))
		var list []dataplane.Endpoint
		for e := range size {
			list = append(list, dataplane.Endpoint{ID: uint64(e + 1), Weight: 1, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 2, byte(i), byte(e)}), 53)})
		}
		svc.Endpoints = dataplane.NewEndpoints(list...)
		return svc
	}
	var all []*dataplane.Service
	for i := range services {
		all = append(all, version(i, 3))
	}
	w.good(w.apply(all...))
	sockets := w.provider.data.Shared("sockets")
	var stop atomic.Bool
	type report struct {
		connects int
		wrong    error
	}
	done := make(chan report)
	go func() {
		var out report
		defer func() { done <- out }()
		for ; !stop.Load(); out.connects++ {
			i := out.connects % services
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				out.wrong = err
				return
			}
			err = unix.Connect(fd, sockaddr(fmt.Sprintf("10.200.7.%d:53", i)))
			var value [48]byte
			if err == nil {
				err = sockets.Lookup(uint32(fd), &value)
			}
			unix.Close(fd)
			// The endpoint's address is the second of the association.
			if led := binary.BigEndian.Uint32(value[28:32]); err != nil || led>>8 != 127<<16|2<<8|uint32(i) {
				out.wrong = fmt.Errorf("service %d led to %v: %v", i, netip.AddrFrom4([4]byte(value[28:32])), err)
				return
			}
		}
	}()
	table := w.provider.data.Table()
	r := rand.New(rand.NewPCG(1, 1))
	for range scale.N(1_000_000) {
		svc := version(r.IntN(services), 1+r.IntN(6))
		plan, _ := layout.Compile(svc)
		if _, err := table.Set(svc.Key, plan, endpointIDs(svc)); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	got := <-done
	if got.wrong != nil {
		t.Error(got.wrong)
	}
	t.Logf("%d connects beside %d updates", got.connects, scale.N(1_000_000))
}
