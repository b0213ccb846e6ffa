package transfer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// ownership is who has which frontend: a base and what this generation changes.
type ownership struct {
	base    map[dataplane.Binding]dataplane.Key
	changed map[dataplane.Binding]dataplane.Key // the zero key: nobody
}

func (o *ownership) of(b dataplane.Binding) (dataplane.Key, bool) {
	if k, changed := o.changed[b]; changed {
		return k, k != dataplane.Key{}
	}
	k, owned := o.base[b]
	return k, owned
}

func (o *ownership) set(svc *dataplane.Service, k dataplane.Key) {
	for _, f := range svc.Frontends {
		o.changed[f.Binding()] = k
	}
}

// Commit ends the changes. It returns the snapshot to give to the provider,
// what is different in it, and the services that were kept from it. The
// provider's work done, Accept makes it the applied generation; without Accept
// nothing happened.
func (g *Generation) Commit() (next *dataplane.Snapshot, delta dataplane.Delta, refused []dataplane.ServiceStatus, err error) {
	if g.same {
		return nil, delta, nil, fmt.Errorf("%w: nothing to commit in generation %d, which is applied already", dataplane.ErrInvalid, g.applied.Generation)
	}
	a := g.a
	g.final = g.stated.Done()
	if g.final.Len() == 0 && g.kept == nil && (a.given.Len() > 0 || a.resumed) && !g.begin.GetAllowEmpty() {
		if a.resumed {
			return nil, delta, nil, fmt.Errorf("%w: generation %d would remove all that a former process applied; set allow_empty if that is meant", dataplane.ErrInvalid, g.applied.Generation)
		}
		return nil, delta, nil, fmt.Errorf("%w: generation %d would remove all %d services; set allow_empty if that is meant", dataplane.ErrInvalid, g.applied.Generation, a.given.Len())
	}
	if err := g.limits(); err != nil {
		return nil, delta, nil, err
	}
	edit := a.given.Edit()
	g.owners = ownership{base: a.owners, changed: make(map[dataplane.Binding]dataplane.Key)}
	g.refused = maps.Clone(a.refused)
	keys := slices.SortedFunc(maps.Keys(g.affected()), func(a, b dataplane.Key) int { return cmp.Compare(a.String(), b.String()) })
	// First what goes, so that a frontend may move from one service to another
	// in one generation, whatever their order.
	for _, k := range keys {
		if was, is := a.given.Service(k), g.wanted(k); was != nil && (is == nil || !sameFrontends(was, is)) {
			g.owners.set(was, dataplane.Key{})
		}
	}
	for _, k := range keys {
		g.judge(edit, k)
	}
	g.breakLoops(edit)
	s := edit.Done()
	s.Session, s.Generation, s.Digest = g.applied.Session, g.applied.Generation, g.applied.Digest
	s.Completeness = enum[dataplane.Completeness](g.begin.GetCompleteness())
	for _, k := range keys {
		if c, changed := dataplane.Compare(a.given.Service(k), s.Service(k), g.removal); changed {
			delta.Changes = append(delta.Changes, c)
		}
	}
	g.next = s
	return s, delta, sortedStatuses(g.refused), nil
}

// Accept makes the committed generation the applied one.
func (g *Generation) Accept() {
	a := g.a
	if g.next == nil {
		return
	}
	if was := a.applied.Session; was.AgentID != "" && was != g.applied.Session {
		if len(a.fenced) >= maxFenced {
			clear(a.fenced)
		}
		a.fenced[was.AgentID] = max(a.fenced[was.AgentID], was.BootEpoch)
	}
	if g.handles != nil {
		a.handles = g.handles
	} else {
		for _, h := range g.dropped {
			delete(a.handles, h)
		}
		maps.Copy(a.handles, g.added)
	}
	for b, k := range g.owners.changed {
		if k == (dataplane.Key{}) {
			delete(a.owners, b)
		} else {
			a.owners[b] = k
		}
	}
	a.stated, a.kept, a.given, a.refused, a.applied, a.resumed = g.final, g.kept, g.next, g.refused, g.applied, false
}

// affected is every service that may come out differently: those touched, all
// for a snapshot or when completeness comes, and those refused until now,
// since what stood in their way may be gone.
func (g *Generation) affected() map[dataplane.Key]bool {
	keys := maps.Clone(g.touched)
	for k := range g.a.refused {
		keys[k] = true
	}
	if g.handles != nil || g.kept == nil && g.a.kept != nil {
		for svc := range g.a.given.Services() {
			keys[svc.Key] = true
		}
		for svc := range g.final.Services() {
			keys[svc.Key] = true
		}
	}
	return keys
}

// wanted is a service as the host wants it: what it stated, and, while the
// host does not know all, what was there before.
func (g *Generation) wanted(k dataplane.Key) *dataplane.Service {
	stated := g.final.Service(k)
	if g.kept == nil {
		return stated
	}
	kept := g.kept.Service(k)
	if stated == nil || kept == nil {
		if stated == nil {
			return kept
		}
		return stated
	}
	union := *stated
	union.Endpoints = append([]dataplane.Endpoint(nil), stated.Endpoints...)
	for _, e := range kept.Endpoints {
		if _, have := stated.Endpoint(e.ID); !have {
			union.Endpoints = append(union.Endpoints, e)
		}
	}
	sortEndpoints(union.Endpoints)
	return &union
}

// judge puts the wanted version of a service into the snapshot, or keeps the
// old one and says why.
func (g *Generation) judge(edit *dataplane.Editor, k dataplane.Key) {
	svc := g.wanted(k)
	delete(g.refused, k)
	if svc == nil {
		edit.Delete(k)
		return
	}
	if p := g.problem(svc); p != nil {
		g.refused[k] = dataplane.ServiceStatus{Service: k, Status: p.Status, Reason: p.Reason, Message: p.Message}
		if old := g.a.given.Service(k); old != nil {
			g.restore(edit, old)
		}
		return
	}
	edit.Set(svc)
	g.owners.set(svc, k)
}

// restore keeps the last good version of a refused service, unless somebody
// else took one of its frontends meanwhile.
func (g *Generation) restore(edit *dataplane.Editor, old *dataplane.Service) {
	for _, f := range old.Frontends {
		if owner, owned := g.owners.of(f.Binding()); owned && owner != old.Key {
			edit.Delete(old.Key)
			return
		}
	}
	edit.Set(old)
	g.owners.set(old, old.Key)
}

// problem returns why a service cannot be programmed beside the others.
func (g *Generation) problem(svc *dataplane.Service) *dataplane.Problem {
	if p := svc.Check(); p != nil {
		return p
	}
	if most := g.a.limits.EndpointsPerService; most > 0 && len(svc.Endpoints) > most {
		return &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonLimit, Message: fmt.Sprintf("%d endpoints, this provider takes %d for a service", len(svc.Endpoints), most)}
	}
	for _, f := range svc.Frontends {
		if owner, owned := g.owners.of(f.Binding()); owned && owner != svc.Key {
			return &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonDuplicateFrontend, Message: fmt.Sprintf("frontend %v/%v belongs to service %s: give one of them another address", f.Addr, f.Protocol, owner)}
		}
	}
	for _, e := range svc.Endpoints {
		for _, f := range svc.Frontends {
			for _, b := range []dataplane.Binding{{Addr: e.Addr, Protocol: f.Protocol}, {Addr: e.Foreign(), Protocol: f.Protocol}} {
				if owner, owned := g.owners.of(b); owned {
					return &dataplane.Problem{Status: dataplane.StatusRejected, Reason: dataplane.ReasonLoop, Message: fmt.Sprintf("endpoint %s is at %v, which is a frontend of service %s: connections would go in a circle; give the instance another address", e.Name, b.Addr, owner)}
				}
			}
		}
	}
	return nil
}

// breakLoops refuses services with a new frontend at which an endpoint of
// another service stands already. It looks at every endpoint, and only when
// there are new frontends.
func (g *Generation) breakLoops(edit *dataplane.Editor) {
	fresh := make(map[netip.AddrPort]dataplane.Key)
	for b, k := range g.owners.changed {
		if _, had := g.owners.base[b]; !had && k != (dataplane.Key{}) {
			fresh[b.Addr] = k
		}
	}
	if len(fresh) == 0 {
		return
	}
	looped := make(map[dataplane.Key]dataplane.ServiceStatus)
	for svc := range edit.Services() {
		for _, e := range svc.Endpoints {
			for _, at := range []netip.AddrPort{e.Addr, e.Foreign()} {
				if k, loop := fresh[at]; loop && k != svc.Key {
					looped[k] = dataplane.ServiceStatus{Service: k, Status: dataplane.StatusRejected, Reason: dataplane.ReasonLoop, Message: fmt.Sprintf("frontend %v is where endpoint %s of service %s stands: connections to it would go in a circle; give the service another address", at, e.Name, svc.Key)}
				}
			}
		}
	}
	for _, status := range sortedStatuses(looped) {
		g.refused[status.Service] = status
		g.owners.set(edit.Service(status.Service), dataplane.Key{})
		edit.Delete(status.Service)
		if old := g.a.given.Service(status.Service); old != nil {
			g.restore(edit, old)
		}
	}
}

func (g *Generation) limits() error {
	l, services, endpoints := g.a.limits, g.final.Len(), g.final.EndpointCount()
	switch {
	case l.Services > 0 && services > l.Services:
		return fmt.Errorf("%w: %d services, this provider takes %d", dataplane.ErrLimit, services, l.Services)
	case l.Endpoints > 0 && endpoints > l.Endpoints:
		return fmt.Errorf("%w: %d endpoints, this provider takes %d", dataplane.ErrLimit, endpoints, l.Endpoints)
	}
	return nil
}

func (g *Generation) removal(k dataplane.Key, e dataplane.Endpoint) dataplane.Removal {
	return g.removals[removalKey{k, e.ID}]
}

func sameFrontends(a, b *dataplane.Service) bool {
	if len(a.Frontends) != len(b.Frontends) {
		return false
	}
	for i := range a.Frontends {
		if a.Frontends[i].Binding() != b.Frontends[i].Binding() {
			return false
		}
	}
	return true
}
