package l4

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// seat is a thread with sockets of its own, and what leads them.
type seat struct {
	t        *testing.T
	title    string
	orders   chan func()
	random   *rand.Rand
	provider dataplane.Provider // nil: nothing leads the sockets
	costs    costs
	services int
	now      *dataplane.Snapshot
	listener int // of connects
	port     uint16
	hot      bool // always the same service is dialled
}

// newSeat starts a thread; p is nil for one of which nothing leads the sockets.
func newSeat(t *testing.T, title string, p plane, services int) *seat {
	t.Helper()
	s := &seat{t: t, title: title, orders: make(chan func()), random: rand.New(rand.NewPCG(1, 2)), services: services, now: &dataplane.Snapshot{}}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the seat
		for order := range s.orders {
			order()
		}
	}()
	t.Cleanup(func() { close(s.orders) })
	s.do(func() error {
		if p != nil {
			s.provider, s.costs = p.enter(t, fmt.Sprintf("%s-%d", p.name(), services))
		}
		var err error
		s.listener, s.port, err = listen(unix.SOCK_STREAM)
		return err
	})
	t.Cleanup(func() {
		if s.provider != nil {
			s.leave()
		}
		unix.Close(s.listener)
	})
	return s
}

// do runs f on the thread of the seat.
func (s *seat) do(f func() error) {
	s.t.Helper()
	done := make(chan error, 1)
	s.orders <- func() {
		err := fmt.Errorf("ended the test")
		defer func() { done <- err }() // also if f ends the goroutine
		err = f()
	}
	if err := <-done; err != nil {
		s.t.Fatalf("seat %s: %v", s.title, err)
	}
}

func (s *seat) leave() {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context()) // it may be the end of the test
	s.do(func() error { return s.provider.Shutdown(ctx, dataplane.ShutdownRemove) })
}

// perService is how many endpoints each service has. All of them are the one
// listener, so that it does not matter which one is chosen.
const perService = 5

// target is what a connect of this seat is for.
func (s *seat) target() netip.AddrPort {
	if s.provider == nil {
		return loopback(s.port)
	}
	if s.hot {
		return virtual(s.services - 1)
	}
	return virtual(s.random.IntN(s.services))
}

// loopback is the address of every endpoint. An answer to a datagram comes from
// there as well, which it would not from another address of the device.
func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// virtual is the address of a service.
func virtual(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 202, byte(i >> 8), byte(i)}), 80)
}

// service is number i of the seat, led to a port.
func (s *seat) service(i int, p dataplane.Protocol, port uint16) *dataplane.Service {
	list := make([]dataplane.Endpoint, perService)
	for k := range list {
		list[k] = dataplane.Endpoint{ID: uint64(k + 1), Addr: loopback(port), Weight: 1}
	}
	return &dataplane.Service{
		Key:       dataplane.Key{Namespace: "bench", Name: fmt.Sprintf("%v-%05d", p, i)},
		Frontends: []dataplane.Frontend{{Addr: virtual(i), Protocol: p, Kind: dataplane.FrontendVIP}}, Endpoints: dataplane.NewEndpoints(list...),
	}
}

// content is all services of the seat.
func (s *seat) content() *dataplane.Snapshot {
	e := (&dataplane.Snapshot{}).Edit()
	for i := range s.services {
		e.Set(s.service(i, dataplane.TCP, s.port))
	}
	next := e.Done()
	next.Session = dataplane.Session{AgentID: "bench", BootEpoch: 1}
	next.Generation, next.Digest, next.Completeness = 1, []byte("digest"), dataplane.Exchanged
	return next
}

// reconcile brings the provider to next; it is called on the thread of the seat.
func (s *seat) reconcile(next *dataplane.Snapshot, changes ...dataplane.Change) error {
	r, err := s.provider.Reconcile(s.t.Context(), next, dataplane.Delta{Changes: changes})
	if err != nil {
		return err
	}
	if len(r.Statuses) > 0 {
		return fmt.Errorf("service %s is %v: %s", r.Statuses[0].Service, r.Statuses[0].Status, r.Statuses[0].Message)
	}
	s.now = next
	return nil
}

// set programs one service, new or changed.
func (s *seat) set(svc *dataplane.Service) (next *dataplane.Snapshot, change dataplane.Change) {
	e := s.now.Edit()
	was := s.now.Service(svc.Key)
	e.Set(svc)
	next = e.Done()
	next.Generation++
	change, _ = dataplane.Compare(was, svc, nil)
	return next, change
}
