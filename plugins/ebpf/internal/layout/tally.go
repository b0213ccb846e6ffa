package layout

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
)

// Tally is what was counted of a service.
type Tally struct {
	Total    uint64            // how often any endpoint was chosen, also those that are gone
	Endpoint map[uint64]uint64 // how often each was, of those that were chosen at all
	Count    [Counts]uint64
}

// add counts the hits of a set.
func (y *Tally) add(f Family, set []uint64) {
	n := f.SlotWords()
	for ; len(set) >= n; set = set[n:] {
		hits := atomic.LoadUint64(&set[hitsWord(f)])
		if hits == 0 {
			continue
		}
		if y.Endpoint == nil {
			y.Endpoint = make(map[uint64]uint64)
		}
		y.Total += hits
		y.Endpoint[set[idWord(f)]] += hits
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
		v := View{Key: k, Endpoints: t.endpoints(rec)}
		for c, n := range t.counts(rec) {
			v.Hits.Count[c] = atomic.LoadUint64(n)
		}
		v.Hits.Total, v.Hits.Endpoint = v.Hits.Count[Past], maps.Clone(rec.parked)
		for f, p := range rec.places() {
			v.Hits.add(f, t.set(f, p))
		}
		for _, r := range waiting[rec] {
			v.Hits.add(r.family, t.set(r.family, r.place))
		}
		if !yield(v) {
			return
		}
	}
}

// counts are where things are counted of a service.
func (t *Table) counts(rec *record) (out [Counts]*uint64) {
	w := t.kernel.Service(rec.at)[serviceCounts:]
	for c := range out {
		out[c] = &w[c]
	}
	return out
}

// slotOf finds a slot of a service's endpoint in its sets, those of one family first.
func (t *Table) slotOf(sets [Families][Scopes]place, f Family, id uint64) (hits *uint64, is bool) {
	for i := range Families {
		other := (f + i) % Families
		for _, p := range sets[other] {
			if slot, is := findSlot(t.set(other, p), other, id); is {
				return &slot[hitsWord(other)], true
			}
		}
	}
	return nil, false
}

// credit adds to the hits of a service's endpoint, in its sets or without one.
func (t *Table) credit(rec *record, sets [Families][Scopes]place, f Family, id, hits uint64) {
	if slot, is := t.slotOf(sets, f, id); is {
		atomic.AddUint64(slot, hits)
		return
	}
	atomic.AddUint64(t.counts(rec)[Past], hits)
	rec.park(id, hits)
}

// park keeps the hits of an endpoint that has no slot, beside their sum in the maps.
func (rec *record) park(id, hits uint64) {
	if rec.parked == nil {
		rec.parked = make(map[uint64]uint64)
	}
	rec.parked[id] += hits
}

// unpark gives endpoints that have a slot again their hits, and forgets those that
// are not the service's any more; has are its endpoints, sorted.
func (t *Table) unpark(rec *record, sets [Families][Scopes]place, has []uint64) {
	for id, hits := range rec.parked {
		slot, back := t.slotOf(sets, V4, id)
		if back {
			atomic.AddUint64(slot, hits)
			atomic.AddUint64(t.counts(rec)[Past], -hits)
		}
		if back || !listed(has, id) {
			delete(rec.parked, id)
		}
	}
}

// handed is a number of hits that were added elsewhere, and are still here.
type handed struct {
	from *uint64
	hits uint64
}

// hand adds the hits of a set that is given up to those of the sets that take its
// place. Until the returned are taken away they are counted twice: when nothing
// leads to the set any more, and nobody has read in between.
func (t *Table) hand(r retired, sets [Families][Scopes]place) (all []handed) {
	set, n := t.set(r.family, r.place), r.family.SlotWords()
	for ; len(set) >= n; set = set[n:] {
		from := &set[hitsWord(r.family)]
		hits := atomic.LoadUint64(from)
		if hits == 0 {
			continue
		}
		t.credit(r.rec, sets, r.family, set[idWord(r.family)], hits)
		all = append(all, handed{from, hits})
	}
	return all
}

// takeAway ends what hand began.
func takeAway(all []handed) {
	for _, h := range all {
		atomic.AddUint64(h.from, -h.hits)
	}
}

// Load is how full the maps are.
type Load struct {
	Services, Frontends int
	Slots               [Families]uint64
}

// Load counts what is taken, slots and ids of frontends also while they only wait for
// a grace.
func (t *Table) Load() Load {
	l := Load{Services: len(t.byID), Frontends: len(t.frontends) + len(t.gone)}
	for f := range Families {
		l.Slots[f] = t.regions[f].Used()
	}
	return l
}
