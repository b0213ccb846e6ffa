package layout

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
)

// Tally is how often the endpoints of a service were chosen.
type Tally struct {
	Total    uint64
	Endpoint map[uint64]uint64 // of those that were chosen at all
}

// add counts the hits of a set. Each counter only rises while the set is there.
func (y *Tally) add(k Kernel, f Family, p place) {
	hits := k.Hits(f, p.at, 1+p.count)
	var slots []Slot // read only if there is something to add
	for i := range p.count {
		n := atomic.LoadUint64(&hits[1+i])
		if n == 0 {
			continue
		}
		if slots == nil {
			slots = ParseSlots(k.Slots(f, p.at, 1+p.count)[f.SlotBytes():], f)
		}
		if y.Endpoint == nil {
			y.Endpoint = make(map[uint64]uint64)
		}
		y.Total += n
		y.Endpoint[slots[i].ID] += n
	}
}

// View is one service as it is in the maps.
type View struct {
	Key       dataplane.Key
	Endpoints []uint64 // sorted
	Hits      Tally
}

// Services yields what is in the maps, in the order of the keys.
func (t *Table) Services(yield func(View) bool) {
	waiting := make(map[*record][]retired)
	for _, r := range slices.Concat(t.retired, t.late) {
		waiting[r.rec] = append(waiting[r.rec], r)
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.services), dataplane.Key.Compare) {
		rec := t.services[k]
		v := View{Key: k, Endpoints: t.endpoints(rec), Hits: Tally{Total: rec.past.Total, Endpoint: maps.Clone(rec.past.Endpoint)}}
		for f := range Families {
			for s, p := range rec.sets[f] {
				if p.there && (Scope(s) == Home || p != rec.sets[f][Home]) {
					v.Hits.add(t.kernel, f, p)
				}
			}
		}
		for _, r := range waiting[rec] {
			v.Hits.add(t.kernel, r.family, r.place)
		}
		if !yield(v) {
			return
		}
	}
}

// Frontend is an address as it is in the maps.
type Frontend struct {
	Binding dataplane.Binding
	ID      uint32
	Service dataplane.Key
}

// Frontends lists the addresses in the maps, in their order.
func (t *Table) Frontends() []Frontend {
	out := make([]Frontend, 0, len(t.frontends))
	for b, f := range t.frontends {
		out = append(out, Frontend{b, f.id, f.owner.key})
	}
	slices.SortFunc(out, func(a, b Frontend) int {
		return cmp.Or(a.Binding.Addr.Compare(b.Binding.Addr), cmp.Compare(a.Binding.Protocol, b.Binding.Protocol))
	})
	return out
}

// Load is how full the maps are.
type Load struct {
	Services, Frontends int
	Slots               [Families]uint64
}

// Load counts what is taken, be it only waiting for a grace.
func (t *Table) Load() Load {
	l := Load{Services: len(t.byID), Frontends: len(t.frontends) + len(t.gone)}
	for f := range Families {
		l.Slots[f] = t.regions[f].Used()
	}
	return l
}
