package layout

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// ErrForeign is wrapped when the maps hold what no table of this version wrote.
var ErrForeign = errors.New("layout: not the maps of this layout")

// Adopt returns the table of maps that another process filled. Whatever is not
// part of a service there is free after a grace, for which it asks.
func Adopt(k Kernel, size Size, found Dump) (*Table, error) {
	t := NewTable(k, size)
	for id, key := range found.Services {
		rec := &record{key: key, id: id}
		t.byID[id] = rec
		t.last = max(t.last, id)
		if old := t.services[key]; old != nil {
			// A process ended between naming a service anew and forgetting it.
			// The newer one is the one that its frontends lead to.
			if old.id > id {
				rec = old
			}
		}
		t.services[key] = rec
	}
	var taken [Families]map[uint32]int
	for f := range Families {
		taken[f] = make(map[uint32]int)
	}
	ids := make([]uint32, 0, len(found.Frontends))
	for b, id := range found.Frontends {
		if id >= size.IDs() {
			return nil, fmt.Errorf("%w: frontend %v has id %d of %d", ErrForeign, b.Addr, id, size.IDs())
		}
		if err := t.adopt(b, id, taken); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	for f := range Families {
		if !t.regions[f].Claim(taken[f]) {
			return nil, fmt.Errorf("%w: sets of %v endpoints overlap", ErrForeign, f)
		}
	}
	if !t.ids.Claim(ids) {
		return nil, fmt.Errorf("%w: two frontends with one id", ErrForeign)
	}
	for id, rec := range t.byID {
		if t.services[rec.key] != rec {
			t.buried = append(t.buried, id)
		}
	}
	if err := k.Grace(); err != nil {
		return nil, fmt.Errorf("grace period: %w", err)
	}
	return t, nil
}

// adopt takes a frontend with the sets that it leads to.
func (t *Table) adopt(b dataplane.Binding, id uint32, taken [Families]map[uint32]int) error {
	f := FamilyOf(b.Addr.Addr())
	var words [Scopes]Publication
	words[Home], words[Foreign] = t.kernel.Published(id)
	var rec *record
	var places [Scopes]place
	for s, w := range words {
		if w.Flags()&Published == 0 {
			return fmt.Errorf("%w: frontend %v leads to id %d, which is not published", ErrForeign, b.Addr, id)
		}
		if uint64(w.Set())+uint64(w.Count())+1 > uint64(t.size.Slots[f]) {
			return fmt.Errorf("%w: frontend %v leads to slots %d+%d of %d", ErrForeign, b.Addr, w.Set(), w.Count(), t.size.Slots[f])
		}
		h := ParseHeader(t.kernel.Slots(f, w.Set(), 1))
		owner := t.byID[h.Service]
		if owner == nil || rec != nil && owner != rec {
			return fmt.Errorf("%w: frontend %v leads to service %d, which has no name", ErrForeign, b.Addr, h.Service)
		}
		rec = owner
		rec.affinity = h.AffinitySeconds
		places[s] = place{there: true, at: w.Set(), count: w.Count()}
		if n, there := taken[f][w.Set()]; there && n != 1+w.Count() {
			return fmt.Errorf("%w: the set at %d has %d slots and %d", ErrForeign, w.Set(), n, 1+w.Count())
		}
		taken[f][w.Set()] = 1 + w.Count()
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
	t.frontends[b] = &frontend{id: id, owner: rec, refuses: refuses}
	return nil
}

// CopyTo fills the empty maps of another kernel with what is in these, and returns
// their table. Services keep their ids. Finish comes before.
func (t *Table) CopyTo(k Kernel, size Size) (*Table, error) {
	n := NewTable(k, size)
	n.last = t.last
	b := &batch{table: n}
	for _, key := range slices.SortedFunc(maps.Keys(t.services), dataplane.Key.Compare) {
		old := t.services[key]
		e := &edit{table: n, rec: &record{key: key, id: old.id}, plan: t.planOf(old)}
		if err := b.stage(e, func(Change, error) {}); err != nil {
			return nil, err
		}
	}
	return n, b.flush()
}

// MoveHits takes over what was counted in the maps that t was copied to. It is
// called when no program counts here any more.
func (t *Table) MoveHits(to *Table) {
	for v := range t.Services {
		if rec := to.services[v.Key]; rec != nil {
			rec.past = v.Hits
		}
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
