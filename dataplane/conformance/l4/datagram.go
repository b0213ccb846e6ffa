package l4

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

func datagramChecks() []Check {
	return []Check{
		{
			ID: "datagram.source", Demand: "One socket that is not connected asks several services, and each answer comes from the address that was asked.",
			Remedy: "translate the source of answers, per destination and not per socket", needs: []Feature{UDP}, run: datagramSource,
		},
		{
			ID: "datagram.sticky", Demand: "A hundred datagrams of one socket to one service go to one endpoint, while the service stays as it is.",
			Remedy: "choose by the identity of the socket or flow, not per datagram", needs: []Feature{UDP, StickyDatagrams}, run: datagramSticky,
		},
		{
			ID: "datagram.large", Demand: "Datagrams larger than the MTU, which travel in fragments, arrive whole, and so do their answers.",
			Remedy: "only the first fragment has ports: translate before fragments are made, or after they are put together", needs: []Feature{UDP}, run: datagramLarge,
		},
		{
			ID: "datagram.transitions", Demand: "A socket that sends all along follows a service through every change from none to some endpoints and back: once Reconcile has returned, no datagram goes to an endpoint that is gone, and the next reach the new one.",
			Remedy: "forget what was tracked for the service's datagrams (conntrack) when it gets endpoints, loses all, or loses one", needs: []Feature{UDP}, run: datagramTransitions,
		},
		{
			ID: "datagram.pairs", Demand: "Two datagrams that a new socket sends to one service at the same time are both answered, as a resolver asks for A and AAAA.",
			Remedy: "two packets of one flow race for its first entry in conntrack: lead at the socket, or see to it that neither is dropped", needs: []Feature{UDP}, run: datagramPairs,
		},
		{
			ID: "datagram.restart", Demand: "A restart of the plane moves no flow of datagrams to another endpoint.",
			Remedy: "forget nothing that is tracked because a process starts", needs: []Feature{UDP, StickyDatagrams}, run: datagramRestart,
		},
	}
}

func datagramSource(g *rig) error {
	for _, v6 := range g.families() {
		var services []*dataplane.Service
		want := make(map[netip.AddrPort]string)
		for i := range 3 {
			in, err := g.instance(g.world.host, "udp", fmt.Sprint("dns", i), v6)
			if err != nil {
				return err
			}
			svc := g.service(g.vip(v6, 53), "udp", in)
			services = append(services, svc)
			want[svc.Frontends[0].Addr] = in.name
		}
		if err := g.apply(services...); err != nil {
			return err
		}
		for _, c := range g.clients() {
			for _, mapped := range []bool{false, true} {
				if mapped && (v6 || !g.has(IPv6)) {
					continue
				}
				c.mapped = mapped
				if err := g.sources(c, v6, want); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *rig) sources(c client, v6 bool, want map[netip.AddrPort]string) error {
	d, err := c.datagrams(v6)
	if err != nil {
		return err
	}
	defer d.close()
	for to := range want {
		if err := d.send(to, "?"); err != nil {
			return fmt.Errorf("send to %s from %s: %w", to, c.space.name, err)
		}
	}
	for range want {
		name, _, from, err := d.receive(d.answer)
		if err != nil {
			return fmt.Errorf("from %s, IPv6 socket %v: an answer is missing: %w", c.space.name, v6 || c.mapped, err)
		}
		if want[from] != name {
			return fmt.Errorf("from %s, IPv6 socket %v: the answer of %s came from %s, want one of %v", c.space.name, v6 || c.mapped, name, from, want)
		}
	}
	return nil
}

func datagramSticky(g *rig) error {
	svc, _, err := g.serve(5, "udp")
	if err != nil {
		return err
	}
	for _, c := range g.clients() {
		d, err := c.datagrams(false)
		if err != nil {
			return err
		}
		seen, err := d.stays(svc.Frontends[0].Addr, 100)
		d.close()
		if err != nil || len(seen) != 1 {
			return fmt.Errorf("100 datagrams of one socket in %s went to %v, %w", c.space.name, seen, orNone(err))
		}
	}
	return nil
}

// stays sends n datagrams, and says who answered.
func (d *datagrams) stays(to netip.AddrPort, n int) (map[string]int, error) {
	seen := make(map[string]int)
	for range n {
		if err := d.send(to, "?"); err != nil {
			return seen, err
		}
		name, _, _, err := d.receive(d.answer)
		if err != nil {
			return seen, err
		}
		seen[name]++
	}
	return seen, nil
}

func datagramLarge(g *rig) error {
	const bytes = 50_000 // of 65,507
	for _, v6 := range g.families() {
		far, err := g.instance(g.world.remote, "udp", "far", v6)
		if err != nil {
			return err
		}
		near, err := g.instance(g.world.host, "udp", "near", v6)
		if err != nil {
			return err
		}
		for _, in := range []*instance{far, near} {
			svc := g.service(g.vip(v6, 53), "udp", in)
			if err := g.apply(svc); err != nil {
				return err
			}
			for _, c := range g.clients() {
				d, err := c.datagrams(v6)
				if err != nil {
					return err
				}
				text := strings.Repeat("x", bytes)
				err = d.send(svc.Frontends[0].Addr, text)
				var got string
				if err == nil {
					_, got, _, err = d.receive(d.answer)
				}
				d.close()
				if err != nil || got != text {
					return fmt.Errorf("%d bytes from %s to %s at %s: %d came back, %w", bytes, c.space.name, in.name, svc.Frontends[0].Addr, len(got), orNone(err))
				}
			}
		}
	}
	return nil
}

func datagramTransitions(g *rig) error {
	list, err := g.instances(2, "udp", false)
	if err != nil {
		return err
	}
	for _, c := range g.clients() {
		svc := g.service(g.vip(false, 53), "udp")
		d, err := c.datagrams(false)
		if err != nil {
			return err
		}
		err = g.follow(d, svc, list[0], list[1])
		d.close()
		if err != nil {
			return fmt.Errorf("a socket in %s: %w", c.space.name, err)
		}
	}
	return nil
}

func (g *rig) follow(d *datagrams, svc *dataplane.Service, a, b *instance) error {
	to := svc.Frontends[0].Addr
	steps := []struct {
		what string
		now  []*instance
	}{
		{"a", []*instance{a}},
		{"none after a", nil},
		{"b after none", []*instance{b}},
		{"a instead of b", []*instance{a}},
		{"a and b", []*instance{a, b}},
		{"b alone", []*instance{b}},
		{"none after b", nil},
		{"a after none", []*instance{a}},
	}
	for n, step := range steps {
		_ = d.send(to, "before") // traffic goes on all along
		list := make([]dataplane.Endpoint, len(step.now))
		for i, in := range step.now {
			list[i] = in.at
			list[i].ID = uint64(100*n + i + 1) // each life is another endpoint
		}
		if err := g.apply(withEndpoints(svc, list...)); err != nil {
			return err
		}
		d.drainQueue()
		mark := fmt.Sprint("step", n)
		if err := g.sees(d, to, mark, step.now); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// sees sends until it hears an answer, and wants it from one of now; if that is
// nobody, it wants none.
func (g *rig) sees(d *datagrams, to netip.AddrPort, mark string, now []*instance) error {
	deadline := time.Now().Add(d.answer)
	for tries := 0; ; tries++ {
		if err := d.send(to, mark); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		name, text, _, err := d.receive(20 * time.Millisecond)
		switch {
		case err == nil && text == mark:
			for _, in := range now {
				if in.name == name {
					return nil
				}
			}
			return fmt.Errorf("%s answers, which is gone", name)
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ECONNREFUSED):
			return err
		case len(now) == 0 && tries == 5:
			return nil
		case len(now) > 0 && time.Now().After(deadline):
			return fmt.Errorf("nobody answers for %v", d.answer)
		}
	}
}

// drainQueue takes what has arrived.
func (d *datagrams) drainQueue() {
	for {
		if _, _, _, err := d.receive(0); err != nil {
			return
		}
	}
}

func datagramPairs(g *rig) error {
	svc, _, err := g.serve(3, "udp")
	if err != nil {
		return err
	}
	for _, c := range g.clients() {
		for n := range g.scaled(2000, 50) {
			if err := pair(c, svc.Frontends[0].Addr); err != nil {
				return fmt.Errorf("pair %d from %s: %w", n+1, c.space.name, err)
			}
		}
	}
	return nil
}

// pair sends two datagrams at the same time, and wants two answers.
func pair(c client, to netip.AddrPort) error {
	d, err := c.datagrams(to.Addr().Is6())
	if err != nil {
		return err
	}
	defer d.close()
	var both sync.WaitGroup
	for _, text := range []string{"A", "AAAA"} {
		both.Go(func() { _ = d.send(to, text) })
	}
	both.Wait()
	for n := range 2 {
		if _, _, _, err := d.receive(d.answer); err != nil {
			return fmt.Errorf("answer %d: %w", n+1, err)
		}
	}
	return nil
}

func datagramRestart(g *rig) error {
	svc, _, err := g.serve(10, "udp")
	if err != nil {
		return err
	}
	d, err := g.client().datagrams(false)
	if err != nil {
		return err
	}
	defer d.close()
	before, err := d.stays(svc.Frontends[0].Addr, 5)
	if err != nil {
		return err
	}
	for range 4 { // one of ten times another choice is the same
		if err := g.restart(); err != nil {
			return err
		}
		if err := g.apply(svc); err != nil {
			return err
		}
		after, err := d.stays(svc.Frontends[0].Addr, 5)
		if err != nil {
			return err
		}
		if !maps.Equal(before, after) {
			return fmt.Errorf("before the restart %v answered, afterwards %v", before, after)
		}
	}
	return nil
}
