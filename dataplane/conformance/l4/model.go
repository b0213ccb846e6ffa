package l4

import (
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/dataplane"
)

func modelChecks() []Check {
	return []Check{{
		ID: "model.random", Demand: "After each of many random steps, among them crashes and restarts, every service leads to its usable endpoints, refuses if it has none, and nothing is left of those that are gone; the gauges say the same.",
		Remedy: "run it again with the seed, and compare what is programmed with what was said", run: random,
	}}
}

// model is what should be.
type model struct {
	g         *rig
	r         *rand.Rand
	instances []*instance
	services  []*dataplane.Service // nil: not there
	frontends []dataplane.Frontend
	ids       uint64
}

func random(g *rig) error {
	g.note("seed %d", g.options.Seed)
	list, err := g.instances(6, "tcp", false)
	if err != nil {
		return err
	}
	m := &model{g: g, r: rand.New(rand.NewPCG(g.options.Seed, 1)), instances: list, services: make([]*dataplane.Service, 6)}
	for range m.services {
		m.frontends = append(m.frontends, g.service(g.vip(false, 80), "tcp").Frontends[0])
	}
	steps := g.scaled(500, 10)
	g.note("%d steps", steps)
	for n := range steps {
		what, err := m.step()
		if err == nil {
			err = m.compare()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", n, what, err)
		}
	}
	return nil
}

// step changes one to three services, or the process.
func (m *model) step() (what string, err error) {
	switch m.r.IntN(25) {
	case 0:
		what = "kill -9, "
		err = m.g.crash()
	case 1:
		what = "restart, "
		err = m.g.restart()
	}
	if err != nil {
		return what, err
	}
	for range 1 + m.r.IntN(3) {
		i := m.r.IntN(len(m.services))
		what += m.change(i) + " "
	}
	var now []*dataplane.Service
	for _, svc := range m.services {
		if svc != nil {
			now = append(now, svc)
		}
	}
	return what, m.g.apply(now...)
}

func (m *model) change(i int) string {
	svc := m.services[i]
	if svc == nil {
		m.services[i] = m.fill(&dataplane.Service{
			Key: dataplane.Key{Namespace: "traffic", Name: fmt.Sprint("model", i)}, Frontends: m.frontends[i : i+1 : i+1],
		})
		return fmt.Sprintf("add %d", i)
	}
	switch m.r.IntN(5) {
	case 0:
		m.services[i] = nil
		return fmt.Sprintf("remove %d", i)
	case 1:
		m.services[i] = withEndpoints(svc)
		return fmt.Sprintf("empty %d", i)
	case 2:
		m.services[i] = edited(svc, func(e *dataplane.Endpoint) {
			e.State = dataplane.EndpointState(m.r.IntN(3))
		})
		return fmt.Sprintf("states of %d", i)
	case 3:
		if m.g.has(Weights) {
			m.services[i] = edited(svc, func(e *dataplane.Endpoint) { e.Weight = uint16(m.r.IntN(4)) })
			return fmt.Sprintf("weights of %d", i)
		}
	}
	m.services[i] = m.fill(svc)
	return fmt.Sprintf("endpoints of %d", i)
}

// fill gives a service other endpoints, some of them as before.
func (m *model) fill(svc *dataplane.Service) *dataplane.Service {
	var list []dataplane.Endpoint
	for e := range svc.Endpoints.All() {
		if m.r.IntN(2) == 0 {
			list = append(list, e)
		}
	}
	for range m.r.IntN(4) {
		m.ids++
		e := m.instances[m.r.IntN(len(m.instances))].at
		e.ID = m.ids
		list = append(list, e)
	}
	return withEndpoints(svc, list...)
}

// compare asks each address once, and the gauges.
func (m *model) compare() error {
	g := m.g
	want := make(map[dataplane.Key]*dataplane.Service)
	var gone []int
	for i, svc := range m.services {
		at := m.frontends[i].Addr
		if svc == nil {
			gone = append(gone, i)
			continue
		}
		want[svc.Key] = svc
		var names []string
		for _, e := range svc.Usable() {
			names = append(names, e.Name)
		}
		if len(names) == 0 {
			if err := g.refused(g.client(), at); err != nil {
				return fmt.Errorf("service %d of %v: %w", i, svc.Endpoints, err)
			}
		} else if err := g.expect(g.client(), "tcp", at, names...); err != nil {
			return fmt.Errorf("service %d of %v: %w", i, svc.Endpoints, err)
		}
	}
	if len(gone) > 0 && m.r.IntN(5) == 0 { // silence takes long
		i := gone[m.r.IntN(len(gone))]
		if err := g.untouched(g.client(), "tcp", m.frontends[i].Addr); err != nil {
			return fmt.Errorf("service %d is gone: %w", i, err)
		}
	}
	return g.measured(want)
}

// measured compares the gauges, if there are any. Endpoints that take no new
// connections may be counted or not.
func (g *rig) measured(want map[dataplane.Key]*dataplane.Service) error {
	got, err := g.provider.gauges(g.ctx)
	if err != nil || got == nil {
		return err
	}
	for k, svc := range want {
		n, there := got[k]
		if least, most := len(svc.Usable()), svc.Endpoints.Len(); !there || n < least || n > most {
			return fmt.Errorf("the gauges say that %s has %d endpoints, want %d to %d", k, n, least, most)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("the gauges say that there are %d services, want %d", len(got), len(want))
	}
	return nil
}
