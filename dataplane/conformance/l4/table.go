package l4

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// row is one line of the table: who asks, by which socket, for what.
type row struct {
	place, kind, network, family string
}

func (r row) id() string {
	return "table." + strings.Join([]string{r.place, r.kind, r.network, r.family}, "-")
}

func tableChecks() []Check {
	var all []Check
	for _, place := range []string{"local", "container"} {
		for _, kind := range []string{"vip", "intercept", "loopback"} {
			for _, network := range []string{"tcp", "udp"} {
				for _, family := range []string{"v4", "mapped", "v6"} {
					r := row{place, kind, network, family}
					if place == "container" && kind == "loopback" {
						continue // it has a loopback of its own
					}
					all = append(all, Check{
						ID: r.id(), Demand: r.demand(), local: place == "local", needs: r.needs(), run: r.run,
						Remedy: "capture " + network + " of this family and place at the frontend's address and port, and translate the answers as well",
					})
				}
			}
		}
	}
	return append(all, Check{
		ID: "table.tcp-and-udp", Demand: "A VIP and port of TCP and the same of UDP are two frontends, which lead to the instances of their own services.",
		Remedy: "make the protocol part of the key", needs: []Feature{UDP}, run: tcpAndUDP,
	}, Check{
		ID: "table.other-port", Demand: "Of a VIP only the port of the frontend is captured: another one leads to nobody, also where an instance listens at that port of the host.",
		Remedy: "match address and port, and do not give the host the VIP as an address of its own", run: otherPort,
	})
}

func (r row) needs() []Feature {
	var needs []Feature
	if r.place == "container" {
		needs = append(needs, Containers)
	}
	if r.network == "udp" {
		needs = append(needs, UDP)
	}
	if r.family == "v6" {
		needs = append(needs, IPv6)
	}
	if r.family == "mapped" {
		needs = append(needs, IPv6)
	}
	switch r.kind {
	case "intercept":
		needs = append(needs, Intercept)
	case "loopback":
		needs = append(needs, Intercept, Loopback)
	}
	return needs
}

func (r row) demand() string {
	who := map[string]string{"local": "A process of the host", "container": "A container"}[r.place]
	what := map[string]string{
		"vip": "a VIP", "intercept": "an intercept address of the host", "loopback": "an intercept address on loopback",
	}[r.kind]
	how := map[string]string{"v4": "by IPv4", "mapped": "by an IPv6 socket and an IPv4 address in IPv6 form", "v6": "by IPv6"}[r.family]
	end := ", and sees it as its peer."
	if r.kind != "vip" {
		end = ", sees it as its peer, and reaches the host's own listener there before and afterwards."
	}
	return fmt.Sprintf("%s reaches an instance at %s, %s and %s%s", who, what, strings.ToUpper(r.network), how, end)
}

func (r row) run(g *rig) error {
	v6 := r.family == "v6"
	c := g.at(g.world.host)
	c.mapped = r.family == "mapped"
	if r.place == "container" {
		c.space = g.world.container
	}
	near, err := g.instance(g.world.host, r.network, "near", v6)
	if err != nil {
		return err
	}
	far, err := g.instance(g.world.remote, r.network, "far", v6)
	if err != nil {
		return err
	}
	if r.kind == "vip" {
		one, other := g.service(g.vip(v6, 80), r.network, near), g.service(g.vip(v6, 80), r.network, far)
		if err := g.apply(one, other); err != nil {
			return err
		}
		return errors.Join(g.reach(c, r.network, one, "near"), g.reach(c, r.network, other, "far"))
	}
	own, err := g.instance(g.world.host, r.network, "own", v6)
	if err != nil {
		return err
	}
	at := own.at.Foreign()
	if r.kind == "loopback" {
		at = own.at.Addr
	}
	svc := intercept(g.service(at, r.network, near), dataplane.OnEmptyDefault)
	if err := g.expect(c, r.network, at, "own"); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	if err := g.apply(svc); err != nil {
		return err
	}
	if err := g.reach(c, r.network, svc, "near"); err != nil {
		return err
	}
	if err := g.apply(); err != nil {
		return err
	}
	if err := g.expect(c, r.network, at, "own"); err != nil {
		return fmt.Errorf("after the removal: %w", err)
	}
	return nil
}

// reach connects to a service, and wants this instance and the right peer.
func (g *rig) reach(c client, network string, svc *dataplane.Service, want string) error {
	to := svc.Frontends[0].Addr
	conn, err := c.dial(network, to, c.answer)
	if err != nil {
		return fmt.Errorf("%s %s from %s: %w", network, to, c.space.name, err)
	}
	defer hangUp(conn)
	if got, err := hear(conn, c.answer); err != nil || got != want {
		return fmt.Errorf("%s %s from %s: %q answers, %w, want %q", network, to, c.space.name, got, orNone(err), want)
	}
	if peer := peerOf(conn); g.has(Peer) && peer != to.String() {
		return fmt.Errorf("%s %s from %s: the peer shows as %s", network, to, c.space.name, peer)
	}
	return nil
}

var errNone = errors.New("without an error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func intercept(svc *dataplane.Service, empty dataplane.OnEmpty) *dataplane.Service {
	next := *svc
	next.Frontends = []dataplane.Frontend{svc.Frontends[0]}
	next.Frontends[0].Kind, next.Frontends[0].OnEmpty = dataplane.FrontendIntercept, empty
	return &next
}

func tcpAndUDP(g *rig) error {
	stream, err := g.instance(g.world.host, "tcp", "stream", false)
	if err != nil {
		return err
	}
	packet, err := g.instance(g.world.host, "udp", "packet", false)
	if err != nil {
		return err
	}
	at := g.vip(false, 53)
	if err := g.apply(g.service(at, "tcp", stream), g.service(at, "udp", packet)); err != nil {
		return err
	}
	for _, c := range g.clients() {
		err = errors.Join(err, g.expect(c, "tcp", at, "stream"), g.expect(c, "udp", at, "packet"))
	}
	return err
}

func otherPort(g *rig) error {
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	at := g.vip(false, 80)
	if err := g.apply(g.service(at, "tcp", in)); err != nil {
		return err
	}
	for _, c := range g.clients() {
		err = errors.Join(err, g.expect(c, "tcp", at, "in"), g.untouched(c, "tcp", netip.AddrPortFrom(at.Addr(), in.at.Addr.Port())))
	}
	return err
}
