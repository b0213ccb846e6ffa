package ebpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
	"github.com/fairlead/fairlead/test/scale"
)

// random makes a service out of few addresses, so that they move between services.
func random(r *rand.Rand, key string, free map[netip.AddrPort]bool) *dataplane.Service {
	svc := service(key, nil)
	for addr := range free {
		if r.IntN(8) == 0 {
			svc.Frontends = append(svc.Frontends, dataplane.Frontend{Addr: addr, Protocol: dataplane.TCP, Kind: dataplane.FrontendKind(1 + r.IntN(2))})
			delete(free, addr)
		}
	}
	var list []dataplane.Endpoint
	for range r.IntN(12) {
		id := uint64(1 + r.IntN(30))
		list = append(list, dataplane.Endpoint{
			ID: id, Weight: uint16(1 + r.IntN(3)), State: dataplane.EndpointState(r.IntN(2) * r.IntN(3)),
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(id)}), 80),
		})
	}
	svc.Endpoints = dataplane.NewEndpoints(list...)
	return svc
}

// TestKernelEqualsModel: after each of many random generations what is in the maps,
// read through the kernel, is what the services say and nothing else.
func TestKernelEqualsModel(t *testing.T) {
	w := newWorld(t)
	const seed = 11
	r := rand.New(rand.NewPCG(seed, seed))
	for n := range scale.N(10_000) {
		free := make(map[netip.AddrPort]bool)
		for i := range 24 {
			free[netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 6, byte(i)}), 80)] = true
		}
		var services []*dataplane.Service
		for _, old := range slices.Collect(w.now.Services()) {
			if r.IntN(4) > 0 {
				services = append(services, old)
				for _, f := range old.Frontends {
					delete(free, f.Addr)
				}
			}
		}
		for i := range 8 {
			key := fmt.Sprint("s", i)
			if r.IntN(3) == 0 && !slices.ContainsFunc(services, func(s *dataplane.Service) bool { return s.Key == name(key) }) {
				services = append(services, random(r, key, free))
			}
		}
		w.good(w.apply(services...))
		if err := w.compare(); err != nil {
			t.Fatalf("seed %d, generation %d: %v", seed, n, err)
		}
	}
}

// compare reads the maps as a program would.
func (w *world) compare() error {
	maps := w.provider.data.Maps()
	dump, err := maps.Dump()
	if err != nil {
		return err
	}
	delete(dump.Frontends, dataplane.Binding{Addr: w.provider.own.frontend, Protocol: dataplane.TCP})
	for svc := range w.now.Services() {
		plan, _ := layout.Compile(svc)
		for _, f := range svc.Frontends {
			id, there := dump.Frontends[f.Binding()]
			if !there {
				return fmt.Errorf("frontend %v of %s is missing", f.Addr, svc.Key)
			}
			home, foreign := maps.Published(id)
			if home != foreign {
				return fmt.Errorf("frontend %v says %x at home, %x elsewhere", f.Addr, home, foreign)
			}
			set := maps.Slots(layout.V4, home.Set(), 1+home.Count())
			if got := dump.Services[layout.ParseHeader(set).Service]; got != svc.Key {
				return fmt.Errorf("frontend %v leads to %s, not to %s", f.Addr, got, svc.Key)
			}
			if got := layout.ParseSlots(set[layout.V4.SlotBytes():], layout.V4); !slices.Equal(got, plan.Slots[layout.V4][layout.Home]) {
				return fmt.Errorf("frontend %v of %s leads to %v, want %v", f.Addr, svc.Key, got, plan.Slots[layout.V4][layout.Home])
			}
			if refuses := home.Flags()&layout.Refuses != 0; refuses != f.Refuses() {
				return fmt.Errorf("frontend %v refuses: %v", f.Addr, refuses)
			}
			delete(dump.Frontends, f.Binding())
		}
	}
	if len(dump.Frontends) > 0 {
		return fmt.Errorf("frontends of nobody: %v", dump.Frontends)
	}
	if len(dump.Services) != w.now.Len()+1 {
		return fmt.Errorf("%d services have names, want %d and the provider's own", len(dump.Services), w.now.Len())
	}
	return nil
}

// TestReadersNeverSeeAnothersSet: sockets connect without end while sets are
// published, given up and used again by others. Each must be led to an endpoint of
// the service that it asked for.
func TestReadersNeverSeeAnothersSet(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.MaxSlots = 256          // little room: all is used again soon
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
