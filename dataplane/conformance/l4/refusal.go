package l4

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// refusalTime is what a refusal may take. It is demanded of the quickest of
// several, as the machine may have other things to do.
const refusalTime = 5 * time.Millisecond

const refusalTries = 10

func refusalChecks() []Check {
	const remedy = "refuse within the stack: a socket program sets ECONNREFUSED; a NAT plane translates to port 0 of the loopback address (OUTPUT) or redirects to port 0 (PREROUTING)"
	connect := func(name, what string, connect func(client, int, netip.AddrPort) error) Check {
		return Check{
			ID: "refuse." + name, Demand: "A VIP without endpoints answers " + what + " with ECONNREFUSED within 5 ms, for IPv4 and IPv6, on the host and in containers.",
			Remedy: remedy, run: func(g *rig) error { return refuse(g, connect) },
		}
	}
	return []Check{
		connect("blocking", "a blocking connect", func(c client, fd int, to netip.AddrPort) error {
			wait := unix.NsecToTimeval(c.answer.Nanoseconds())
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
			return unix.Connect(fd, c.sockaddr(to))
		}),
		connect("non-blocking", "a connect that does not block, also by what epoll and SO_ERROR say", func(c client, fd int, to netip.AddrPort) error {
			return c.connect(fd, to, c.answer)
		}),
		connect("io-uring", "a connect by io_uring", uringConnect),
		{
			ID: "refuse.udp", Demand: "Who sends a datagram to a VIP without endpoints sees what a closed port gives: ECONNREFUSED from connect, send or the next receive.",
			Remedy: remedy, needs: []Feature{UDP}, run: refuseUDP,
		},
		{
			ID: "refuse.unusable", Demand: "A service is empty also if all of its endpoints drain or have weight 0.",
			Remedy: "choose among Service.Usable, not among all endpoints", run: refuseUnusable,
		},
		{
			ID: "refuse.on-empty", Demand: "An intercept address without endpoints leads to the host's own listener there; with ON_EMPTY_REFUSE it is refused.",
			Remedy: "look at on_empty of each frontend", local: true, needs: []Feature{Intercept}, run: refuseOnEmpty,
		},
	}
}

func refuse(g *rig, connect func(client, int, netip.AddrPort) error) error {
	var services []*dataplane.Service
	for _, v6 := range g.families() {
		services = append(services, g.service(g.vip(v6, 80), "tcp"))
	}
	if err := g.apply(services...); err != nil {
		return err
	}
	for _, c := range g.clients() {
		for _, svc := range services {
			to := svc.Frontends[0].Addr
			var took []time.Duration
			for len(took) < refusalTries && (len(took) < 3 || slices.Min(took) < 100*refusalTime) {
				fd, err := c.socket("tcp", to.Addr().Is6())
				if err != nil {
					return err
				}
				start := time.Now()
				err = connect(c, fd, to)
				took = append(took, time.Since(start))
				_ = unix.Close(fd)
				if errors.Is(err, errSkip) {
					return err
				}
				if !errors.Is(err, unix.ECONNREFUSED) {
					return fmt.Errorf("%s from %s: %w after %v, want ECONNREFUSED", to, c.space.name, orNone(err), took[len(took)-1].Round(time.Microsecond))
				}
			}
			slices.Sort(took)
			if took[0] > refusalTime {
				return fmt.Errorf("%s from %s: the quickest of %d refusals took %v, at most %v", to, c.space.name, len(took), took[0], refusalTime)
			}
			g.note("%s from %s: %v", to, c.space.name, took[len(took)/2].Round(time.Microsecond))
		}
	}
	return nil
}

func refuseUDP(g *rig) error {
	var services []*dataplane.Service
	for _, v6 := range g.families() {
		services = append(services, g.service(g.vip(v6, 53), "udp"))
	}
	if err := g.apply(services...); err != nil {
		return err
	}
	for _, c := range g.clients() {
		for _, svc := range services {
			to := svc.Frontends[0].Addr
			if got, err := c.askFor("udp", to, c.answer); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("udp %s from %s: %q answers, %w, want ECONNREFUSED", to, c.space.name, got, orNone(err))
			}
		}
	}
	return nil
}

func refuseUnusable(g *rig) error {
	list, err := g.instances(2, "tcp", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", list...)
	to := svc.Frontends[0].Addr
	for what, edit := range map[string]func(*dataplane.Endpoint){
		"draining": func(e *dataplane.Endpoint) { e.State = dataplane.Draining },
		"weight 0": func(e *dataplane.Endpoint) { e.Weight = 0 },
	} {
		if err := g.apply(edited(svc, edit)); err != nil {
			return err
		}
		if err := g.refused(g.client(), to); err != nil {
			return fmt.Errorf("all endpoints %s: %w", what, err)
		}
		if err := g.apply(svc); err != nil {
			return err
		}
		if err := g.expect(g.client(), "tcp", to, "i0", "i1"); err != nil {
			return fmt.Errorf("usable again after %s: %w", what, err)
		}
	}
	return nil
}

func (g *rig) refused(c client, to netip.AddrPort) error {
	if got, err := c.ask("tcp", to); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("tcp %s from %s: %q answers, %w, want ECONNREFUSED", to, c.space.name, got, orNone(err))
	}
	return nil
}

func refuseOnEmpty(g *rig) error {
	own, err := g.instance(g.world.host, "tcp", "own", false)
	if err != nil {
		return err
	}
	c, at := g.at(g.world.host), own.at.Foreign()
	svc := g.service(at, "tcp")
	if err := g.apply(intercept(svc, dataplane.OnEmptyDefault)); err != nil {
		return err
	}
	if err := g.expect(c, "tcp", at, "own"); err != nil {
		return err
	}
	if err := g.apply(intercept(svc, dataplane.OnEmptyRefuse)); err != nil {
		return err
	}
	return g.refused(c, at)
}
