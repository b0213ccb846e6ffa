package transfer

import (
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Unchanged reports whether the host speaks of the generation that is applied
// already. Then Change does nothing and Commit is not to be called.
func (g *Generation) Unchanged() bool { return g.same }

// Change adds a part of the difference. An error ends the generation: it wraps
// ErrInvalid, or ErrBaseMismatch if the part speaks of something that the base
// does not have.
func (g *Generation) Change(c *pb.Change) error {
	if g.same {
		return nil // told again, such as after an answer that was lost
	}
	b, err := bytesOf(c)
	if err != nil {
		return err
	}
	m := newMessage(b)
	var service pb.Service
	err = m.each(changeServices, func(p part) error {
		if err := m.unmarshal(p, &service); err != nil {
			return err
		}
		return g.service(&service)
	})
	if err != nil {
		return err
	}
	if err := m.each(changeEndpoints, func(p part) error { return g.endpoints(m.message(p)) }); err != nil {
		return err
	}
	return g.takeAway(m)
}

// takeAway is the part of Change that removes.
func (g *Generation) takeAway(m message) error {
	var removed []*pb.EndpointRemoval
	err := m.each(changeRemovedEndpoints, func(p part) error {
		removed = append(removed, &pb.EndpointRemoval{})
		return m.unmarshal(p, removed[len(removed)-1])
	})
	if err != nil {
		return err
	}
	for len(removed) > 0 {
		n := 1
		for n < len(removed) && removed[n].GetService() == removed[0].GetService() {
			n++
		}
		if err := g.removeEndpoints(removed[0].GetService(), removed[:n]); err != nil {
			return err
		}
		removed = removed[n:]
	}
	return m.each(changeRemovedServices, func(p part) error {
		var r pb.ServiceRemoval
		if err := m.unmarshal(p, &r); err != nil {
			return err
		}
		return g.removeService(r.GetService())
	})
}

func (g *Generation) service(s *pb.Service) error {
	h, k := s.GetHandle(), DecodeKey(s.GetKey())
	if h == 0 || k.Name == "" || k.Namespace == "" {
		return fmt.Errorf("%w: service %q with handle %d: namespace, name and handle have to be set", dataplane.ErrInvalid, k, h)
	}
	old := g.at(k)
	switch known, ok := g.resolve(h); {
	case ok && known != k:
		return fmt.Errorf("%w: handle %d is %s and cannot become %s", dataplane.ErrInvalid, h, known, k)
	case !ok && old != nil:
		return g.stray("service %s has another handle than %d already", k, h)
	case !ok:
		k = g.intern(k)
		if g.handles != nil {
			g.handles.set(h, k)
		} else {
			g.added[h] = k
		}
	default:
		k = known
	}
	svc := decodeService(s)
	svc.Key = k
	if old != nil {
		svc.Endpoints = old.Endpoints
	}
	g.touched[k] = svc
	return nil
}

// at is a service as the changes up to now leave it, or nil.
func (g *Generation) at(k dataplane.Key) *dataplane.Service {
	if svc, touched := g.touched[k]; touched {
		return svc
	}
	return g.stated.Service(k)
}

// own is at, for a service that is there, and to be written.
func (g *Generation) own(k dataplane.Key) *dataplane.Service {
	svc, touched := g.touched[k]
	if !touched {
		c := *g.stated.Service(k)
		svc = &c
		g.touched[k] = svc
	}
	return svc
}

// intern returns k with strings that are in memory already, if possible.
func (g *Generation) intern(k dataplane.Key) dataplane.Key {
	if old := g.a.given.Service(k); old != nil {
		return old.Key
	}
	if g.namespace != k.Namespace {
		g.namespace = k.Namespace
	}
	k.Namespace = g.namespace
	return k
}

func (g *Generation) endpoints(group message) error {
	handle, err := group.groupService()
	if err != nil {
		return err
	}
	k, err := g.key(handle)
	if err != nil {
		return err
	}
	svc := g.own(k)
	for e := range svc.Endpoints.All() {
		g.pack.Add(e)
	}
	err = group.each(groupEndpoints, func(p part) error {
		m := group.message(p)
		e, err := m.endpoint(svc.Endpoints)
		if err == nil {
			g.pack.Add(e)
		}
		if len(g.removals) > 0 {
			delete(g.removals, removalKey{k, e.ID})
		}
		return err
	})
	svc.Endpoints = g.pack.Done()
	return err
}

func (g *Generation) removeEndpoints(handle uint32, removed []*pb.EndpointRemoval) error {
	k, err := g.key(handle)
	if err != nil {
		return err
	}
	gone := make(map[uint64]bool, len(removed))
	for _, r := range removed {
		gone[r.GetId()] = true
		reason := enum[dataplane.RemovalReason](r.GetReason())
		if reason > dataplane.RemovedDeregistered {
			reason = dataplane.RemovedUnknown
		}
		g.removals[removalKey{k, r.GetId()}] = dataplane.Removal{Reason: reason, SuspectedSince: decodeTime(r.GetSuspectedSince())}
	}
	svc := g.own(k)
	var left int
	if svc.Endpoints, left = without(svc.Endpoints, gone); left > 0 {
		return g.stray("service %s lacks %d of %d endpoints that are to be removed", k, left, len(gone))
	}
	g.keepNot(k, func(edit *dataplane.Editor, old dataplane.Service) {
		old.Endpoints, _ = without(old.Endpoints, gone)
		edit.Set(&old)
	})
	return nil
}

func (g *Generation) removeService(handle uint32) error {
	k, err := g.key(handle)
	if err != nil {
		return err
	}
	g.touched[k] = nil
	if g.handles != nil {
		g.handles.remove(handle)
	} else {
		g.dropped[handle] = true
		delete(g.added, handle)
	}
	g.keepNot(k, func(edit *dataplane.Editor, _ dataplane.Service) { edit.Delete(k) })
	return nil
}

// keepNot edits what is kept of a service: that the host knows no better does
// not hold for what it removes by name.
func (g *Generation) keepNot(k dataplane.Key, change func(*dataplane.Editor, dataplane.Service)) {
	if g.kept == nil || g.handles != nil {
		return
	}
	if old := g.kept.Service(k); old != nil {
		edit := g.kept.Edit()
		change(edit, *old)
		g.kept = edit.Done()
	}
}

// without returns the endpoints whose ids are not gone, and how many of those
// are not there.
func without(list dataplane.Endpoints, gone map[uint64]bool) (dataplane.Endpoints, int) {
	rest := make([]dataplane.Endpoint, 0, list.Len())
	for e := range list.All() {
		if !gone[e.ID] {
			rest = append(rest, e)
		}
	}
	return dataplane.NewEndpoints(rest...), len(gone) - (list.Len() - len(rest))
}

// key is resolve, with the error that ends the generation.
func (g *Generation) key(handle uint32) (dataplane.Key, error) {
	k, known := g.resolve(handle)
	if !known {
		return k, g.stray("handle %d names no service", handle)
	}
	return k, nil
}

// resolve returns the service that a handle names. One stated in this
// generation is known by it.
//
// Invariant: the service that a handle names is there, and no other handle
// names it.
func (g *Generation) resolve(handle uint32) (k dataplane.Key, known bool) {
	if g.handles != nil {
		return g.handles.get(handle)
	}
	if k, known = g.added[handle]; !known && !g.dropped[handle] {
		k, known = g.a.handles.get(handle)
	}
	return k, known
}

// stray is the error of a change that does not fit what was stated before: in
// a delta the two sides differ in what the base is, and a snapshot helps.
func (g *Generation) stray(format string, args ...any) error {
	kind := dataplane.ErrBaseMismatch
	if g.handles != nil {
		kind = dataplane.ErrInvalid
	}
	return fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)
}
