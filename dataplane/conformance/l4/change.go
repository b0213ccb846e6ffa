package l4

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

func changeChecks() []Check {
	return []Check{
		{
			ID: "change.drain", Demand: "An endpoint that drains gets no new connections, and those that are open live on.",
			Remedy: "choose among Service.Usable for new connections, and touch no open one", run: drains,
		},
		{
			ID: "change.suspects", Demand: "Suspect endpoints get no new connections while at least half are not suspect, else all get them; a suspicion ends no connection.",
			Remedy: "choose among Service.Usable; suspicion is about new connections only", run: suspects,
		},
		{
			ID: "change.scale-to-zero", Demand: "A service that loses its last endpoint refuses, and works again with the next one.",
			Remedy: "an empty service stays captured", run: scaleToZero,
		},
		{
			ID: "change.switch", Demand: "Under steady connects each change of the endpoints fails no connect, and leads to an endpoint of the old or the new set; once Reconcile has returned, of the new one.",
			Remedy: "write the new set beside the old one, and switch in one step", run: switches,
		},
		{
			ID: "change.removed", Demand: "A service that is removed leaves its VIP to nobody, and touches no other.",
			Remedy: "remove the frontend with the service", run: removedService,
		},
		{
			ID: "change.frontends", Demand: "Two services that swap their frontends in one generation have them swapped.",
			Remedy: "apply a generation as the difference of two states, not service by service with the frontends of the other still there", run: swapped,
		},
	}
}

func drains(g *rig) error {
	svc, _, err := g.serve(3, "tcp")
	if err != nil {
		return err
	}
	to := svc.Frontends[0].Addr
	conn, name, err := g.open(g.client(), "tcp", to)
	if err != nil {
		return err
	}
	if err := g.apply(edited(svc, func(e *dataplane.Endpoint) {
		if e.Name == name {
			e.State, e.DrainUntil = dataplane.Draining, time.Now().Add(time.Hour)
		}
	})); err != nil {
		return err
	}
	got, err := g.count(g.client(), "tcp", to, 40)
	if err != nil {
		return err
	}
	if got[name] > 0 || len(got) != 2 {
		return fmt.Errorf("while %s drains, new connections go to %v", name, got)
	}
	if err := g.alive(conn); err != nil {
		return fmt.Errorf("the open connection to %s, which drains: %w", name, err)
	}
	return nil
}

func suspects(g *rig) error {
	svc, list, err := g.serve(4, "tcp")
	if err != nil {
		return err
	}
	to := svc.Frontends[0].Addr
	conn, name, err := g.open(g.client(), "tcp", to)
	if err != nil {
		return err
	}
	order := []string{name} // the one that holds the connection is suspected first
	for _, in := range list {
		if in.name != name {
			order = append(order, in.name)
		}
	}
	for suspect, want := range []int{4, 3, 2, 4, 4} {
		now := edited(svc, func(e *dataplane.Endpoint) {
			if slices.Contains(order[:suspect], e.Name) {
				e.State = dataplane.Suspect
			}
		})
		if err := g.apply(now); err != nil {
			return err
		}
		got, err := g.count(g.client(), "tcp", to, 80) // that one of four is missed has a chance of 4e-10
		if err != nil {
			return err
		}
		for _, n := range order[:suspect] {
			if want < 4 && got[n] > 0 {
				return fmt.Errorf("%d of 4 suspect: new connections go to %v, %s among them is suspect", suspect, got, n)
			}
		}
		if len(got) != want {
			return fmt.Errorf("%d of 4 suspect: new connections go to %v, want %d endpoints", suspect, got, want)
		}
	}
	if err := g.alive(conn); err != nil {
		return fmt.Errorf("the open connection to a suspect: %w", err)
	}
	return nil
}

func scaleToZero(g *rig) error {
	for _, v6 := range g.families() {
		list, err := g.instances(2, "tcp", v6)
		if err != nil {
			return err
		}
		svc := g.service(g.vip(v6, 80), "tcp")
		to := svc.Frontends[0].Addr
		for range 3 {
			for _, in := range list {
				if err := g.apply(with(svc, in)); err != nil {
					return err
				}
				for _, c := range g.clients() {
					if err := g.expect(c, "tcp", to, in.name); err != nil {
						return err
					}
				}
				if err := g.apply(svc); err != nil {
					return err
				}
				for _, c := range g.clients() {
					if err := g.refused(c, to); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// set is which endpoints a service had since when.
type set struct {
	asked, done time.Time
	names       []string
}

func switches(g *rig) error {
	list, err := g.instances(6, "tcp", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp")
	sets := []set{{names: []string{"i0", "i1"}}}
	if err := g.apply(with(svc, list[0], list[1])); err != nil {
		return err
	}
	sets[0].done = time.Now()
	l := g.load(g.client(), svc.Frontends[0].Addr)
	for n := range g.scaled(200, 10) {
		now := []*instance{list[(n+2)%6], list[(n+3)%6]}
		step := set{asked: time.Now(), names: []string{now[0].name, now[1].name}}
		endpoints := make([]dataplane.Endpoint, len(now))
		for i, in := range now {
			endpoints[i] = in.at
			endpoints[i].ID = uint64((n+2+i)%6 + 1)
		}
		if err := g.apply(withEndpoints(svc, endpoints...)); err != nil {
			return err
		}
		step.done = time.Now()
		sets = append(sets, step)
		if err := l.more(g, 5); err != nil {
			return err
		}
	}
	calls := l.stop()
	g.note("%d connects over %d changes", len(calls), len(sets)-1)
	if err := failures(calls); err != nil {
		return err
	}
	return led(calls, sets)
}

// led demands that each call went to a set that was in force while it lasted: from
// when it was asked for to when the next one was done.
func led(calls []call, sets []set) error {
	for _, c := range calls {
		var inForce []string
		for i, s := range sets {
			if !s.asked.After(c.until) && (i+1 == len(sets) || !sets[i+1].done.Before(c.at)) {
				inForce = append(inForce, s.names...)
			}
		}
		if !slices.Contains(inForce, c.name) {
			return fmt.Errorf("a connect went to %s, when the endpoints were %v", c.name, inForce)
		}
	}
	return nil
}

func removedService(g *rig) error {
	list, err := g.instances(2, "tcp", false)
	if err != nil {
		return err
	}
	gone, stays := g.service(g.vip(false, 80), "tcp", list[0]), g.service(g.vip(false, 80), "tcp", list[1])
	if err := g.apply(gone, stays); err != nil {
		return err
	}
	if err := g.apply(stays); err != nil {
		return err
	}
	for _, c := range g.clients() {
		if err := g.expect(c, "tcp", stays.Frontends[0].Addr, "i1"); err != nil {
			return err
		}
		if err := g.untouched(c, "tcp", gone.Frontends[0].Addr); err != nil {
			return err
		}
	}
	return nil
}

func swapped(g *rig) error {
	list, err := g.instances(2, "tcp", false)
	if err != nil {
		return err
	}
	a, b := g.service(g.vip(false, 80), "tcp", list[0]), g.service(g.vip(false, 80), "tcp", list[1])
	for range 3 {
		if err := g.apply(a, b); err != nil {
			return err
		}
		for _, c := range g.clients() {
			if err := g.expect(c, "tcp", a.Frontends[0].Addr, "i0"); err != nil {
				return err
			}
			if err := g.expect(c, "tcp", b.Frontends[0].Addr, "i1"); err != nil {
				return err
			}
		}
		next, other := *a, *b
		next.Frontends, other.Frontends = b.Frontends, a.Frontends
		a, b = &next, &other
	}
	return nil
}
