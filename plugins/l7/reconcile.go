package l7

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/proxy"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// ReasonDuplicateHost is the reason of a service that asks for a host or a
// route of another one; what else it has leads to it.
const ReasonDuplicateHost = "duplicate-host"

// Reconcile makes the proxy what next says. The next requests see all of it at
// once; those under way go on, unless their endpoint is dead.
func (p *Provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.configured:
		return dataplane.Result{}, fmt.Errorf("%w: l7: Reconcile", dataplane.ErrNotConfigured)
	case ctx.Err() != nil:
		return dataplane.Result{}, fmt.Errorf("l7: Reconcile: %w", ctx.Err())
	}
	s := step{p: p, edit: p.table.Edit()}
	if p.known {
		for _, c := range delta.Changes {
			s.change(c)
		}
	} else {
		s.all(next, delta)
	}
	s.commit()
	p.fed = true
	p.known = p.known || next.Completeness.Complete()
	p.proxy.SetPartial(!p.known)
	return dataplane.Result{Operations: s.operations, Statuses: p.statuses()}, nil
}

// statuses lists the services that are not simply programmed.
func (p *Provider) statuses() []dataplane.ServiceStatus {
	out := slices.Collect(maps.Values(p.refused))
	for k, st := range p.partial {
		if _, refused := p.refused[k]; !refused {
			out = append(out, st)
		}
	}
	slices.SortFunc(out, func(a, b dataplane.ServiceStatus) int { return a.Service.Compare(b.Service) })
	return out
}

// step is the way from one state of the proxy to the next.
type step struct {
	p          *Provider
	edit       *route.Editor[*proxy.Target]
	touched    []dataplane.Key // whose status may be another one
	operations int
}

// all compares everything that is there with next. What an incomplete snapshot
// lacks stays, unless the delta says that it is gone.
func (s *step) all(next *dataplane.Snapshot, delta dataplane.Delta) {
	told := make(map[dataplane.Key]dataplane.Change, len(delta.Changes))
	for _, c := range delta.Changes {
		told[c.Key()] = c
	}
	for svc := range next.Services() {
		was := s.p.services[svc.Key]
		c, changed := dataplane.Compare(was, svc, nil)
		if t, ok := told[svc.Key]; ok && t.Old == was {
			c = t // it knows why endpoints are gone
		}
		_, refused := s.p.refused[svc.Key]
		if changed || refused {
			s.change(c)
		}
	}
	for k, was := range s.p.services {
		_, gone := told[k]
		if next.Service(k) == nil && (gone || next.Completeness.Complete()) {
			c, _ := dataplane.Compare(was, nil, nil)
			if gone {
				c.Removed = told[k].Removed
			}
			s.change(c)
		}
	}
	for k := range s.p.refused {
		if next.Service(k) == nil {
			delete(s.p.refused, k)
		}
	}
}

func (s *step) route(svc *dataplane.Service) route.Service[*proxy.Target] {
	return route.Service[*proxy.Target]{Key: svc.Key, Since: svc.Since, Hosts: svc.Hosts, Routes: svc.Routes, Target: s.p.proxy.Target(svc.Key)}
}

// change makes one service what the change says, or leaves it and notes why.
func (s *step) change(c dataplane.Change) {
	k := c.Key()
	s.touched = append(s.touched, k)
	delete(s.p.refused, k)
	was := s.p.services[k]
	if c.New == nil {
		if was != nil {
			s.edit.Delete(k)
			s.p.proxy.Remove(k, c.Removed)
			delete(s.p.services, k)
			s.operations++
		}
		return
	}
	if was == nil || c.Definition() {
		if err := s.edit.Set(s.route(c.New)); err != nil {
			if was == nil {
				s.p.proxy.Remove(k, nil)
			}
			s.p.refused[k] = dataplane.ServiceStatus{
				Service: k, Status: dataplane.StatusRejected, Reason: dataplane.ReasonBadValue, Message: err.Error(),
			}
			return
		}
	}
	s.p.proxy.Update(c.New, c.Removed)
	s.p.services[k] = c.New
	s.operations++
}

// commit puts the table into force, and finds out who has less than it asked
// for.
func (s *step) commit() {
	if len(s.touched) == 0 {
		return
	}
	table, moved := s.edit.Done()
	s.p.table = table
	s.p.proxy.Swap(table)
	for _, k := range append(s.touched, moved...) {
		delete(s.p.partial, k)
		if svc := s.p.services[k]; svc != nil {
			if st, ok := less(svc, table.Conflicts(k)); ok {
				s.p.partial[k] = st
			}
		}
	}
}

// less says what a service does not have of what it asked for.
func less(svc *dataplane.Service, conflicts []route.Conflict) (dataplane.ServiceStatus, bool) {
	st := dataplane.ServiceStatus{Service: svc.Key, Status: dataplane.StatusPartial}
	if len(conflicts) > 0 {
		var parts []string
		for _, c := range conflicts[:min(len(conflicts), 5)] {
			parts = append(parts, describe(c))
		}
		st.Reason = ReasonDuplicateHost
		st.Message = strings.Join(parts, "; ")
		if more := len(conflicts) - 5; more > 0 {
			st.Message += fmt.Sprintf("; and %d more", more)
		}
		return st, true
	}
	if svc.Affinity.ByClient && svc.Balance != dataplane.BalanceHash {
		st.Reason = dataplane.ReasonUnsupported
		st.Message = "clients are not kept at one endpoint: set balance to hash, which does so while the endpoints stay"
		return st, true
	}
	return st, false
}

// describe prints a conflict for people.
func describe(c route.Conflict) string {
	host := c.Host
	if host == route.AnyHost {
		host = "any host"
	}
	return fmt.Sprintf("%s%s leads to %s: give one of both another host or route", host, c.Prefix, c.Winner)
}

// rename makes the table anew for another zone: it changes the names of all
// services. The caller holds mu.
func (p *Provider) rename() {
	p.zone = p.settings.Zone
	s := step{p: p, edit: route.New[*proxy.Target](p.zone).Edit()}
	for k, svc := range p.services {
		if err := s.edit.Set(s.route(svc)); err != nil {
			p.log.Error("a service has no routes in the new zone", "service", k.String(), "zone", p.zone, "error", err)
		}
		s.touched = append(s.touched, k)
	}
	s.commit()
}

// forget removes all services. The caller holds mu.
func (p *Provider) forget() {
	s := step{p: p, edit: p.table.Edit()}
	for _, k := range slices.Collect(maps.Keys(p.services)) {
		c, _ := dataplane.Compare(p.services[k], nil, nil)
		s.change(c)
	}
	s.commit()
	clear(p.refused)
	p.known, p.fed = false, false
	p.proxy.SetPartial(true)
}
