package iptables

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// sender is a UDP socket that never pauses, so that conntrack never forgets it.
type sender struct {
	conn *net.UDPConn
	word chan string // of the latest answer
}

func startSender(t *testing.T, addr string) *sender {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{conn: c, word: make(chan string, 1)}
	quit := make(chan struct{})
	done := make(chan struct{}, 2)
	t.Cleanup(func() { close(quit); c.Close(); <-done; <-done })
	go func() {
		defer func() { done <- struct{}{} }()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				_, _ = c.Write([]byte("?")) // refused now and then
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			select {
			case <-quit:
				return
			default:
			}
			word := "refused"
			if err == nil {
				word = string(b[:n])
			}
			select {
			case <-s.word:
			default:
			}
			s.word <- word
		}
	}()
	return s
}

// hears waits until the newest answer is a word.
func (s *sender) hears(t *testing.T, want string) {
	t.Helper()
	last := "nothing"
	netns.Eventually(t, await.Patience, func() bool {
		select {
		case last = <-s.word:
		case <-time.After(20 * time.Millisecond):
		}
		return last == want
	}, "%q to answer the sender", want)
}

// TestSenderNeverSticks: a UDP socket that sends all along is led anew through every
// change: no endpoint, one, another one, none, the service removed and there again; a
// new process deletes nothing.
func TestSenderNeverSticks(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		a, b := listenUDP(t, "127.0.0.1:0", "a"), listenUDP(t, "127.0.0.1:0", "b")
		front := vip("10.200.7.1:53", dataplane.UDP)
		other := service("other", vip("10.200.7.2:53", dataplane.UDP), a)
		endpoint := func(id uint64, addr netip.AddrPort) *dataplane.Service {
			svc := service("s", front)
			svc.Endpoints = dataplane.NewEndpoints(dataplane.Endpoint{ID: id, Addr: addr, Weight: 1})
			return svc
		}
		w.good(w.apply(other, service("s", front)))
		s := startSender(t, "10.200.7.1:53")
		s.hears(t, "refused")
		w.good(w.apply(other, endpoint(1, a)))
		s.hears(t, "a")
		w.good(w.apply(other, service("s", front)))
		s.hears(t, "refused")
		w.good(w.apply(other, endpoint(2, b)))
		s.hears(t, "b")
		w.good(w.apply(other, endpoint(1, a)))
		s.hears(t, "a")
		w.good(w.apply(other))
		w.good(w.apply(other, endpoint(2, b)))
		s.hears(t, "b")

		kept := startSender(t, "10.200.7.2:53")
		kept.hears(t, "a")
		before := flows(t, "10.200.7.2:53")
		w.restart()
		w.good(w.apply(other, endpoint(2, b)))
		w.good(w.apply(other, endpoint(1, a)))
		s.hears(t, "a")
		if after := flows(t, "10.200.7.2:53"); after != before || before != 1 {
			t.Errorf("of a service that stayed as it was %d entries are left of %d", after, before)
		}
	})
}

// flows counts the entries of conntrack that lead from a frontend.
func flows(t *testing.T, frontend string) int {
	t.Helper()
	n := 0
	err := host.Flows(host.V4, func(f host.Flow) {
		if f.Frontend.Addr == netip.MustParseAddrPort(frontend) && f.Translated() {
			n++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTouchedFrontends: a change is followed by a look at conntrack if it concerns
// UDP, and tells which entries may stay.
func TestTouchedFrontends(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.9.0.1:53"), netip.MustParseAddrPort("10.9.0.2:53")
	front := vip("10.200.0.1:53", dataplane.UDP)
	binding := front[0].Binding()
	delta := func(was, is *dataplane.Service) dataplane.Delta {
		c, _ := dataplane.Compare(was, is, nil)
		return dataplane.Delta{Changes: []dataplane.Change{c}}
	}
	flow := func(to netip.AddrPort) host.Flow { return host.Flow{Frontend: binding, Endpoint: to} }
	refused := netip.MustParseAddrPort("127.0.0.1:0")
	pass := vip("10.200.0.1:53", dataplane.UDP)
	pass[0].OnEmpty = dataplane.OnEmptyPass
	for _, c := range []struct {
		name   string
		delta  dataplane.Delta
		stays  []netip.AddrPort
		goes   []netip.AddrPort
		nobody bool
	}{
		{name: "tcp", delta: delta(nil, service("s", vip("10.200.0.1:53", dataplane.TCP), a)), nobody: true},
		{name: "added", delta: delta(nil, service("s", front, a)), stays: []netip.AddrPort{a}, goes: []netip.AddrPort{b, refused, binding.Addr}},
		{name: "0 to n", delta: delta(service("s", front), service("s", front, a)), stays: []netip.AddrPort{a}, goes: []netip.AddrPort{refused, binding.Addr}},
		{name: "n to 0", delta: delta(service("s", front, a), service("s", front)), goes: []netip.AddrPort{a, binding.Addr}},
		{name: "n to 0, passes", delta: delta(service("s", pass, a), service("s", pass)), stays: []netip.AddrPort{binding.Addr}, goes: []netip.AddrPort{a}},
		{name: "one removed", delta: delta(service("s", front, a, b), service("s", front, a)), stays: []netip.AddrPort{a}, goes: []netip.AddrPort{b}},
		{name: "removed", delta: delta(service("s", front, a), nil), stays: []netip.AddrPort{binding.Addr}, goes: []netip.AddrPort{a, refused}},
	} {
		touched := touchedFrontends(c.delta)
		r, ok := touched[binding]
		if ok == c.nobody {
			t.Errorf("%s: touched are %v", c.name, touched)
		}
		for _, to := range c.stays {
			if !r.allows(flow(to)) {
				t.Errorf("%s: an entry that leads to %v goes", c.name, to)
			}
		}
		for _, to := range c.goes {
			if r.allows(flow(to)) {
				t.Errorf("%s: an entry that leads to %v stays", c.name, to)
			}
		}
	}
}

// TestServerOfAnyAddress: a datagram server that is bound to no address answers a
// client of its VIP, though the client's address is not a loopback one.
func TestServerOfAnyAddress(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		for _, addr := range []string{"10.9.9.9/32", "fd00:9::9/128"} {
			command(t, "ip", "addr", "add", addr, "dev", "lo")
			defer command(t, "ip", "addr", "del", addr, "dev", "lo")
		}
		port := listenUDP(t, "[::]:0", "a").Port()
		w.good(w.apply(
			service("four", vip("10.200.7.5:53", dataplane.UDP), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)),
			service("six", vip("[fd00:200::5]:53", dataplane.UDP), netip.AddrPortFrom(netip.IPv6Loopback(), port)),
		))
		for _, addr := range []string{"10.200.7.5:53", "[fd00:200::5]:53"} {
			startSender(t, addr).hears(t, "a")
		}
	})
}
