package transfer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"

	"github.com/fairlead/fairlead/dataplane"
)

type table map[dataplane.Key]*dataplane.Service

// twin is a dumb assembler: it keeps whole tables, knows no messages and
// decides by comparing every service with every other.
type twin struct {
	limits  dataplane.Limits
	stated  table
	kept    table // nil: nothing
	given   table
	refused map[dataplane.Key]bool
}

func newTwin(l dataplane.Limits) *twin {
	return &twin{limits: l, stated: table{}, given: table{}, refused: map[dataplane.Key]bool{}}
}

// next returns the twin after a generation; t stays as it was.
func (t *twin) next(stated table, delta, complete bool) *twin {
	n := &twin{limits: t.limits, stated: stated, kept: t.kept}
	switch {
	case complete:
		n.kept = nil
	case !delta:
		n.kept = t.given
	case t.kept != nil:
		n.kept = t.keptAfter(stated)
	}
	wanted := maps.Clone(stated)
	for k, old := range n.kept {
		if w := wanted[k]; w == nil {
			wanted[k] = old
		} else {
			u := *w
			u.Endpoints = dataplane.NewEndpoints(append(old.Endpoints.Slice(), w.Endpoints.Slice()...)...)
			wanted[k] = &u
		}
	}
	n.given, n.refused = resolveDumbly(t.limits, t.given, wanted)
	return n
}

// keptAfter is what is kept after the host removed by name what it stated.
func (t *twin) keptAfter(stated table) table {
	kept := maps.Clone(t.kept)
	for k, was := range t.stated {
		old := kept[k]
		is := stated[k]
		switch {
		case old == nil:
		case is == nil:
			delete(kept, k)
		default:
			var rest []dataplane.Endpoint
			for e := range old.Endpoints.All() {
				_, had := was.Endpoints.Get(e.ID)
				if _, has := is.Endpoints.Get(e.ID); !had || has {
					rest = append(rest, e)
				}
			}
			o := *old
			o.Endpoints = dataplane.NewEndpoints(rest...)
			kept[k] = &o
		}
	}
	return kept
}

// clash is a conflict of two services over one frontend.
type clash struct {
	b         dataplane.Binding
	front     dataplane.Key // who has the frontend
	duplicate bool          // both have; otherwise the other has an endpoint there
}

func clashes(a, b *dataplane.Service) []clash {
	var found []clash
	for _, f := range a.Frontends {
		for _, o := range b.Frontends {
			if f.Binding() == o.Binding() {
				found = append(found, clash{f.Binding(), a.Key, true})
			}
		}
	}
	loops := func(front, end *dataplane.Service) {
		for _, f := range front.Frontends {
			carries := len(end.Frontends) == 0 && f.Protocol == dataplane.TCP
			for _, o := range end.Frontends {
				carries = carries || o.Protocol == f.Protocol
			}
			if carries && standsAt(end, f.Addr) {
				found = append(found, clash{f.Binding(), front.Key, false})
			}
		}
	}
	loops(a, b)
	loops(b, a)
	return found
}

func has(s *dataplane.Service, b dataplane.Binding) bool {
	return s != nil && slices.ContainsFunc(s.Frontends, func(f dataplane.Frontend) bool { return f.Binding() == b })
}

func aloneIsWrong(l dataplane.Limits, s *dataplane.Service) bool {
	return s.Check() != nil || l.EndpointsPerService > 0 && s.Endpoints.Len() > l.EndpointsPerService
}

func resolveDumbly(l dataplane.Limits, was, want table) (table, map[dataplane.Key]bool) {
	keys := slices.SortedFunc(maps.Keys(union(was, want)), dataplane.Key.Compare)
	back := map[dataplane.Key]bool{} // fell back to what it was
	at := func(k dataplane.Key) *dataplane.Service {
		if back[k] {
			return was[k]
		}
		return want[k]
	}
	for _, k := range keys {
		back[k] = want[k] != nil && aloneIsWrong(l, want[k])
	}
	older := func(a, b dataplane.Key) bool { // both wanted
		if x, y := want[a].Since, want[b].Since; x != y {
			return x < y
		}
		return a.Compare(b) < 0
	}
	var ages []dataplane.Key
	for _, k := range keys {
		if want[k] != nil {
			ages = append(ages, k)
		}
	}
	sort.Slice(ages, func(i, j int) bool { return older(ages[i], ages[j]) })
	gives := func(k, o dataplane.Key) bool { // k to o
		if at(k) == nil || at(o) == nil {
			return false
		}
		for _, c := range clashes(at(k), at(o)) {
			end := k
			if c.front == k {
				end = o
			}
			switch {
			case back[o]:
				return true
			case c.duplicate && has(was[o], c.b), !c.duplicate && c.front == o && has(was[o], c.b):
				return true
			case has(was[k], c.b) && (c.duplicate || c.front == k):
			case !c.duplicate && was[end] != nil && standsAt(was[end], c.b.Addr):
				if c.front == k {
					return true
				}
			case older(o, k):
				return true
			}
		}
		return false
	}
	count := func() (services, endpoints int) {
		for _, k := range keys {
			if s := at(k); s != nil {
				services++
				endpoints += s.Endpoints.Len()
			}
		}
		return services, endpoints
	}
	tooMuch := func(k dataplane.Key) bool {
		services, endpoints := count()
		grows := want[k] != nil && (was[k] == nil || want[k].Endpoints.Len() > was[k].Endpoints.Len())
		return l.Services > 0 && services > l.Services && was[k] == nil && want[k] != nil || l.Endpoints > 0 && endpoints > l.Endpoints && grows
	}
	for changed := true; changed; {
		changed = false
		var losers []dataplane.Key
		for _, k := range keys {
			if !back[k] && slices.ContainsFunc(keys, func(o dataplane.Key) bool { return o != k && gives(k, o) }) {
				losers = append(losers, k)
			}
		}
		for _, k := range losers {
			back[k], changed = true, true
		}
		if len(losers) > 0 {
			continue
		}
		for _, k := range slices.Backward(ages) {
			if !back[k] && tooMuch(k) {
				back[k], changed = true, true
			}
		}
	}
	for again := true; again; {
		again = false
		for _, k := range ages {
			if !back[k] || aloneIsWrong(l, want[k]) {
				continue
			}
			back[k] = false
			fits := !tooMuch(k)
			for _, o := range keys {
				fits = fits && (o == k || at(o) == nil || len(clashes(at(k), at(o))) == 0)
			}
			back[k], again = !fits, again || fits
		}
	}
	now, refused := table{}, map[dataplane.Key]bool{}
	for _, k := range keys {
		if s := at(k); s != nil {
			now[k] = s
		}
		if back[k] {
			refused[k] = true
		}
	}
	return now, refused
}

func union(a, b table) table {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}

// lawful returns what a provider relies on and given breaks.
func lawful(l dataplane.Limits, given table) error {
	endpoints := 0
	for k, s := range given {
		if p := s.Check(); p != nil {
			return fmt.Errorf("%s was given with %s", k, p.Message)
		}
		if l.EndpointsPerService > 0 && s.Endpoints.Len() > l.EndpointsPerService {
			return fmt.Errorf("%s was given with %d endpoints", k, s.Endpoints.Len())
		}
		endpoints += s.Endpoints.Len()
		for o, other := range given {
			if k.Compare(o) < 0 && len(clashes(s, other)) > 0 {
				return fmt.Errorf("%s and %s were given, but clash: %v", k, o, clashes(s, other))
			}
		}
	}
	if l.Services > 0 && len(given) > l.Services || l.Endpoints > 0 && endpoints > l.Endpoints {
		return fmt.Errorf("%d services with %d endpoints were given, limits are %v", len(given), endpoints, l)
	}
	return nil
}

// tableOf is a snapshot's content.
func tableOf(s *dataplane.Snapshot) table {
	t := table{}
	for svc := range s.Services() {
		t[svc.Key] = svc
	}
	return t
}

// difference says where two tables differ; "" if they do not.
func difference(a, b table) string {
	for k := range union(a, b) {
		if a[k] == nil || b[k] == nil {
			return fmt.Sprintf("%s is in one only", k)
		}
		if c, differ := dataplane.Compare(a[k], b[k], nil); differ {
			return fmt.Sprintf("%s differs: definition %v, endpoints [%v] and [%v]", k, c.Definition(), a[k].Endpoints, b[k].Endpoints)
		}
	}
	return ""
}

func address(a, b, c, d byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{a, b, c, d}), port)
}
