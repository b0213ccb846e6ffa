package l4

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// repairTime is what a plane may take to find and mend what others have spoilt.
const repairTime = 10 * time.Second

func lifeChecks() []Check {
	return []Check{
		{
			ID: "life.shutdown", Demand: "Shutdown(keep), the end of the process and a new one fail no connect, before or after the new one is told what it should do.",
			Remedy: "leave what is programmed in the kernel, and take it over", run: func(g *rig) error { return g.lives(g.restart) },
		},
		{
			ID: "life.kill", Demand: "kill -9 of the process and a new one fail no connect, before or after the new one is told what it should do.",
			Remedy: "leave what is programmed in the kernel, and take it over", run: func(g *rig) error { return g.lives(g.crash) },
		},
		{
			ID: "life.changed", Demand: "What changed while the process was gone is so after the first snapshot that the new one is told: services and endpoints that are gone by then are gone.",
			Remedy: "compare a snapshot with what is in the system, not with an empty memory", run: changedMeanwhile,
		},
		{
			ID: "life.cleanup", Demand: "Cleanup by a new process, which knows nothing but the instance id, leaves every address as it was without the plane, and fails no direct connect.",
			Remedy: "find what is yours by the tag that it bears", fresh: true, run: cleansUp,
		},
		{
			ID: "life.limit", Demand: "When there is no more room, the services that do not fit are named, all that was there before works on, and what is freed can be used.",
			Remedy: "check the room before anything is changed, per service", fresh: true, run: limited,
		},
		{
			ID: "life.foreign", Demand: "What others have put where the plane works stays, beside the plane and after its Cleanup.",
			Remedy: "touch only what bears the tag", fresh: true, run: foreign,
		},
		{
			ID: "life.damage", Demand: "What others have spoilt is repaired while unchanged generations come in once a second: each VIP leads to its instance again in 10 s.",
			Remedy: "compare the system with what should be there, by a timer or with each Reconcile", fresh: true, run: repaired,
		},
	}
}

// restart ends the process in good order and starts another.
func (g *rig) restart() error {
	if err := g.provider.stop(g.ctx); err != nil {
		return err
	}
	return g.again()
}

// crash kills the process and starts another.
func (g *rig) crash() error {
	g.provider.kill()
	return g.again()
}

func (g *rig) again() error {
	if err := g.provider.start(g.ctx); err != nil {
		return err
	}
	return g.provider.configure(g.ctx)
}

func (g *rig) lives(next func() error) error {
	svc, _, err := g.serve(3, "tcp")
	if err != nil {
		return err
	}
	var loads []*load
	for _, c := range g.clients() {
		l := g.load(c, svc.Frontends[0].Addr)
		loads = append(loads, l)
		conn, _, err := g.open(c, "tcp", svc.Frontends[0].Addr)
		if err != nil {
			return err
		}
		g.later(func() { hangUp(conn) })
	}
	conn, _, err := g.open(g.client(), "tcp", svc.Frontends[0].Addr)
	if err != nil {
		return err
	}
	for range g.scaled(20, 3) {
		if err := next(); err != nil {
			return err
		}
		for _, l := range loads {
			if err := l.more(g, 20); err != nil {
				return err
			}
		}
		if err := g.apply(svc); err != nil {
			return err
		}
		for _, l := range loads {
			if err := l.more(g, 20); err != nil {
				return err
			}
		}
	}
	for _, l := range loads {
		calls := l.stop()
		g.note("%d connects", len(calls))
		err = errors.Join(err, failures(calls))
	}
	if dead := g.alive(conn); dead != nil {
		err = errors.Join(err, fmt.Errorf("a connection that was open all along: %w", dead))
	}
	return err
}

func changedMeanwhile(g *rig) error {
	list, err := g.instances(3, "tcp", false)
	if err != nil {
		return err
	}
	changes, goes, stays := g.service(g.vip(false, 80), "tcp", list[0]), g.service(g.vip(false, 80), "tcp", list[1]), g.service(g.vip(false, 80), "tcp", list[1])
	if err := g.apply(changes, goes, stays); err != nil {
		return err
	}
	if err := g.crash(); err != nil {
		return err
	}
	g.boots++
	g.provider.session(g.boots)
	comes := g.service(g.vip(false, 80), "tcp", list[1])
	next := list[2].at
	next.ID = 7
	if err := g.apply(withEndpoints(changes, next), stays, comes); err != nil {
		return err
	}
	for _, c := range g.clients() {
		err = errors.Join(err,
			g.expect(c, "tcp", changes.Frontends[0].Addr, "i2"), g.expect(c, "tcp", stays.Frontends[0].Addr, "i1"),
			g.expect(c, "tcp", comes.Frontends[0].Addr, "i1"), g.untouched(c, "tcp", goes.Frontends[0].Addr),
		)
	}
	return err
}

func cleansUp(g *rig) error {
	in, err := g.instance(g.world.remote, "tcp", "far", false)
	if err != nil {
		return err
	}
	svc, empty := g.service(g.vip(false, 80), "tcp", in), g.service(g.vip(false, 80), "tcp")
	if err := g.apply(svc, empty); err != nil {
		return err
	}
	l := g.load(g.client(), in.at.Addr)
	g.provider.kill()
	if err := g.provider.start(g.ctx); err != nil {
		return err
	}
	if err := g.provider.cleanup(g.ctx); err != nil {
		return err
	}
	for _, c := range g.clients() {
		for _, svc := range []*dataplane.Service{svc, empty} {
			if err := g.untouched(c, "tcp", svc.Frontends[0].Addr); err != nil {
				return fmt.Errorf("after Cleanup: %w", err)
			}
		}
	}
	if err := failures(l.stop()); err != nil {
		return fmt.Errorf("directly: %w", err)
	}
	return g.renew(g.ctx, g.config)
}

func limited(g *rig) error {
	limit := g.profile.Limit
	if limit == nil {
		return skipf("the profile names no limit")
	}
	config := limit.Config
	if g.cgroup != nil {
		var err error
		if config, err = merge(config, map[string]any{"cgroup": g.cgroup.dir}); err != nil {
			return err
		}
	}
	if err := g.renew(g.ctx, config); err != nil {
		return err
	}
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	services := make([]*dataplane.Service, limit.Services)
	for i := range services {
		services[i] = g.service(g.vip(false, 80), "tcp", in)
	}
	// In the order of the keys the old ones are somewhere among the new.
	old := services[len(services)-limit.Fit:]
	if err := g.apply(old...); err != nil {
		return fmt.Errorf("%d services, which should fit: %w", limit.Fit, err)
	}
	statuses, err := g.provider.apply(g.ctx, nil, services)
	if err != nil {
		return err
	}
	if len(statuses) == 0 {
		return fmt.Errorf("all of %d services are said to be programmed", limit.Services)
	}
	missing := make(map[dataplane.Key]bool)
	for _, st := range statuses {
		missing[st.Service] = true
		if st.Status != dataplane.StatusRejected || st.Reason == "" || st.Message == "" {
			return fmt.Errorf("%s does not fit, and is %v, %q: %q; want REJECTED with a reason and a message", st.Service, st.Status, st.Reason, st.Message)
		}
	}
	for _, svc := range services {
		at := svc.Frontends[0].Addr
		was := slices.Contains(old, svc)
		switch {
		case was && missing[svc.Key]:
			return fmt.Errorf("%s was there before, and is refused", svc.Key)
		case !missing[svc.Key]:
			if err := g.expect(g.client(), "tcp", at, "in"); err != nil {
				return fmt.Errorf("%s, there before: %v: %w", svc.Key, was, err)
			}
		}
	}
	g.note("%d of %d services did not fit", len(statuses), limit.Services)
	if err := g.apply(services[:limit.Fit]...); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	for _, svc := range services[:limit.Fit] {
		if err := g.expect(g.client(), "tcp", svc.Frontends[0].Addr, "in"); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
	}
	return g.renew(g.ctx, g.config)
}

func foreign(g *rig) error {
	if g.profile.Foreign == nil {
		return skipf("the profile puts nothing foreign there")
	}
	host := g.host()
	var checks []func() error
	put := func() error {
		return g.world.host.do(func() error {
			still, err := g.profile.Foreign(host)
			checks = append(checks, still)
			return err
		})
	}
	there := func(when string) error {
		return g.world.host.do(func() error {
			for _, still := range checks {
				if err := still(); err != nil {
					return fmt.Errorf("%s: %w", when, err)
				}
			}
			return nil
		})
	}
	if err := put(); err != nil {
		return fmt.Errorf("l4: Profile.Foreign: %w", err)
	}
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", in)
	if err := g.apply(svc); err != nil {
		return err
	}
	if err := put(); err != nil {
		return fmt.Errorf("l4: Profile.Foreign, again: %w", err)
	}
	for _, step := range []struct {
		when string
		do   func() error
	}{
		{"beside the plane", func() error { return nil }},
		{"after a change", func() error { return g.apply(svc, g.service(g.vip(false, 80), "tcp", in)) }},
		{"after a restart", g.restart},
		{"after a crash", g.crash},
	} {
		if err := step.do(); err != nil {
			return err
		}
		if err := errors.Join(there(step.when), g.expect(g.client(), "tcp", svc.Frontends[0].Addr, "in")); err != nil {
			return err
		}
	}
	if err := g.provider.cleanup(g.ctx); err != nil {
		return err
	}
	if err := there("after Cleanup"); err != nil {
		return err
	}
	return g.renew(g.ctx, g.config)
}

func (g *rig) host() Host {
	h := Host{InstanceID: g.provider.config.InstanceID}
	if g.cgroup != nil {
		h.Cgroup = g.cgroup.dir
	}
	return h
}

func repaired(g *rig) error {
	if len(g.profile.Damage) == 0 {
		return skipf("the profile does no damage")
	}
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	svc, empty := g.service(g.vip(false, 80), "tcp", in), g.service(g.vip(false, 80), "tcp")
	if err := g.apply(svc, empty); err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(g.profile.Damage)) {
		if err := g.world.host.do(func() error { return g.profile.Damage[what](g.host()) }); err != nil {
			return fmt.Errorf("l4: Profile.Damage %q: %w", what, err)
		}
		start := time.Now()
		if err := g.within(repairTime, func() error {
			if err := g.provider.unchanged(g.ctx); err != nil {
				return err
			}
			if err := g.answers(svc.Frontends[0].Addr, empty.Frontends[0].Addr); err != nil {
				g.pause(time.Second) // the tick of an agent
				return err
			}
			return nil
		}); err != nil {
			return fmt.Errorf("%s: after %v: %w", what, repairTime, err)
		}
		g.note("%s: %v", what, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// answers wants that one address is served and the other refused, for all clients.
func (g *rig) answers(served, refused netip.AddrPort) error {
	for _, c := range g.clients() {
		if _, err := c.askFor("tcp", served, silence); err != nil {
			return fmt.Errorf("%s from %s: %w", served, c.space.name, err)
		}
		if got, err := c.askFor("tcp", refused, silence); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("%s from %s: %q answers, %w, want ECONNREFUSED", refused, c.space.name, got, orNone(err))
		}
	}
	return nil
}
