package l4

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// rig is what a check works with: the suite, and what ends with the check.
type rig struct {
	*suite
	ctx     context.Context
	notes   []string
	closers []func()
}

// note adds to the evidence.
func (g *rig) note(format string, args ...any) {
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

func (g *rig) later(f func()) { g.closers = append(g.closers, f) }

func (g *rig) release() {
	for _, f := range slices.Backward(g.closers) {
		f()
	}
	g.closers = nil
}

// has reports whether the plane has a feature.
func (g *rig) has(f Feature) bool {
	_, without := g.profile.Without[f]
	return !without && (f != IPv6 || g.world.ipv6)
}

// local reports whether the plane serves clients on the host.
func (g *rig) local() bool { return slices.Contains(g.provider.info.Scopes, dataplane.ScopeLocal) }

// at is a client in a namespace.
func (g *rig) at(s *space) client { return client{space: s, answer: g.options.Answer} }

// endTime is what a plane may take to end connections, or to be well again.
func (g *rig) endTime() time.Duration { return 2 * g.options.Answer }

// client is where checks connect from that do not care: on the host if the plane
// serves that.
func (g *rig) client() client {
	if g.local() {
		return g.at(g.world.host)
	}
	return g.at(g.world.container)
}

// clients are all places that the plane serves.
func (g *rig) clients() []client {
	var out []client
	if g.local() {
		out = append(out, g.at(g.world.host))
	}
	if g.has(Containers) {
		out = append(out, g.at(g.world.container))
	}
	return out
}

// families are the IP versions that the plane serves: false, and true for IPv6.
func (g *rig) families() []bool {
	if g.has(IPv6) {
		return []bool{false, true}
	}
	return []bool{false}
}

// instance starts a server.
func (g *rig) instance(s *space, network, name string, v6 bool) (*instance, error) {
	in, err := g.world.listen(s, network, name, v6)
	if err == nil {
		g.later(in.closes)
	}
	return in, err
}

// instances starts n servers on the host, named i0 and so on.
func (g *rig) instances(n int, network string, v6 bool) ([]*instance, error) {
	out := make([]*instance, n)
	for i := range out {
		var err error
		if out[i], err = g.instance(g.world.host, network, fmt.Sprint("i", i), v6); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// service makes a service with a frontend; endpoint n has id n+1.
func (g *rig) service(at netip.AddrPort, network string, instances ...*instance) *dataplane.Service {
	protocol := dataplane.TCP
	if network == "udp" {
		protocol = dataplane.UDP
	}
	svc := &dataplane.Service{
		Key:       dataplane.Key{Namespace: "traffic", Name: fmt.Sprintf("s%d", g.next())},
		Frontends: []dataplane.Frontend{{Addr: at, Protocol: protocol, Kind: dataplane.FrontendVIP}},
		DrainTime: time.Hour,
	}
	return with(svc, instances...)
}

// with is a service with these endpoints instead; endpoint n has id n+1.
func with(svc *dataplane.Service, instances ...*instance) *dataplane.Service {
	list := make([]dataplane.Endpoint, len(instances))
	for i, in := range instances {
		list[i] = in.at
		list[i].ID = uint64(i + 1)
	}
	return withEndpoints(svc, list...)
}

func withEndpoints(svc *dataplane.Service, list ...dataplane.Endpoint) *dataplane.Service {
	next := *svc
	next.Endpoints = dataplane.NewEndpoints(list...)
	return &next
}

// edited is a service whose endpoints were changed one by one.
func edited(svc *dataplane.Service, edit func(*dataplane.Endpoint)) *dataplane.Service {
	list := svc.Endpoints.Slice()
	for i := range list {
		edit(&list[i])
	}
	return withEndpoints(svc, list...)
}

// apply makes the world just these services, all of which have to be programmed.
func (g *rig) apply(services ...*dataplane.Service) error { return g.applyFor(nil, services...) }

// applyFor says why endpoints are removed.
func (g *rig) applyFor(reason func(dataplane.Key, dataplane.Endpoint) dataplane.Removal, services ...*dataplane.Service) error {
	statuses, err := g.provider.apply(g.ctx, reason, services)
	for _, st := range statuses {
		err = errors.Join(err, fmt.Errorf("%s is %v, %s: %s", st.Service, st.Status, st.Reason, st.Message))
	}
	return err
}

// serve programs a service of n instances on the host at a VIP.
func (g *rig) serve(n int, network string) (*dataplane.Service, []*instance, error) {
	list, err := g.instances(n, network, false)
	if err != nil {
		return nil, nil, err
	}
	port := uint16(80)
	if network == "udp" {
		port = 53
	}
	svc := g.service(g.vip(false, port), network, list...)
	return svc, list, g.apply(svc)
}

// open makes a connection that lasts to the end of the check, and says who answers.
func (g *rig) open(c client, network string, to netip.AddrPort) (net.Conn, string, error) {
	conn, err := c.dial(network, to, c.answer)
	if err != nil {
		return nil, "", err
	}
	g.later(func() { hangUp(conn) })
	name, err := hear(conn, c.answer)
	return conn, name, err
}

// expect asks once, and wants one of these names.
func (g *rig) expect(c client, network string, to netip.AddrPort, names ...string) error {
	got, err := c.ask(network, to)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s from %s: %w, want an answer of %v", network, to, c.space.name, err, names)
	case !slices.Contains(names, got):
		return fmt.Errorf("%s %s from %s: %q answers, want one of %v", network, to, c.space.name, got, names)
	}
	return nil
}

// untouched wants that nobody answers at an address, nor refuses.
func (g *rig) untouched(c client, network string, to netip.AddrPort) error {
	// A packet that was not translated may be remembered, and with it the port. So
	// it is one that no other connect takes.
	c.from = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(10_000+g.next()%20_000))
	if to.Addr().Is6() || c.mapped {
		c.from = netip.AddrPortFrom(netip.IPv6Unspecified(), c.from.Port())
	}
	got, err := c.askFor(network, to, silence)
	if err == nil || errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%s %s from %s: %q answers, %w, want nobody", network, to, c.space.name, got, orNone(err))
	}
	return nil
}

// count asks n times, and says how often each instance answered.
func (g *rig) count(c client, network string, to netip.AddrPort, n int) (map[string]int, error) {
	got := make(map[string]int)
	for i := range n {
		name, err := c.ask(network, to)
		if err != nil {
			return got, fmt.Errorf("connect %d of %d to %s: %w", i+1, n, to, err)
		}
		got[name]++
	}
	return got, nil
}

// within tries until it works, or the time is over, and returns what was wrong last.
func (g *rig) within(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) || g.ctx.Err() != nil {
			return err
		}
		g.pause(5 * time.Millisecond)
	}
}

// pause waits a while, or until the check is given up.
func (g *rig) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.ctx.Done():
	}
}
