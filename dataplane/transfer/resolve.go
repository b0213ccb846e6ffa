package transfer

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// resolver decides which services of a generation are placed and which stay as
// they were, so that those given pass Check, share no frontend, have no
// endpoint at a frontend, and keep the limits.
//
// All candidates are placed at first, so that services may swap frontends in
// one generation. Then, in rounds, those give way that are in conflict:
//
//   - to a service that does not change, or that fell back to what it was;
//   - to the one that has the frontend, or the endpoint, already;
//   - of two newcomers, to the one that was registered first; of those, to the
//     one whose key comes first.
//
// Who gives way falls back to what it was, which may be nothing. When nobody
// has to give way any more, each that did is tried again, the oldest first,
// until none fits: what remains refused is in conflict with what is given.
type resolver struct {
	limits dataplane.Limits
	base   owners
	ports  portSet // at least those of base and claims
	given  *dataplane.Snapshot
	cands  []*candidate // in the order of their keys
	byKey  map[dataplane.Key]*candidate
	claims map[claim][]*candidate // who wants a frontend, in order
	stands map[netip.AddrPort][]*dataplane.Service

	services, endpoints int // of the outcome
}

// candidate is a service that may change.
//
// Invariant: problem is set while not placed.
type candidate struct {
	key       dataplane.Key
	was, want *dataplane.Service // nil: none
	placed    bool               // at want; otherwise at was
	hopeless  bool               // wrong by itself
	problem   *dataplane.Problem
}

func (c *candidate) now() *dataplane.Service {
	if c.placed {
		return c.want
	}
	return c.was
}

func newResolver(limits dataplane.Limits, base owners, ports *portSet, given *dataplane.Snapshot, size int) *resolver {
	return &resolver{
		limits: limits, base: base, ports: *ports, given: given, cands: make([]*candidate, 0, size), byKey: make(map[dataplane.Key]*candidate, size),
		claims: make(map[claim][]*candidate, size), services: given.Len(), endpoints: given.EndpointCount(),
	}
}

// add states what is wanted of a service. Keys come in order.
func (r *resolver) add(k dataplane.Key, was, want *dataplane.Service) {
	if was == want {
		return
	}
	c := &candidate{key: k, was: was, want: want}
	r.cands = append(r.cands, c)
	r.byKey[k] = c
	if want != nil {
		if c.problem = r.alone(want); c.problem != nil {
			c.hopeless = true
			return
		}
		for _, f := range want.Frontends {
			b := claimOf(f.Addr, f.Protocol)
			r.claims[b] = append(r.claims[b], c)
			r.ports.add(f.Addr.Port())
		}
	}
	r.place(c, true)
}

// place moves a candidate between want and was.
func (r *resolver) place(c *candidate, placed bool) {
	r.count(c.now(), -1)
	c.placed = placed
	r.count(c.now(), 1)
}

func (r *resolver) count(svc *dataplane.Service, sign int) {
	if svc != nil {
		r.services += sign
		r.endpoints += sign * svc.Endpoints.Len()
	}
}

func (r *resolver) resolve() {
	r.stand()
	for {
		var losers []*candidate
		for _, c := range r.cands {
			if c.placed && c.want != nil {
				if c.problem = r.conflict(c, false); c.problem != nil {
					losers = append(losers, c)
				}
			}
		}
		for _, c := range losers {
			r.place(c, false)
		}
		if len(losers) == 0 && !r.shrink() {
			break
		}
	}
	losers := bySeniority(r.cands, func(c *candidate) bool { return !c.placed && !c.hopeless })
	for again := true; again; {
		again = false
		for _, c := range losers {
			if c.placed {
				continue
			}
			r.place(c, true)
			if c.problem = r.overLimit(c); c.problem == nil {
				c.problem = r.conflict(c, true)
			}
			if c.problem != nil {
				r.place(c, false)
			} else {
				again = true
			}
		}
	}
}

// alone returns what is wrong with a service whatever the others are.
func (r *resolver) alone(svc *dataplane.Service) *dataplane.Problem {
	if most := r.limits.EndpointsPerService; most > 0 && svc.Endpoints.Len() > most {
		return refuse(dataplane.ReasonLimit, "%d endpoints, this provider takes %d for a service", svc.Endpoints.Len(), most)
	}
	return svc.Check()
}

// overLimit returns why a placed candidate is too much, if it is.
func (r *resolver) overLimit(c *candidate) *dataplane.Problem {
	switch most := r.limits; {
	case most.Services > 0 && r.services > most.Services && c.was == nil && c.want != nil:
		return refuse(dataplane.ReasonLimit, "this provider takes %d services", most.Services)
	case most.Endpoints > 0 && r.endpoints > most.Endpoints && c.want != nil && (c.was == nil || c.want.Endpoints.Len() > c.was.Endpoints.Len()):
		return refuse(dataplane.ReasonLimit, "this provider takes %d endpoints", most.Endpoints)
	}
	return nil
}

// shrink takes back what goes over the limits, the youngest first, and reports
// whether there was any.
func (r *resolver) shrink() bool {
	some := false
	for _, c := range slices.Backward(bySeniority(r.cands, func(c *candidate) bool { return c.placed && r.overLimit(c) != nil })) {
		if p := r.overLimit(c); p != nil {
			c.problem, some = p, true
			r.place(c, false)
		}
	}
	return some
}

// bySeniority returns some of the candidates that are wanted, the oldest first.
func bySeniority(all []*candidate, some func(*candidate) bool) []*candidate {
	var out []*candidate
	for _, c := range all {
		if c.want != nil && some(c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *candidate) int { return a.want.Compare(b.want) })
	return out
}

// changedOwners returns who has which frontend now, where that changes.
func (r *resolver) changedOwners() owners {
	changed := make(owners, len(r.claims))
	for _, c := range r.cands {
		if c.placed && c.was != nil {
			for _, f := range c.was.Frontends {
				b := claimOf(f.Addr, f.Protocol)
				if changed[b] == nil {
					changed[b] = nil
				}
			}
		}
		if c.placed && c.want != nil {
			for _, f := range c.want.Frontends {
				changed[claimOf(f.Addr, f.Protocol)] = c.want
			}
		}
	}
	return changed
}
