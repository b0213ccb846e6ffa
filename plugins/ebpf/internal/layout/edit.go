package layout

import (
	"bytes"
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
)

// edit brings one service into the maps: prepare and insert do all that can fail,
// where no program looks or can be undone, and commit what cannot.
type edit struct {
	table *Table
	rec   *record
	plan  Plan
	known bool // the service is in the maps

	sets  [Families][Scopes]place
	fresh []retired                       // regions that were allocated
	added map[dataplane.Binding]*frontend // that shall lead here, new to the maps
	named bool
	ops   int
}

// prepare finds room for what is new and writes it into memory.
func (e *edit) prepare() error {
	t := e.table
	for f := range Families {
		if err := e.place(f); err != nil {
			return err
		}
	}
	if !e.known && uint32(len(t.byID)) >= t.size.Services {
		return fmt.Errorf("%w: the table of services is full (%d)", ErrFull, t.size.Services)
	}
	e.added = make(map[dataplane.Binding]*frontend)
	for _, fe := range e.plan.Frontends {
		if err := e.add(fe); err != nil {
			return err
		}
	}
	return nil
}

// insert lets the new frontends lead here, and names a new service before. It may
// be repeated.
func (e *edit) insert() error {
	t := e.table
	if !e.known {
		e.named = true
		if err := t.kernel.NameService(e.rec.id, e.rec.key); err != nil {
			return fmt.Errorf("its name: %w", err)
		}
	}
	for b, f := range e.added {
		if err := t.kernel.InsertFrontend(b, f.id); err != nil {
			return fmt.Errorf("frontend %v/%v: %w", b.Addr, b.Protocol, err)
		}
	}
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
	content := encode(f, Header{Service: e.rec.id, AffinitySeconds: e.plan.Affinity}, slots)
	for _, old := range e.rec.sets[f] {
		if old.there && old.count == len(slots) && bytes.Equal(t.kernel.Slots(f, old.at, 1+old.count), content) {
			return old, nil
		}
	}
	at, ok := t.regions[f].Alloc(1 + len(slots))
	if !ok {
		freed, err := t.reclaim()
		if err != nil {
			return place{}, err
		}
		if freed {
			at, ok = t.regions[f].Alloc(1 + len(slots))
		}
	}
	if !ok {
		return place{}, fmt.Errorf("%w: the table of %v endpoints is full: %d of %d slots are taken, %d more are needed in one piece",
			ErrFull, f, t.regions[f].Used(), t.regions[f].Size(), RegionSlots(1+len(slots)))
	}
	p := place{there: true, at: at, count: len(slots)}
	e.fresh = append(e.fresh, retired{f, p, e.rec})
	copy(t.kernel.Slots(f, at, 1+len(slots)), content)
	clear(t.kernel.Hits(f, at, 1+len(slots)))
	e.ops++
	return p, nil
}

// words are what a frontend of this service says.
func (e *edit) words(f Family, refuses bool) (home, foreign Publication) {
	flags := uint16(Published)
	if refuses {
		flags |= Refuses
	}
	if e.plan.Affinity > 0 {
		flags |= Sticky
	}
	at := e.sets[f]
	return NewPublication(at[Home].at, at[Home].count, flags), NewPublication(at[Foreign].at, at[Foreign].count, flags)
}

// add gives a frontend that is new to the maps an id. Its words are there before
// anything leads to them.
func (e *edit) add(fe dataplane.Frontend) error {
	t, b := e.table, fe.Binding()
	if t.frontends[b] != nil || e.added[b] != nil {
		return nil
	}
	id, ok := t.ids.Alloc()
	if !ok {
		freed, err := t.reclaim()
		if err != nil {
			return err
		}
		if freed {
			id, ok = t.ids.Alloc()
		}
	}
	if !ok {
		return fmt.Errorf("%w: the table of frontends is full (%d)", ErrFull, t.size.IDs())
	}
	home, foreign := e.words(FamilyOf(b.Addr.Addr()), fe.Refuses())
	t.kernel.Publish(id, home, foreign)
	e.added[b] = &frontend{id: id, owner: e.rec, refuses: fe.Refuses()}
	return nil
}

// undo takes back what prepare and insert did.
func (e *edit) undo() {
	t := e.table
	stuck := false
	for b, f := range e.added {
		if t.kernel.DeleteFrontend(b) != nil {
			// It stays an orphan, which leads to sets that must stay as well.
			t.frontends[b], t.orphans[b] = f, f
			stuck = true
			continue
		}
		t.gone = append(t.gone, f.id)
	}
	if stuck {
		t.late = append(t.late, e.fresh...)
	} else {
		t.retired = append(t.retired, e.fresh...)
	}
	if e.named {
		t.buried = append(t.buried, e.rec.id)
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
	for b, f := range e.added {
		t.frontends[b] = f
	}
	listed := make(map[dataplane.Binding]bool, len(e.plan.Frontends))
	for _, fe := range e.plan.Frontends {
		b := fe.Binding()
		listed[b] = true
		f := t.frontends[b]
		f.owner, f.refuses = rec, fe.Refuses()
		delete(t.orphans, b)
		e.publish(b, f)
	}
	dropped := false
	for _, fe := range old.frontends {
		if b := fe.Binding(); !listed[b] {
			t.orphan(b, rec)
			dropped = dropped || t.orphans[b] != nil
		}
	}
	if dropped || len(old.frontends) != len(e.plan.Frontends) {
		e.ops++
	}
	rec.sets, rec.affinity, rec.frontends = e.sets, e.plan.Affinity, e.plan.Frontends
	e.retire(&old, dropped)
}

// publish stores the words of a frontend if they are other than before.
func (e *edit) publish(b dataplane.Binding, f *frontend) {
	home, foreign := e.words(FamilyOf(b.Addr.Addr()), f.refuses)
	wasHome, wasForeign := e.table.kernel.Published(f.id)
	if home == wasHome && foreign == wasForeign {
		return
	}
	e.table.kernel.Publish(f.id, home, foreign)
	e.ops++
}

// retire gives up the sets that the service had and has no more. While a frontend
// that it dropped still leads to them they have to wait for it.
func (e *edit) retire(old *record, dropped bool) {
	t := e.table
	to := &t.retired
	if dropped {
		to = &t.late
	}
	for f := range Families {
		for s := range Scopes {
			p := old.sets[f][s]
			if !p.there || s == Foreign && p == old.sets[f][Home] || p == e.sets[f][Home] || p == e.sets[f][Foreign] {
				continue
			}
			*to = append(*to, retired{f, p, e.rec})
		}
	}
}
