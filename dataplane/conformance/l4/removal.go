package l4

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// removal is one way for an endpoint to go.
type removal struct {
	id, demand string
	why        dataplane.RemovalReason
	drain      time.Duration
	silent     bool // nothing was heard since the suspicion
	ends       bool
}

func removalChecks() []Check {
	var all []Check
	for _, r := range []removal{
		{"dead-silent", "to a dead endpoint that said nothing since it was suspected are ended at once", dataplane.RemovedDead, time.Hour, true, true},
		{"dead-heard", "to a dead endpoint that spoke after it was suspected live on for the drain time", dataplane.RemovedDead, time.Hour, false, false},
		{"dead-drained", "to a dead endpoint that spoke after it was suspected are ended after the drain time", dataplane.RemovedDead, 300 * time.Millisecond, false, true},
		{"left", "to an endpoint whose node left are ended after the drain time", dataplane.RemovedLeft, 300 * time.Millisecond, false, true},
		{"drained", "to an endpoint that was removed as drained may be ended, and are after the drain time", dataplane.RemovedDrained, 0, false, true},
		{"time-left", "to a removed endpoint live on while the drain time is not over", dataplane.RemovedLeft, time.Hour, false, false},
	} {
		c := Check{
			ID: "removal." + r.id, Demand: "Open connections that the plane led " + r.demand + "; a direct connection to the same address and those to other endpoints are not touched.",
			Remedy: "end the sockets or flows that you translated to this endpoint of this service, and only these", run: func(g *rig) error { return r.run(g) },
		}
		if r.ends {
			c.needs = []Feature{Ends}
		}
		all = append(all, c)
	}
	return append(all, Check{
		ID: "removal.reconnected", Demand: "A datagram socket that was led to an endpoint and then connected elsewhere by itself is not ended when the endpoint is removed.",
		Remedy: "a mark on a socket outlives its connection: compare it with where the socket is connected now", needs: []Feature{Ends, UDP}, local: true, run: reconnected,
	}, Check{
		ID: "removal.container", Demand: "Connections of containers to a removed endpoint are ended as those of the host are.",
		Remedy: "look into each network namespace", needs: []Feature{Ends, Containers}, run: removedFromContainer,
	}, Check{
		ID: "removal.udp", Demand: "A connected datagram socket that was led to a removed endpoint reports an error, or is led to another one; the next socket reaches another one.",
		Remedy: "end connected datagram sockets too, or forget what is tracked of them", needs: []Feature{UDP}, run: removedUDP,
	})
}

func (r removal) run(g *rig) error {
	list, err := g.instances(2, "tcp", false)
	if err != nil {
		return err
	}
	gone, stays := list[0], list[1]
	c := g.client()
	svc := g.service(g.vip(false, 80), "tcp", gone)
	svc.DrainTime = r.drain
	to := svc.Frontends[0].Addr
	// Its connection is ended at once: when it is, those that live on were spared.
	control := g.service(g.vip(false, 80), "tcp", gone)
	control.DrainTime = 0
	if err := g.apply(svc, control); err != nil {
		return err
	}
	first, _, err := g.open(c, "tcp", control.Frontends[0].Addr)
	if err != nil {
		return err
	}
	ledConn, _, err := g.open(c, "tcp", to)
	if err != nil {
		return err
	}
	address := gone.at.Foreign()
	if c.space == g.world.host {
		address = gone.at.Addr
	}
	direct, _, err := g.open(c, "tcp", address)
	if err != nil {
		return err
	}
	since := time.Now().Add(-time.Hour)
	if r.silent {
		since = time.Now().Add(300 * time.Millisecond)
		g.pause(600 * time.Millisecond)
	}
	if err := g.apply(with(svc, gone, stays), control); err != nil {
		return err
	}
	left := with(svc, gone, stays)
	left = withEndpoints(left, left.Endpoints.Slice()[1])
	if err := g.applyFor(because(r.why, since), left, with(control)); err != nil {
		return err
	}
	elsewhere, name, err := g.open(c, "tcp", to)
	if err != nil || name != stays.name {
		return fmt.Errorf("a new connection reaches %q, %w, want %s", name, orNone(err), stays.name)
	}
	if g.has(Ends) && ended(first, g.endTime()) == nil {
		return fmt.Errorf("%v after the removal a connection of a service without a drain time is still open", g.endTime())
	}
	if r.ends && ended(ledConn, g.endTime()) == nil {
		return fmt.Errorf("%v after the removal the connection is still open", g.endTime())
	}
	if !r.ends {
		g.pause(silence)
		if err := g.alive(ledConn); err != nil {
			return fmt.Errorf("the connection was ended: %w", err)
		}
	}
	for what, conn := range map[string]net.Conn{"a direct connection to the same address": direct, "a connection to the other endpoint": elsewhere} {
		if err := g.alive(conn); err != nil {
			return fmt.Errorf("%s was ended: %w", what, err)
		}
	}
	return nil
}

func because(why dataplane.RemovalReason, since time.Time) func(dataplane.Key, dataplane.Endpoint) dataplane.Removal {
	return func(dataplane.Key, dataplane.Endpoint) dataplane.Removal {
		return dataplane.Removal{Reason: why, SuspectedSince: since}
	}
}

func removedFromContainer(g *rig) error {
	in, err := g.instance(g.world.host, "tcp", "gone", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", in)
	svc.DrainTime = 0
	if err := g.apply(svc); err != nil {
		return err
	}
	c := g.at(g.world.container)
	ledConn, _, err := g.open(c, "tcp", svc.Frontends[0].Addr)
	if err != nil {
		return err
	}
	direct, _, err := g.open(c, "tcp", in.at.Foreign())
	if err != nil {
		return err
	}
	if err := g.applyFor(because(dataplane.RemovedLeft, time.Time{}), with(svc)); err != nil {
		return err
	}
	if ended(ledConn, g.endTime()) == nil {
		return fmt.Errorf("%v after the removal the connection is still open", g.endTime())
	}
	if err := g.alive(direct); err != nil {
		return fmt.Errorf("a direct connection to the same address was ended: %w", err)
	}
	return nil
}

func removedUDP(g *rig) error {
	list, err := g.instances(2, "udp", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 53), "udp", list[0])
	svc.DrainTime = 0
	to := svc.Frontends[0].Addr
	if err := g.apply(svc); err != nil {
		return err
	}
	conn, _, err := g.open(g.client(), "udp", to)
	if err != nil {
		return err
	}
	next := list[1].at
	next.ID = 9
	if err := g.applyFor(because(dataplane.RemovedLeft, time.Time{}), withEndpoints(svc, next)); err != nil {
		return err
	}
	if err := g.within(g.endTime(), func() error {
		if name, err := hear(conn, g.options.Answer); err == nil && name == list[0].name {
			return fmt.Errorf("%s still answers, which is removed", name)
		}
		return nil
	}); err != nil {
		return err
	}
	return g.expect(g.client(), "udp", to, list[1].name)
}

func reconnected(g *rig) error {
	list, err := g.instances(2, "udp", false)
	if err != nil {
		return err
	}
	gone, other := list[0], list[1]
	svc := g.service(g.vip(false, 53), "udp", gone)
	svc.DrainTime = 0
	if err := g.apply(svc); err != nil {
		return err
	}
	d, err := g.at(g.world.host).datagrams(false)
	if err != nil {
		return err
	}
	defer d.close()
	if err := unix.Connect(d.fd, d.sockaddr(svc.Frontends[0].Addr)); err != nil {
		return err
	}
	if err := d.disconnect(); err != nil {
		return err
	}
	if err := unix.Connect(d.fd, d.sockaddr(other.at.Addr)); err != nil {
		return err
	}
	watched, _, err := g.open(g.at(g.world.host), "udp", svc.Frontends[0].Addr)
	if err != nil {
		return err
	}
	if err := g.applyFor(because(dataplane.RemovedLeft, time.Time{}), with(svc)); err != nil {
		return err
	}
	if ended(watched, g.endTime()) == nil {
		return fmt.Errorf("%v after the removal a socket that was led there is still open", g.endTime())
	}
	if _, err := unix.Write(d.fd, []byte("?")); err != nil {
		return fmt.Errorf("the other socket: %w", err)
	}
	if name, _, _, err := d.receive(d.answer); err != nil || name != other.name {
		return fmt.Errorf("the other socket hears %q, %w, want %s", name, orNone(err), other.name)
	}
	return nil
}
