package layout

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
)

// ErrForeign is wrapped when the maps hold what no table of this version wrote.
var ErrForeign = errors.New("layout: not the maps of this layout")

// Adopt returns the table of maps that another process filled. Whatever is not
// part of a service there is free after a grace, for which it asks.
func Adopt(k Kernel, size Size) (*Table, error) {
	t := NewTable(k, size)
	var places []uint32
	for at := range size.Services {
		s, err := ParseService(k.Service(at))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForeign, err)
		}
		if s.ID == 0 {
			t.last = max(t.last, s.Last)
			continue
		}
		if t.byID[s.ID] != nil {
			return nil, fmt.Errorf("%w: two services with id %d", ErrForeign, s.ID)
		}
		places = append(places, at)
		rec := &record{key: s.Key, id: s.ID, at: at, affinity: s.AffinitySeconds}
		t.byID[rec.id] = rec
		t.last = max(t.last, rec.id)
		// A process may have ended between naming a service anew and forgetting it.
		// The newer one is the one that its frontends lead to.
		if old := t.services[rec.key]; old == nil || old.id < rec.id {
			t.services[rec.key] = rec
		}
	}
	if !t.places.Claim(places) {
		return nil, fmt.Errorf("%w: two services in one place", ErrForeign)
	}
	var taken [Families]map[uint32]int
	for f := range Families {
		taken[f] = make(map[uint32]int)
	}
	for f := range Families {
		err := t.indexes[f].Adopt(func(entry uint32, b dataplane.Binding) error { return t.adopt(b, entry, taken) })
		if err != nil {
			return nil, err
		}
	}
	for f := range Families {
		if !t.regions[f].Claim(taken[f]) {
			return nil, fmt.Errorf("%w: sets of %v endpoints overlap", ErrForeign, f)
		}
	}
	for _, rec := range t.byID {
		if t.services[rec.key] != rec {
			t.buried = append(t.buried, rec)
		}
	}
	if err := k.Grace(); err != nil {
		return nil, fmt.Errorf("grace period: %w", err)
	}
	return t, nil
}

// adopt takes a frontend with the sets that it leads to.
func (t *Table) adopt(b dataplane.Binding, entry uint32, taken [Families]map[uint32]int) error {
	f := FamilyOf(b.Addr.Addr())
	var words [Scopes]Publication
	words[Home], words[Foreign] = t.indexes[f].Published(entry)
	var rec *record
	var places [Scopes]place
	for s, w := range words {
		if w.Flags()&Published == 0 {
			return fmt.Errorf("%w: nothing is said of frontend %v", ErrForeign, b.Addr)
		}
		owner, err := t.ownerOf(f, w)
		if err != nil {
			return fmt.Errorf("%w: frontend %v leads to %w", ErrForeign, b.Addr, err)
		}
		if rec != nil && owner != rec {
			return fmt.Errorf("%w: frontend %v leads to %s and %s", ErrForeign, b.Addr, rec.key, owner.key)
		}
		rec = owner
		places[s] = place{there: true, at: w.Set(), count: w.Count()}
		if w.Count() == 0 {
			continue
		}
		if n, there := taken[f][w.Set()]; there && n != w.Count() {
			return fmt.Errorf("%w: the set at %d has %d slots and %d", ErrForeign, w.Set(), n, w.Count())
		}
		taken[f][w.Set()] = w.Count()
	}
	// A process that ended halfway through a change may have left two frontends of
	// one service at different sets. The next Set brings them together; what no
	// record remembers is lost until the maps are made anew.
	rec.sets[f] = places
	refuses := words[Home].Flags()&Refuses != 0
	onEmpty := dataplane.OnEmptyPass
	if refuses {
		onEmpty = dataplane.OnEmptyRefuse
	}
	rec.frontends = append(rec.frontends, dataplane.Frontend{Addr: b.Addr, Protocol: b.Protocol, OnEmpty: onEmpty})
	if t.frontends[b] != nil {
		return fmt.Errorf("%w: frontend %v is there twice", ErrForeign, b.Addr)
	}
	t.used[f]++
	t.frontends[b] = &frontend{entry: entry, owner: rec, refuses: refuses}
	return nil
}

// ownerOf is the service that a word leads to.
func (t *Table) ownerOf(f Family, w Publication) (*record, error) {
	if w.Count() == 0 {
		if w.Set() < t.size.Services {
			if s, err := ParseService(t.kernel.Service(w.Set())); err == nil && t.byID[s.ID] != nil {
				return t.byID[s.ID], nil
			}
		}
		return nil, fmt.Errorf("no service at %d", w.Set())
	}
	if uint64(w.Set())+uint64(w.Count()) > uint64(t.size.Slots[f]) {
		return nil, fmt.Errorf("slots %d+%d of %d", w.Set(), w.Count(), t.size.Slots[f])
	}
	o := ParseOwner(t.kernel.Slots(f, w.Set(), 1), f)
	if rec := t.byID[o.Service]; rec != nil && rec.at == o.Place {
		return rec, nil
	}
	return nil, fmt.Errorf("service %d at %d, which is not there", o.Service, o.Place)
}

// Copy is a table that was made of another one, and what had been counted by then.
type Copy struct {
	from, to *Table
	hits     map[*record]Tally // of the new records
}

// CopyTo fills the empty maps of another kernel with what is in these, and returns
// their table. Services keep their ids, and what was counted of them. Finish comes
// before.
func (t *Table) CopyTo(k Kernel, size Size) (*Copy, error) {
	n := NewTable(k, size)
	n.last = t.last
	for _, key := range slices.SortedFunc(maps.Keys(t.services), dataplane.Key.Compare) {
		old := t.services[key]
		e := &edit{table: n, rec: &record{key: key, id: old.id}, plan: t.planOf(old)}
		if err := e.prepare(); err != nil {
			return nil, fmt.Errorf("service %s: %w", key, err)
		}
		e.commit()
	}
	c := &Copy{from: t, to: n, hits: make(map[*record]Tally, len(t.services))}
	for v := range t.Services {
		rec := n.services[v.Key]
		n.count(rec, v.Hits, Tally{})
		c.hits[rec] = v.Hits
	}
	return c, nil
}

// Table is the new one.
func (c *Copy) Table() *Table { return c.to }

// CatchUp takes over what was counted since, when no program counts in the old maps
// any more.
func (c *Copy) CatchUp() {
	for v := range c.from.Services {
		if rec := c.to.services[v.Key]; rec != nil {
			if before, there := c.hits[rec]; there {
				c.to.count(rec, v.Hits, before)
			}
		}
	}
}

// count adds to what is counted of a service what a tally has beyond another.
func (t *Table) count(rec *record, now, before Tally) {
	rest := now.Total - before.Total
	for id, n := range now.Endpoint {
		n -= before.Endpoint[id]
		if slot, is := t.slotOf(rec.sets, V4, id); is {
			atomic.AddUint64(slot, n)
			rest -= n
		} else {
			rec.park(id, n)
		}
	}
	counts := t.counts(rec)
	atomic.AddUint64(counts[Past], rest)
	for c := Past + 1; c < Counts; c++ {
		atomic.AddUint64(counts[c], now.Count[c]-before.Count[c])
	}
}

// planOf reads a service back.
func (t *Table) planOf(rec *record) Plan {
	p := Plan{Affinity: rec.affinity}
	for _, fe := range rec.frontends {
		f := t.frontends[fe.Binding()]
		if f == nil || f.owner != rec {
			continue // another service has taken it
		}
		p.Frontends = append(p.Frontends, fe)
		p.Needs[FamilyOf(fe.Addr.Addr())] = true
	}
	for f := range Families {
		if !p.Needs[f] {
			continue
		}
		p.Slots[f][Home] = t.slots(f, rec.sets[f][Home])
		if rec.sets[f][Foreign] == rec.sets[f][Home] {
			p.Shared[f] = true
		} else {
			p.Slots[f][Foreign] = t.slots(f, rec.sets[f][Foreign])
		}
	}
	return p
}
