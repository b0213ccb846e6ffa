package layout

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
)

// edit brings one service into the maps: prepare does all that can fail, where no
// program looks, and commit the rest.
type edit struct {
	table *Table
	rec   *record
	plan  Plan
	has   []uint64 // ids of all endpoints, sorted
	known bool     // the service is in the maps

	sets  [Families][Scopes]place
	fresh []retired  // regions that were allocated
	added []addition // frontends that shall lead here, new to the maps
	named bool       // the service has its place
	ops   int
}

// addition is a frontend that is new to the maps.
type addition struct {
	binding dataplane.Binding
	*frontend
}

// prepare finds room for what is new and writes it into memory.
func (e *edit) prepare() error {
	if !e.known {
		if err := e.settle(); err != nil {
			return err
		}
	}
	for f := range Families {
		if err := e.place(f); err != nil {
			return err
		}
	}
	for _, fe := range e.plan.Frontends {
		if err := e.add(fe); err != nil {
			return err
		}
	}
	return nil
}

// settle gives a new service its place.
func (e *edit) settle() error {
	t := e.table
	at, ok := t.places.Alloc()
	if !ok {
		freed, err := t.reclaim()
		if err != nil {
			return err
		}
		if freed {
			at, ok = t.places.Alloc()
		}
	}
	if !ok {
		return fmt.Errorf("%w: the table of services is full (%d)", ErrFull, t.size.Services)
	}
	e.rec.at, e.named = at, true
	putService(t.kernel.Service(at), Owned{ID: e.rec.id, AffinitySeconds: e.plan.Affinity, Key: e.rec.key})
	return nil
}

// place finds or keeps the sets of a family.
func (e *edit) place(f Family) error {
	if !e.plan.Needs[f] {
		return nil
	}
	for s := range Scopes {
		if s == Foreign && e.plan.Shared[f] {
			e.sets[f][Foreign] = e.sets[f][Home]
			break
		}
		p, err := e.write(f, s)
		if err != nil {
			return err
		}
		e.sets[f][s] = p
	}
	return nil
}

// write returns where a set is: where it was, if nothing changed, or in a new place.
func (e *edit) write(f Family, s Scope) (place, error) {
	t, slots := e.table, e.plan.Slots[f][s]
	if len(slots) == 0 {
		return place{there: true, at: e.rec.at}, nil
	}
	for _, old := range e.rec.sets[f] {
		if old.count == len(slots) && e.same(t.set(f, old), f, slots) {
			return old, nil
		}
	}
	at, ok := t.regions[f].Alloc(len(slots))
	if !ok {
		freed, err := t.reclaim()
		if err != nil {
			return place{}, err
		}
		if freed {
			at, ok = t.regions[f].Alloc(len(slots))
		}
	}
	if !ok {
		return place{}, fmt.Errorf("%w: the table of %v endpoints is full: %d of %d slots are taken, %d more are needed in one piece",
			ErrFull, f, t.regions[f].Used(), t.regions[f].Size(), RegionSlots(len(slots)))
	}
	p := place{there: true, at: at, count: len(slots)}
	e.fresh = append(e.fresh, retired{f, p, e.rec})
	set, n := t.set(f, p), f.SlotWords()
	for i, slot := range slots {
		putSlot(set[i*n:(i+1)*n], f, slot, e.owner())
	}
	e.ops++
	return p, nil
}

func (e *edit) owner() Owner { return Owner{Service: e.rec.id, Place: e.rec.at} }

// same reports whether a set has these slots.
func (e *edit) same(set []uint64, f Family, slots []Slot) bool {
	n := f.SlotWords()
	for i, slot := range slots {
		if !sameSlot(set[i*n:(i+1)*n], f, slot, e.owner()) {
			return false
		}
	}
	return true
}

// words are what a frontend of this service says.
func (e *edit) words(f Family, refuses bool) (home, foreign Publication) {
	return words(e.sets[f], e.plan.Affinity > 0, refuses)
}

// add gives a frontend that is new to the maps an entry. Its words are there before
// anything leads to them.
func (e *edit) add(fe dataplane.Frontend) error {
	t, b := e.table, fe.Binding()
	if t.frontends[b] != nil || slices.ContainsFunc(e.added, func(a addition) bool { return a.binding == b }) {
		return nil
	}
	f, x := FamilyOf(b.Addr.Addr()), t.index(b)
	entry, ok := uint32(0), false
	for range 2 {
		if t.used[f] < t.size.Frontends[f] {
			if entry, ok = x.Alloc(b); ok {
				break
			}
		}
		if freed, err := t.reclaim(); err != nil || !freed {
			if err != nil {
				return err
			}
			break
		}
	}
	if !ok {
		return fmt.Errorf("%w: the table of %v frontends is full: %d of %d are taken", ErrFull, f, t.used[f], t.size.Frontends[f])
	}
	t.used[f]++
	home, foreign := e.words(f, fe.Refuses())
	x.Publish(entry, home, foreign)
	e.added = append(e.added, addition{b, &frontend{entry: entry, owner: e.rec, refuses: fe.Refuses()}})
	return nil
}

// undo takes back what prepare did. No program has seen any of it, but nothing is
// free without a grace, so that there is one rule.
func (e *edit) undo() {
	t := e.table
	for _, a := range e.added {
		t.index(a.binding).Leave(a.entry)
		t.gone = append(t.gone, gone{a.entry, a.binding})
	}
	t.retired = append(t.retired, e.fresh...)
	if e.named {
		t.buried = append(t.buried, e.rec)
	}
}

// commit lets the service's frontends lead to its new sets.
func (e *edit) commit() {
	t, rec := e.table, e.rec
	old := *rec
	e.ops += len(e.added)
	if !e.known {
		t.services[rec.key], t.byID[rec.id] = rec, rec
		e.ops++
	}
	for _, a := range e.added {
		t.frontends[a.binding] = a.frontend
		t.index(a.binding).Lead(a.entry, a.binding)
	}
	var given []retired // sets that the service had and has no more
	for f, p := range old.places() {
		if p != e.sets[f][Home] && p != e.sets[f][Foreign] {
			given = append(given, retired{f, p, rec})
		}
	}
	var hits []handed
	for _, r := range given {
		hits = append(hits, t.hand(r, e.sets)...)
	}
	t.unpark(rec, e.sets, e.has)
	if e.plan.Affinity != rec.affinity && e.known {
		atomic.StoreUint64(&t.kernel.Service(rec.at)[serviceHead], pair(rec.id, e.plan.Affinity))
		e.ops++
	}
	for _, fe := range e.plan.Frontends {
		b := fe.Binding()
		f := t.frontends[b]
		f.owner, f.refuses = rec, fe.Refuses()
		delete(t.orphans, b)
		e.publish(b, f)
	}
	takeAway(hits)
	dropped := false
	for _, fe := range old.frontends {
		b := fe.Binding()
		if !slices.ContainsFunc(e.plan.Frontends, func(f dataplane.Frontend) bool { return f.Binding() == b }) {
			t.orphan(b, rec)
			dropped = dropped || t.orphans[b] != nil
		}
	}
	if dropped || len(old.frontends) != len(e.plan.Frontends) {
		e.ops++
	}
	rec.sets, rec.affinity, rec.frontends = e.sets, e.plan.Affinity, e.plan.Frontends
	// While a frontend that it dropped still leads to them they have to wait for it.
	if dropped {
		t.late = append(t.late, given...)
	} else {
		t.retired = append(t.retired, given...)
	}
}

// publish stores the words of a frontend if they are other than before.
func (e *edit) publish(b dataplane.Binding, f *frontend) {
	home, foreign := e.words(FamilyOf(b.Addr.Addr()), f.refuses)
	x := e.table.index(b)
	wasHome, wasForeign := x.Published(f.entry)
	if home == wasHome && foreign == wasForeign {
		return
	}
	x.Publish(f.entry, home, foreign)
	e.ops++
}
