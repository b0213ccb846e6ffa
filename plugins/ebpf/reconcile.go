package ebpf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// Reconcile programs next: by the delta if the kernel is known to hold what the
// last snapshot said, else by comparing all.
func (p *Provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	if err := ctx.Err(); err != nil {
		return dataplane.Result{}, fmt.Errorf("ebpf: Reconcile: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(next); err != nil {
		return dataplane.Result{}, err
	}
	p.data.Maps().Unmark()
	p.state = dataplane.State{}
	r := &round{provider: p, next: next, removed: make(map[dataplane.Key][]dataplane.Removal)}
	for _, c := range delta.Changes {
		r.removed[c.Key()] = c.Removed
	}
	if p.known {
		r.byDelta(delta)
	} else {
		r.byContent()
	}
	r.finish()
	if !p.data.Attached() && next.Completeness.Complete() {
		err := p.data.Check() // what the hooks are about to be led to
		if err == nil {
			err = p.data.Attach()
		}
		if err != nil {
			return dataplane.Result{}, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
		}
		p.path.Store(&testDial{service: p.own, inside: p.place.inside, cgroup: p.place.cgroup})
	}
	p.last = next
	p.state = dataplane.State{
		Session: next.Session, Generation: next.Generation, Digest: next.Digest, InstanceID: p.config.InstanceID,
		Complete: next.Completeness.Complete(),
	}
	p.data.Maps().Mark(p.state)
	if r.ops > 0 || len(r.removed) > 0 {
		p.keeper.wake() // connections may have to end
	}
	return dataplane.Result{Statuses: p.sortedStatuses(), Operations: r.ops}, nil
}

// ready makes sure that there is a data path: the first generation makes it, and
// the first after Cleanup.
func (p *Provider) ready(next *dataplane.Snapshot) error {
	if p.data != nil {
		return nil
	}
	if p.config.InstanceID == "" {
		return fmt.Errorf("%w: ebpf: Reconcile", dataplane.ErrNotConfigured)
	}
	if err := p.begin(p.config.InstanceID, p.settings.firstFor(next), p.place); err != nil {
		return fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
	}
	p.startKeeper()
	return nil
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
	removed  map[dataplane.Key][]dataplane.Removal
	crowded  []*dataplane.Service // that did not fit

	programmed int // services
	ops        int
}

// many is from how many changes on it is worth to look first how much they take.
const many = 64

func (r *round) byDelta(delta dataplane.Delta) {
	p := r.provider
	if len(delta.Changes) >= many {
		var need needs
		for _, c := range delta.Changes {
			need.add(c.New)
		}
		r.makeRoom(need)
	}
	changed := make(map[dataplane.Key]bool, len(delta.Changes))
	for _, c := range delta.Changes {
		changed[c.Key()] = true
		r.put(c.Key(), c.New)
	}
	// What was refused may fit now.
	for _, st := range p.sortedStatuses() {
		if svc := r.next.Service(st.Service); svc != nil && !changed[st.Service] && st.Status == dataplane.StatusRejected {
			r.put(st.Service, svc)
		}
	}
}

// byContent compares all. What an incomplete snapshot lacks stays: a process before
// may have been told more.
func (r *round) byContent() {
	p := r.provider
	var need needs
	for svc := range r.next.Services() {
		if !p.data.Table().Has(svc.Key) {
			need.add(svc)
		}
	}
	r.makeRoom(need)
	for svc := range r.next.Services() {
		r.put(svc.Key, svc)
	}
	for k := range r.removed {
		if r.next.Service(k) == nil {
			r.put(k, nil) // by name
		}
	}
	for k := range p.statuses {
		if r.next.Service(k) == nil {
			delete(p.statuses, k)
		}
	}
	if !r.next.Completeness.Complete() {
		return
	}
	// All that was programmed now is in next. If nothing else is in the maps there
	// is nothing to look for.
	if hostServices(p.data.Table()) > r.programmed {
		for _, k := range p.data.Table().Keys() {
			if r.next.Service(k) == nil && !isOwn(k) {
				r.put(k, nil)
			}
		}
	}
	p.known = true
}

// put programs one service; nil removes it.
func (r *round) put(k dataplane.Key, svc *dataplane.Service) {
	p := r.provider
	if svc == nil {
		delete(p.statuses, k)
		r.done(k, nil, p.data.Table().Remove(k))
		return
	}
	plan, problem := layout.Compile(svc)
	if isOwn(k) {
		problem = &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonBadValue, Message: "the namespace " + ownNamespace + " is the provider's own"}
	}
	if problem != nil && problem.Status != dataplane.StatusPartial {
		p.refuse(k, problem)
		return
	}
	ids := endpointIDs(svc)
	if !p.known && !r.next.Completeness.Complete() {
		ids = p.data.Table().Keep(k, &plan, ids)
	}
	c, err := p.data.Table().Set(k, plan, ids)
	if err != nil {
		p.refuse(k, &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonApplyFailed, Message: err.Error()})
		if errors.Is(err, layout.ErrFull) {
			r.crowded = append(r.crowded, svc)
		}
		return
	}
	if problem != nil {
		p.refuse(k, problem)
	} else {
		delete(p.statuses, k)
	}
	r.programmed++
	r.done(k, svc, c)
}

// refuse notes how a service fared that is not simply programmed.
func (p *Provider) refuse(k dataplane.Key, why *dataplane.Problem) {
	p.statuses[k] = dataplane.ServiceStatus{Service: k, Status: why.Status, Reason: why.Reason, Message: why.Message}
}

// done counts a change, and dooms connections to endpoints that are gone.
func (r *round) done(k dataplane.Key, svc *dataplane.Service, c layout.Change) {
	r.ops += c.Operations
	if c.ID != 0 {
		r.provider.ends.removed(k, c.ID, drainTime(svc, r.provider.last, k), r.removed[k], c.Vanished, now())
	}
}

// drainTime is what connections to a removed endpoint have left; that of a removed
// service is what it last said.
func drainTime(svc *dataplane.Service, last *dataplane.Snapshot, k dataplane.Key) time.Duration {
	if svc == nil && last != nil {
		svc = last.Service(k)
	}
	if svc == nil {
		return 0
	}
	return svc.DrainTime
}

func endpointIDs(svc *dataplane.Service) []uint64 {
	ids := make([]uint64, 0, svc.Endpoints.Len())
	for e := range svc.Endpoints.All() {
		ids = append(ids, e.ID)
	}
	return ids
}

// finish ends the generation, and makes the maps larger for what did not fit.
func (r *round) finish() {
	p := r.provider
	r.ops += p.data.Table().Finish()
	for try := range 24 { // first in the room that others left, then in more and more
		crowded := r.crowded
		if len(crowded) == 0 || try > 0 && !r.grow(p.settings.larger(p.data.Table())) {
			break
		}
		r.crowded = nil
		for _, svc := range crowded {
			r.put(svc.Key, svc)
		}
		r.ops += p.data.Table().Finish()
	}
	p.full = len(r.crowded) > 0
	switch {
	case p.full:
		p.setTrouble(fmt.Sprintf("%d services do not fit, the first is %s: raise max_frontends or max_slots", len(r.crowded), r.crowded[0].Key))
	default:
		p.setTrouble("")
	}
}

// makeRoom grows the maps once for many changes.
func (r *round) makeRoom(need needs) {
	p := r.provider
	t := p.data.Table()
	if size := p.settings.clip(need.size(t)); size != t.Size() {
		r.grow(size)
	}
}

func (r *round) grow(size layout.Size) bool {
	p := r.provider
	now := p.data.Table().Size()
	if size = size.AtLeast(now); size == now {
		return false
	}
	if err := p.data.Grow(size); err != nil {
		p.log.Error("the maps cannot be made larger", "error", err)
		return false
	}
	r.ops++
	return true
}
