package transfer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// Commit ends the changes. It returns the snapshot to give to the provider,
// what is different in it, and the services that were kept from it. The
// provider's work done, Accept makes it the applied generation; without Accept
// nothing happened.
func (g *Generation) Commit() (next *dataplane.Snapshot, delta dataplane.Delta, refused []dataplane.ServiceStatus, err error) {
	if g.same || g.final != nil {
		return nil, delta, nil, fmt.Errorf("%w: nothing to commit in generation %d, which is applied or committed already", dataplane.ErrInvalid, g.applied.Generation)
	}
	a := g.a
	g.settle()
	if g.final.Len() == 0 && g.kept == nil && (a.given.Len() > 0 || a.resumed) && !g.begin.GetAllowEmpty() {
		if a.resumed {
			return nil, delta, nil, fmt.Errorf("%w: generation %d would remove all that a former process applied; set allow_empty if that is meant", dataplane.ErrInvalid, g.applied.Generation)
		}
		return nil, delta, nil, fmt.Errorf("%w: generation %d would remove all %d services; set allow_empty if that is meant", dataplane.ErrInvalid, g.applied.Generation, a.given.Len())
	}
	keys := g.affected()
	r := newResolver(a.limits, a.owners, &a.ports, a.given, len(keys))
	g.refused = maps.Clone(a.refused)
	for _, k := range keys {
		delete(g.refused, k)
		r.add(k, a.given.Service(k), g.wanted(k))
	}
	r.resolve()
	for _, c := range r.cands {
		if !c.placed {
			g.refused[c.key] = dataplane.ServiceStatus{Service: c.key, Status: c.problem.Status, Reason: c.problem.Reason, Message: c.problem.Message}
		}
	}
	g.owners = r.changedOwners()
	g.next = g.outcome(r)
	for _, c := range r.cands {
		if change, changed := dataplane.Compare(c.was, c.now(), g.removal); changed {
			delta.Changes = append(delta.Changes, change)
		}
	}
	return g.next, delta, sortedStatuses(g.refused), nil
}

// settle puts what was touched into the tree of what is stated. The order makes
// that quick, and the tree small.
func (g *Generation) settle() {
	keys := slices.AppendSeq(make([]dataplane.Key, 0, len(g.touched)), maps.Keys(g.touched))
	slices.SortFunc(keys, dataplane.Key.Compare)
	for _, k := range keys {
		if svc := g.touched[k]; svc != nil {
			g.stated.Set(svc)
		} else {
			g.stated.Delete(k)
		}
	}
	g.final = g.stated.Done()
}

// outcome is the snapshot with all candidates where the resolver left them.
func (g *Generation) outcome(r *resolver) *dataplane.Snapshot {
	var edit *dataplane.Editor
	if g.kept == nil && len(g.refused) == 0 {
		edit = g.final.Edit() // the same content, and one tree instead of two
	} else {
		edit = g.a.given.Edit()
		for _, c := range r.cands {
			if now := c.now(); now != nil {
				edit.Set(now)
			} else {
				edit.Delete(c.key)
			}
		}
	}
	s := edit.Done()
	s.Session, s.Generation, s.Digest = g.applied.Session, g.applied.Generation, g.applied.Digest
	s.Completeness = enum[dataplane.Completeness](g.begin.GetCompleteness())
	return s
}

// Accept makes the committed generation the applied one. It does nothing if
// Commit failed, or if another generation was begun since.
func (g *Generation) Accept() {
	a := g.a
	if g.next == nil || a.open != g {
		return
	}
	a.open = nil
	if was := a.applied.Session; was.AgentID != "" && was != g.applied.Session {
		a.fence(was)
	}
	if g.handles != nil {
		g.handles.trim()
		a.handles = g.handles
	} else {
		for h := range g.dropped {
			a.handles.remove(h)
		}
		for _, h := range slices.Sorted(maps.Keys(g.added)) {
			a.handles.set(h, g.added[h])
		}
	}
	if len(a.owners) == 0 {
		a.owners = make(owners, len(g.owners))
	}
	for b, svc := range g.owners {
		if svc == nil {
			delete(a.owners, b)
		} else {
			a.owners[b] = svc
			a.ports.add(b.port())
		}
	}
	a.stated, a.kept, a.given, a.refused, a.applied, a.resumed = g.final, g.kept, g.next, g.refused, g.applied, false
}

// affected is every service that may come out differently, in order: those
// touched, all for a snapshot or when completeness comes, and those refused
// until now, since what stood in their way may be gone.
func (g *Generation) affected() []dataplane.Key {
	all := g.handles != nil || g.kept == nil && g.a.kept != nil
	size := len(g.touched)
	if all {
		size = g.a.given.Len() + g.final.Len()
	}
	keys := make([]dataplane.Key, 0, size+len(g.a.refused))
	if all {
		for svc := range g.a.given.Services() {
			keys = append(keys, svc.Key)
		}
		for svc := range g.final.Services() {
			keys = append(keys, svc.Key)
		}
	} else {
		keys = slices.AppendSeq(keys, maps.Keys(g.touched))
	}
	keys = slices.AppendSeq(keys, maps.Keys(g.a.refused))
	slices.SortFunc(keys, dataplane.Key.Compare)
	return slices.Compact(keys)
}

// wanted is a service as the host wants it: what it stated, and, while the
// host does not know all, what was there before.
func (g *Generation) wanted(k dataplane.Key) *dataplane.Service {
	stated := g.final.Service(k)
	if g.kept == nil {
		return stated
	}
	kept := g.kept.Service(k)
	switch {
	case stated == nil:
		return kept
	case kept == nil || kept.Endpoints.Len() == 0:
		return stated
	}
	// Of two versions of one endpoint the stated one comes last and counts.
	all := dataplane.NewEndpoints(append(kept.Endpoints.Slice(), stated.Endpoints.Slice()...)...)
	if all == stated.Endpoints {
		return stated
	}
	union := *stated
	union.Endpoints = all
	return &union
}

func (g *Generation) removal(k dataplane.Key, e dataplane.Endpoint) dataplane.Removal {
	return g.removals[removalKey{k, e.ID}]
}
