package view

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Event is one thing that happened: Seen, Forgotten or Completed.
type Event interface{ event() }

// Seen says what a member is now.
type Seen struct {
	At      time.Time // on this node's clock
	Member  Member
	Record  *Record // nil: as before
	Problem string  // why the newest record cannot be used; Record is nil then
}

// Forgotten says that nothing is known of a member any more.
type Forgotten struct{ ID model.NodeID }

// Completed says what may be concluded from what is missing.
type Completed struct{ Completeness Completeness }

func (Seen) event()      {}
func (Forgotten) event() {}
func (Completed) event() {}

// Apply returns the view after an event, with the next epoch. It is v itself
// if the event changes nothing. Apply on one view must not be called by two
// goroutines at once.
func Apply(v *View, e Event) *View {
	switch e := e.(type) {
	case Seen:
		was := v.Node(e.Member.ID)
		if is := fold(was, e); is != was {
			return v.replace(was, is)
		}
	case Forgotten:
		if was := v.Node(e.ID); was != nil {
			return v.replace(was, nil)
		}
	case Completed:
		if v.Completeness == Incomplete && e.Completeness != Incomplete {
			next := *v
			next.Epoch++
			next.Completeness = e.Completeness
			return &next
		}
	}
	return v
}

// replace puts a node in place of another state of it, either of which may be
// nil, and brings its group of servers in line, and the services that it has a part in.
func (v *View) replace(was, is *Node) *View {
	next := *v
	next.Epoch++
	next.nodes = v.nodes.Copy()
	if is != nil {
		next.nodes.Set(is)
	} else {
		next.nodes.Delete(was)
	}
	w := writer{v: &next}
	next.settle(&w, was, is)
	for _, o := range w.others {
		if holds(o.was.part(model.LeaderService())) {
			w.update(model.LeaderService(), o.was, o.is)
		}
	}
	if keys, few := statesOnly(was, is); few {
		for _, k := range keys {
			w.update(k, was, is)
		}
		return &next
	}
	if was != nil && was.Record != nil {
		for k := range was.Record.parts.by {
			w.update(k, was, is)
		}
	}
	if is != nil && is.Record != nil {
		for k := range is.Record.parts.by {
			if was == nil || was.Record == nil || was.Record.parts.by[k] == nil {
				w.update(k, was, is)
			}
		}
	}
	return &next
}

// statesOnly lists the services whose instances took another state, and
// reports whether nothing else that endpoints follow from is different.
func statesOnly(was, is *Node) (keys []model.ServiceKey, ok bool) {
	if was == nil || is == nil || was.Record == nil || is.Record == nil || was.Record.parts != is.Record.parts ||
		was.Value.State != is.Value.State || was.advertise() != is.advertise() {
		return nil, false
	}
	for i, s := range is.Record.States {
		if s != was.Record.States[i] {
			keys = append(keys, is.Record.Definition.Instances[i].Service)
		}
	}
	return keys, true
}

// writer changes services of a view that nobody else sees yet. It copies the
// trees at the first change.
type writer struct {
	v      *View
	copied bool
	others []turn // of nodes that the event is not about
}

// turn is a node that became another one.
type turn struct{ was, is *Node }

// update brings one service in line with a node that changed.
func (w *writer) update(k model.ServiceKey, was, is *Node) {
	v := w.v
	old := v.Service(k)
	id := nodeID(was, is)
	before, now := was.part(k), is.part(k)
	fresh := is.endpoints(nil, v.Self, k)
	sortEndpoints(fresh)
	if old != nil && sameStanding(v.Self, was, is) && before.definition == now.definition && sameEndpoints(old.Endpoints, id, fresh) && holds(before) == holds(now) {
		return
	}
	s := &Service{Key: k, Changed: v.Epoch}
	if old != nil {
		*s = *old
		s.Changed = v.Epoch
	}
	s.Nodes = withNode(s.Nodes, id, holds(now))
	if len(s.Nodes) == 0 {
		w.set(old, nil)
		return
	}
	if old == nil || !sameEndpoints(old.Endpoints, id, fresh) {
		s.Endpoints = merge(s.Endpoints, id, fresh)
	}
	nodes := make([]*Node, 0, len(s.Nodes))
	for _, id := range s.Nodes {
		nodes = append(nodes, v.Node(id))
	}
	s.define(v.Self, nodes)
	if old == nil || !s.same(old) {
		w.set(old, s)
	}
}

// set puts a service in place of another state of it.
func (w *writer) set(old, s *Service) {
	v := w.v
	if !w.copied {
		v.services, v.changed, w.copied = v.services.Copy(), v.changed.copy(), true
	}
	if old != nil {
		v.endpoints -= len(old.Endpoints)
		v.changed.live.Delete(old)
	}
	if s == nil {
		v.services.Delete(old)
		v.changed.remove(old.Key, v.Epoch)
		return
	}
	v.endpoints += len(s.Endpoints)
	v.services.Set(s)
	v.changed.live.Set(s)
}

func holds(l local) bool { return l.definition != nil || len(l.instances) > 0 }

// sameStanding reports whether definitions of the node count as before.
func sameStanding(self model.NodeID, was, is *Node) bool {
	return was != nil && is != nil && was.rank(self) == is.rank(self)
}

func nodeID(was, is *Node) model.NodeID {
	if is != nil {
		return is.ID
	}
	return was.ID
}

// withNode returns the sorted list with or without id; list stays as it is.
func withNode(list []model.NodeID, id model.NodeID, in bool) []model.NodeID {
	at, found := slices.BinarySearch(list, id)
	switch {
	case in == found:
		return list
	case in:
		return slices.Insert(slices.Clone(list), at, id)
	}
	return slices.Delete(slices.Clone(list), at, at+1)
}

// sameEndpoints reports whether the endpoints of a node in list are these.
func sameEndpoints(list []Endpoint, node model.NodeID, these []Endpoint) bool {
	n := 0
	for i := range list {
		if list[i].Node != node {
			continue
		}
		if n == len(these) || !list[i].same(these[n]) {
			return false
		}
		n++
	}
	return n == len(these)
}

// merge returns list with these endpoints instead of the node's former ones.
// All are sorted.
func merge(list []Endpoint, node model.NodeID, these []Endpoint) []Endpoint {
	out := make([]Endpoint, 0, len(list)+len(these))
	for _, e := range list {
		if e.Node != node {
			out = append(out, e)
		}
	}
	out = append(out, these...)
	sortEndpoints(out)
	return out
}
