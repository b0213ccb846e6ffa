package plane

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/host"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// Reconcile programs next: by the delta if it is known what is in the kernel, else
// by comparing all.
func (p *Provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	if err := ctx.Err(); err != nil {
		return dataplane.Result{}, fmt.Errorf("nftables: Reconcile: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables == nil {
		return dataplane.Result{}, fmt.Errorf("%w: nftables: Reconcile", dataplane.ErrNotConfigured)
	}
	r := &round{
		provider: p, next: next,
		mark:  table.Mark{Instance: p.config.InstanceID, State: stateOf(next)},
		plans: make(map[dataplane.Key]*compiled), stood: make(map[dataplane.Key][]plan.Place), allowed: make(host.Allowed),
	}
	ops, err := r.run(ctx, delta)
	defer p.publish()
	if err != nil {
		p.known, p.mark.State = false, dataplane.State{}
		return dataplane.Result{}, fmt.Errorf("%w: nftables: %w", dataplane.ErrFailed, err)
	}
	p.after(r)
	return dataplane.Result{Statuses: p.sortedStatuses(), Operations: ops}, nil
}

func stateOf(s *dataplane.Snapshot) dataplane.State {
	return dataplane.State{Session: s.Session, Generation: s.Generation, Digest: s.Digest, Complete: s.Completeness.Complete()}
}

func (p *Provider) sortedStatuses() []dataplane.ServiceStatus {
	keys := slices.SortedFunc(maps.Keys(p.statuses), dataplane.Key.Compare)
	out := make([]dataplane.ServiceStatus, len(keys))
	for i, k := range keys {
		out[i] = p.statuses[k]
	}
	return out
}

// round is one generation under way.
type round struct {
	provider *Provider
	next     *dataplane.Snapshot
	mark     table.Mark
	plans    map[dataplane.Key]*compiled // of services that are touched; nil: it goes
	stood    map[dataplane.Key][]plan.Place
	allowed  host.Allowed // frontends whose flows are looked through
	moved    bool         // an address came or went
}

// compiled is a service on its way.
type compiled struct {
	svc  *dataplane.Service
	plan plan.Plan
}

// keeps reports whether the service stays as it was.
func (c *compiled) keeps() bool {
	return c != nil && c.plan.Problem != nil && c.plan.Problem.Status != dataplane.StatusPartial
}

func (r *round) run(ctx context.Context, delta dataplane.Delta) (int, error) {
	p := r.provider
	before, _ := p.tables.Generation()
	n, err := r.apply(ctx, delta)
	p.rules = 0
	if after, told := p.tables.Generation(); err == nil && told == nil && (after == before || after == before+1) {
		p.rules = after
	}
	return n, err
}

func (r *round) apply(ctx context.Context, delta dataplane.Delta) (int, error) {
	p := r.provider
	if p.known && p.tables.Made() {
		for _, c := range delta.Changes {
			r.compile(c.Key(), c.New)
			r.stood[c.Key()] = p.standing(c.Key(), c.Old)
		}
		return r.byDelta(ctx)
	}
	for svc := range r.next.Services() {
		r.compile(svc.Key, svc)
	}
	return r.byContent(ctx, goneBy(delta))
}

// gone is what a delta removes by name: services, and endpoints of others.
type gone struct {
	services  map[dataplane.Key]bool
	endpoints map[dataplane.Key]map[uint64]bool
}

func goneBy(delta dataplane.Delta) gone {
	g := gone{make(map[dataplane.Key]bool), make(map[dataplane.Key]map[uint64]bool)}
	for _, c := range delta.Changes {
		g.services[c.Key()] = c.New == nil
		for _, e := range c.Removed {
			if g.endpoints[c.Key()] == nil {
				g.endpoints[c.Key()] = make(map[uint64]bool)
			}
			g.endpoints[c.Key()][e.Endpoint.ID] = true
		}
	}
	return g
}

func (r *round) compile(k dataplane.Key, svc *dataplane.Service) {
	if svc == nil {
		r.plans[k] = nil
		return
	}
	c := &compiled{svc: svc, plan: plan.Compile(svc, r.provider.env)}
	if isOwn(k) {
		c.plan = plan.Plan{Problem: &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonBadValue, Message: "the namespace " + ownNamespace + " is the provider's own"}}
	}
	r.plans[k] = c
}

// standing is where a service is in the kernel: at the frontends that it had, or where
// it was kept.
func (p *Provider) standing(k dataplane.Key, was *dataplane.Service) []plan.Place {
	if kept, is := p.kept[k]; is || was == nil {
		return kept
	}
	var all []plan.Place
	for _, f := range was.Frontends {
		for _, side := range []plan.Side{plan.Local, plan.Foreign} {
			at := plan.Place{Binding: f.Binding(), Side: side}
			if e := p.entries[at]; e != nil && e.Service == k {
				all = append(all, at)
			}
		}
	}
	return all
}

// byDelta changes what the touched services have. An address may go from one to
// another, so all that they had is taken away first, by place.
func (r *round) byDelta(ctx context.Context) (int, error) {
	p := r.provider
	becomes := make(map[plan.Place]*plan.Entry)
	u := table.Update{Was: p.mark, Is: r.mark}
	for k, c := range r.plans {
		if c.keeps() {
			continue
		}
		for _, at := range r.stood[k] {
			if e := p.entries[at]; e != nil && e.Service == k { // another may have come to where it was kept
				becomes[at] = nil
			}
		}
		was, is := -1, -1
		if n, there := p.counts[k]; there {
			was = n
		}
		if c != nil {
			is = c.svc.Endpoints.Len()
		}
		if was != is {
			u.Services = append(u.Services, table.ServiceChange{Key: k, Old: was, New: is})
		}
	}
	for _, c := range r.plans {
		if c != nil && !c.keeps() {
			maps.Copy(becomes, c.plan.Entries)
		}
	}
	for at, e := range becomes {
		if !p.entries[at].Equal(e) {
			u.Changes = append(u.Changes, table.Change{At: at, Old: p.entries[at], New: e})
		}
	}
	n, err := p.tables.Apply(ctx, u)
	if err != nil {
		return n, err
	}
	r.changed(u.Changes)
	return n, nil
}

// byContent compares all with what is in the kernel. What an incomplete snapshot
// lacks stays: a process before may have been told more.
func (r *round) byContent(ctx context.Context, by gone) (int, error) {
	p := r.provider
	found, err := p.tables.Load()
	if err != nil {
		return 0, err
	}
	had, counted := map[plan.Place]*plan.Entry{}, map[dataplane.Key]int{}
	if found != nil {
		had, counted = found.Entries, found.Services
	}
	complete := r.next.Completeness.Complete()
	stays := func(k dataplane.Key) bool {
		if c, touched := r.plans[k]; touched {
			return c.keeps()
		}
		return !complete && !by.services[k]
	}
	entries, counts := make(map[plan.Place]*plan.Entry), make(map[dataplane.Key]int)
	for at, e := range had {
		if stays(e.Service) {
			entries[at] = e
		}
	}
	for k, n := range counted {
		if stays(k) {
			counts[k] = n
		}
	}
	for k, c := range r.plans {
		if c == nil || c.keeps() {
			continue
		}
		counts[k] = c.svc.Endpoints.Len()
		said := func(id uint64) bool {
			_, is := c.svc.Endpoints.Get(id)
			return is || by.endpoints[k][id]
		}
		beside := make(map[uint64]bool)
		for at, e := range c.plan.Entries {
			if !complete {
				e = e.Merge(had[at], said)
			}
			for _, ep := range e.Endpoints {
				if !said(ep.ID) {
					beside[ep.ID] = true
				}
			}
			entries[at] = e
		}
		counts[k] += len(beside)
	}
	if at, e := p.own.entry(); e != nil {
		entries[at] = e
	}
	n, err := p.tables.Sync(ctx, found, entries, counts, r.mark)
	if err != nil {
		return n, err
	}
	p.entries, p.counts = had, counted
	var changes []table.Change
	for at, e := range entries {
		if !had[at].Equal(e) {
			changes = append(changes, table.Change{At: at, Old: had[at], New: e})
		}
	}
	for at, e := range had {
		if entries[at] == nil {
			changes = append(changes, table.Change{At: at, Old: e})
		}
	}
	r.changed(changes)
	r.moved = true // routes may be missing
	p.entries, p.counts = entries, counts
	clear(p.kept)
	clear(p.statuses)
	for at, e := range entries {
		if r.plans[e.Service].keeps() {
			r.stood[e.Service] = append(r.stood[e.Service], at)
		}
	}
	p.known = complete || found == nil
	return n, nil
}

// changed notes what became of places, and which flows to look through.
func (r *round) changed(changes []table.Change) {
	p := r.provider
	for _, c := range changes {
		r.moved = r.moved || c.Old == nil || c.New == nil
		if c.New == nil {
			delete(p.entries, c.At)
		} else {
			p.entries[c.At] = c.New
		}
		if c.At.Protocol == dataplane.UDP && reroutes(c.Old, c.New) {
			r.allowed[c.At.Binding] = nil
		}
	}
}

// reroutes reports whether flows may go where none should any more: to an endpoint
// that is gone, or to none where there is one now.
func reroutes(was, is *plan.Entry) bool {
	if was == nil || is == nil || len(was.Endpoints) == 0 || len(is.Endpoints) == 0 {
		return true
	}
	for _, e := range was.Endpoints {
		if !slices.Contains(is.Endpoints, e) {
			return true
		}
	}
	return false
}

// after brings what is beside the tables up to date. Nothing of it keeps a service
// from being programmed: what fails shows in Health.
func (p *Provider) after(r *round) {
	p.mark = r.mark
	for k, c := range r.plans {
		switch {
		case c == nil:
			delete(p.kept, k)
			delete(p.counts, k)
			delete(p.statuses, k)
			continue
		case c.plan.Problem != nil:
			p.statuses[k] = dataplane.ServiceStatus{Service: k, Status: c.plan.Problem.Status, Reason: c.plan.Problem.Reason, Message: c.plan.Problem.Message}
		default:
			delete(p.statuses, k)
		}
		if c.keeps() {
			p.kept[k] = r.stood[k]
			continue
		}
		delete(p.kept, k)
		if p.known {
			p.counts[k] = c.svc.Endpoints.Len()
		}
	}
	p.trouble, p.broken = "", ""
	if r.moved || p.routesFailed {
		if _, err := p.setRoutes(); err != nil {
			p.trouble = "no routes to service addresses: " + err.Error()
			p.log.Warn("services may not be reachable from this host", "error", err)
		}
	}
	if err := r.flush(); err != nil {
		p.trouble = "datagrams may go on to endpoints that are gone: " + err.Error()
		p.log.Warn("flows of datagrams could not be forgotten", "error", err)
	}
}

// setRoutes makes sure that this host has a route to each frontend, and says how many
// it lacked or had too many.
func (p *Provider) setRoutes() (int, error) {
	want := make(map[netip.Addr]bool)
	if !p.env.Forwarded {
		for at := range p.entries {
			if !at.Addr.Addr().IsLoopback() {
				want[at.Addr.Addr()] = true
			}
		}
	}
	n, err := p.routes.Set(want)
	p.routesFailed = err != nil
	return n, err
}

// flush forgets flows of datagrams that do not go to an endpoint of their service.
// An endpoint that only drains keeps its flows.
func (r *round) flush() error {
	p := r.provider
	if len(r.allowed) == 0 {
		return nil
	}
	for b := range r.allowed {
		ends := make(map[netip.AddrPort]bool)
		for _, side := range []plan.Side{plan.Local, plan.Foreign} {
			e := p.entries[plan.Place{Binding: b, Side: side}]
			if e == nil {
				continue
			}
			for _, ep := range e.Endpoints {
				ends[ep.Addr] = true
			}
			if svc := r.next.Service(e.Service); svc != nil {
				for ep := range svc.Endpoints.All() {
					ends[ep.Addr], ends[ep.Foreign()] = true, true
				}
			}
		}
		r.allowed[b] = ends
	}
	start := time.Now()
	n, err := host.FlushUDP(r.allowed)
	if n > 0 {
		p.log.Info("forgot flows of datagrams", "flows", n, "frontends", len(r.allowed), "took", time.Since(start))
	}
	return err
}
