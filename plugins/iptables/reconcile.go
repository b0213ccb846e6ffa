package iptables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/selftest"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// Reconcile programs next. The delta is found anew: it leads from what this process
// programmed, while the caller's leads from what the caller remembers.
func (p *Provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, told dataplane.Delta) (dataplane.Result, error) {
	release, err := p.take(ctx, "Reconcile")
	if err != nil {
		return dataplane.Result{}, err
	}
	defer release()
	if p.tools.Variant == "" {
		return dataplane.Result{}, fmt.Errorf("%w: iptables: Reconcile", dataplane.ErrNotConfigured)
	}
	if err := p.start(); err != nil {
		return dataplane.Result{}, err
	}
	p.leaving = nil
	p.drop(told)
	r := &round{provider: p, last: p.shown.last, next: p.union(next), statuses: make(map[dataplane.Key]dataplane.ServiceStatus)}
	if r.last == nil {
		r.last = &dataplane.Snapshot{}
	}
	r.delta = dataplane.Diff(r.last, r.next, nil)
	p.show(func(sh *shown) { sh.state = dataplane.State{} })
	if err := r.run(ctx); err != nil {
		return dataplane.Result{}, err
	}
	if next.Completeness.Complete() {
		p.base = nil
	}
	p.leaveOther(ctx)
	p.show(func(sh *shown) {
		sh.last, sh.statuses = r.next, r.statuses
		sh.state = dataplane.State{
			Session: next.Session, Generation: next.Generation, Digest: next.Digest, InstanceID: p.config.InstanceID,
			Complete: next.Completeness.Complete(),
		}
	})
	return dataplane.Result{Statuses: r.sorted(), Operations: r.ops}, nil
}

// leaveOther removes what this instance left in the tables of the other variant, before
// the setting or what others use changed. It is done once, when this one's hold all.
func (p *Provider) leaveOther(ctx context.Context) {
	other, installed := p.all[p.tools.Variant.Other()]
	if p.alone || !installed {
		return
	}
	p.alone = true
	removed := 0
	for _, f := range families(other.HasV6() && !p.opts.NoIPv6) {
		for _, i := range p.cleanTable(ctx, other, f, dataplane.CleanupOptions{InstanceID: p.config.InstanceID}) {
			switch i.Result {
			case dataplane.Removed:
				removed++
			case dataplane.Failed:
				p.alone = false // the next generation tries again
				p.log.Warn("what was left in the tables of the other variant could not be removed", "object", i.Object, "error", i.Message)
			}
		}
	}
	if removed > 0 {
		p.log.Info("what was left in the tables of the other variant is removed", "variant", other.Variant, "objects", removed)
	}
}

// union is next with what a process before left, which an incomplete snapshot takes
// nothing away from.
func (p *Provider) union(next *dataplane.Snapshot) *dataplane.Snapshot {
	if p.base == nil || next.Completeness.Complete() {
		return next
	}
	e := next.Edit()
	taken := make(map[dataplane.Binding]bool)
	for svc := range next.Services() {
		for _, f := range svc.Frontends {
			taken[f.Binding()] = true
		}
	}
	for old := range p.base.Services() {
		svc := next.Service(old.Key)
		if svc == nil {
			if !slices.ContainsFunc(old.Frontends, func(f dataplane.Frontend) bool { return taken[f.Binding()] }) {
				e.Set(old)
			}
			continue
		}
		both := *svc
		both.Endpoints = dataplane.NewEndpoints(append(old.Endpoints.Slice(), svc.Endpoints.Slice()...)...)
		e.Set(&both)
	}
	return e.Done()
}

// drop takes out of what a process before left what the host removes by name.
func (p *Provider) drop(told dataplane.Delta) {
	if p.base == nil {
		return
	}
	e := p.base.Edit()
	for _, c := range told.Changes {
		old := e.Service(c.Key())
		switch {
		case old == nil:
		case c.New == nil:
			e.Delete(c.Key())
		default:
			left := *old
			left.Endpoints = dataplane.NewEndpoints(slices.DeleteFunc(old.Endpoints.Slice(), func(ep dataplane.Endpoint) bool {
				return slices.ContainsFunc(c.Removed, func(r dataplane.Removal) bool { return r.Endpoint.ID == ep.ID })
			})...)
			e.Set(&left)
		}
	}
	p.base = e.Done()
}

// round is one generation under way.
type round struct {
	provider   *Provider
	last, next *dataplane.Snapshot
	delta      dataplane.Delta
	statuses   map[dataplane.Key]dataplane.ServiceStatus
	held       map[dataplane.Key]bool // services that stay as they were
	ops        int
}

func (r *round) run(ctx context.Context) error {
	p := r.provider
	r.assess()
	if err := p.journal.Begin(r.next, r.delta); err != nil {
		p.log.Warn("what is programmed is not remembered: the next process will ask for a snapshot", "error", err)
	}
	n, err := p.routes.add(r.next, p.settings, p.opts)
	r.ops += n
	if err != nil {
		p.log.Warn("not all VIPs have a route", "error", err)
	}
	if err := r.apply(ctx); err != nil {
		return err
	}
	if len(r.held) > 0 {
		r.settle()
	}
	n, err = p.routes.trim()
	r.ops += n
	if err != nil {
		p.log.Warn("routes that nobody needs could not all be removed", "error", err)
	}
	if err := deleteFlows(r.delta); err != nil {
		p.log.Warn("datagrams of old senders may go to old endpoints until they pause", "error", err)
	}
	if err := p.journal.Commit(r.next); err != nil {
		p.log.Warn("what is programmed is not remembered: the next process will ask for a snapshot", "error", err)
	}
	return nil
}

// assess says what of the services cannot be done. Of those that are as they were
// that is known.
func (r *round) assess() {
	p := r.provider
	for svc := range r.next.Services() {
		if problem := rules.Assess(svc, p.opts); problem != nil {
			r.note(svc.Key, problem)
		}
	}
}

func (r *round) note(k dataplane.Key, problem *dataplane.Problem) {
	r.statuses[k] = dataplane.ServiceStatus{Service: k, Status: problem.Status, Reason: problem.Reason, Message: problem.Message}
}

func (r *round) sorted() []dataplane.ServiceStatus {
	keys := slices.SortedFunc(maps.Keys(r.statuses), dataplane.Key.Compare)
	out := make([]dataplane.ServiceStatus, len(keys))
	for i, k := range keys {
		out[i] = r.statuses[k]
	}
	return out
}

// minPortion is how few services a restore is given at least.
const minPortion = 64

// apply brings the tables to next. If the system does not take it, the services at
// fault are found by halves; they stay as they were, the others go on. What took
// longer than a call has time is done in portions by the calls after it.
func (r *round) apply(ctx context.Context) error {
	p := r.provider
	changed := r.changed()
	if p.portion > 0 && len(changed) > p.portion {
		return r.byPortions(ctx, changed)
	}
	err := r.put(ctx)
	switch {
	case err == nil:
		p.portion = 0
		return nil
	case slow(err):
		p.portion = max(minPortion, len(changed)/4)
		return err
	case !refused(err):
		return err
	}
	p.log.Warn("the tables were not taken; looking for the service at fault", "error", err, "services", len(changed))
	r.hold(changed)
	if without := r.put(ctx); without != nil {
		return err // it is none of them
	}
	return r.try(ctx, changed, err)
}

// byPortions changes some services after the others. Those that were changed when the
// time is over stay so.
func (r *round) byPortions(ctx context.Context, changed []dataplane.Key) error {
	p := r.provider
	r.hold(changed)
	for part := range slices.Chunk(changed, p.portion) {
		r.release(part)
		err := r.put(ctx)
		if err == nil {
			continue
		}
		r.hold(part)
		if refused(err) {
			err = r.try(ctx, part, err)
		}
		if err == nil {
			continue
		}
		if slow(err) && len(r.held) == len(changed) {
			p.portion = max(minPortion, p.portion/4) // not even one portion was done
		}
		r.settle()
		p.show(func(sh *shown) { sh.last = r.next })
		return errors.Join(err, deleteFlows(r.delta))
	}
	p.portion = 0
	return nil
}

func (r *round) hold(keys []dataplane.Key) {
	if r.held == nil {
		r.held = make(map[dataplane.Key]bool, len(keys))
	}
	for _, k := range keys {
		r.held[k] = true
	}
}

func (r *round) release(keys []dataplane.Key) {
	for _, k := range keys {
		delete(r.held, k)
	}
}

// settle makes next what the tables hold: the services that were refused as they were.
// So the next generation tries them again.
func (r *round) settle() {
	e := r.next.Edit()
	for k := range r.held {
		if was := r.last.Service(k); was != nil {
			e.Set(was)
		} else {
			e.Delete(k)
		}
	}
	r.next = e.Done()
	r.delta = dataplane.Diff(r.last, r.next, nil)
	p := r.provider
	p.journal.Close() // what it says was begun is not what is applied
	if err := p.journal.Begin(r.next, r.delta); err != nil {
		p.log.Warn("what is programmed is not remembered: the next process will ask for a snapshot", "error", err)
	}
}

// changed are the services that the tables hold as they were, or not at all.
func (r *round) changed() []dataplane.Key {
	keys := make([]dataplane.Key, 0, len(r.delta.Changes))
	for _, c := range r.delta.Changes {
		if c.New != nil {
			keys = append(keys, c.Key())
		}
	}
	return keys
}

// try lets go of services that are held, of which some are at fault as why says.
func (r *round) try(ctx context.Context, keys []dataplane.Key, why error) error {
	if len(keys) == 1 {
		r.note(keys[0], &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonApplyFailed, Message: why.Error()})
		return nil
	}
	for half := range slices.Chunk(keys, (len(keys)+1)/2) {
		r.release(half)
		err := r.put(ctx)
		if err == nil {
			continue
		}
		if !refused(err) || ctx.Err() != nil {
			return err
		}
		r.hold(half)
		if err := r.try(ctx, half, err); err != nil {
			return err
		}
	}
	return nil
}

// put brings the tables of both families to next, but for what is held.
func (r *round) put(ctx context.Context) error {
	p := r.provider
	for _, f := range families(!p.opts.NoIPv6) {
		plan := rules.Build(f, r.services(), p.opts, p.shown.plans[f])
		n, err := p.put(ctx, f, plan)
		r.ops += n
		if err != nil {
			return err
		}
	}
	return nil
}

// services are those of next; one that is held comes as it was, if it was.
func (r *round) services() iter.Seq[*dataplane.Service] {
	if len(r.held) == 0 {
		return r.next.Services()
	}
	return func(yield func(*dataplane.Service) bool) {
		for svc := range r.next.Services() {
			if r.held[svc.Key] {
				if svc = r.last.Service(svc.Key); svc == nil {
					continue
				}
			}
			if !yield(svc) {
				return
			}
		}
	}
}

// start makes sure that there is a listener to dial and a keeper: the first
// generation needs both, and the first after Cleanup.
func (p *Provider) start() error {
	if p.own == nil && p.opts.Mode == rules.All {
		own, err := selftest.Listen(p.opts.Own.Endpoint)
		if err != nil {
			return fmt.Errorf("%w: iptables: %w", dataplane.ErrFailed, err)
		}
		p.own = own
		p.show(func(sh *shown) { sh.health.frontend = p.opts.Own.Frontend })
	}
	p.startKeeper()
	return nil
}
