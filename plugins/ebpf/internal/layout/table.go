package layout

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// ErrFull is wrapped by what does not fit. Nothing of it was programmed.
var ErrFull = errors.New("layout: no room")

// Table knows what is where in the maps of one kernel. It is not safe for use by
// several goroutines.
//
// A generation is any number of Set and Remove, then Finish: only then are
// frontends deleted that nobody took over, so that a frontend which moves from one
// service to another is never without an answer.
type Table struct {
	kernel  Kernel
	size    Size
	regions [Families]*Regions
	indexes [Families]*Index
	places  *IDs // of services

	services  map[dataplane.Key]*record
	byID      map[uint32]*record
	frontends map[dataplane.Binding]*frontend
	last      uint32 // the largest service id so far; 0 is nobody's

	used    [Families]uint32                // entries of frontends
	orphans map[dataplane.Binding]*frontend // of nobody since this generation
	late    []retired                       // regions to retire when these are deleted
	retired []retired                       // until the next grace
	gone    []gone                          // entries of frontends, likewise
	left    []uint32                        // places, likewise
	buried  []*record                       // services to forget
}

// record is one service in the maps.
type record struct {
	key       dataplane.Key
	id        uint32
	at        uint32 // its place
	sets      [Families][Scopes]place
	affinity  uint32
	frontends []dataplane.Frontend // Kind is not kept: only whether it refuses counts
	parked    map[uint64]uint64    // hits of endpoints without a slot, by id; in Past as well
}

// places yields where the sets of a service are that have slots, each once.
func (rec *record) places() iter.Seq2[Family, place] {
	return func(yield func(Family, place) bool) {
		for f := range Families {
			for s, p := range rec.sets[f] {
				if p.count > 0 && (Scope(s) == Home || p != rec.sets[f][Home]) && !yield(f, p) {
					return
				}
			}
		}
	}
}

// place is where a set is; Foreign is the same as Home where they are shared. A set
// without slots is the place of its service.
type place struct {
	there bool
	at    uint32
	count int // slots
}

// frontend is an address in the maps.
type frontend struct {
	entry   uint32
	owner   *record
	refuses bool
}

// retired is a region that programs may still read, and count in.
type retired struct {
	family Family
	place  place
	rec    *record
}

// gone is an entry that programs may have found.
type gone struct {
	entry   uint32
	binding dataplane.Binding
}

// Change is what Set and Remove did.
type Change struct {
	Operations int      // changes to the maps
	Vanished   []uint64 // endpoints that were in the maps and that the service has no more
	ID         uint32   // of the service in the maps; 0: it was not there
}

// NewTable returns the table of a kernel whose maps are empty.
func NewTable(k Kernel, size Size) *Table {
	t := &Table{
		kernel: k, size: size, places: NewIDs(size.Services),
		services: make(map[dataplane.Key]*record), byID: make(map[uint32]*record),
		frontends: make(map[dataplane.Binding]*frontend), orphans: make(map[dataplane.Binding]*frontend),
	}
	for f := range Families {
		t.regions[f] = NewRegions(size.Slots[f])
		entries, foreign := k.Frontends(f)
		t.indexes[f] = NewIndex(f, entries, foreign)
	}
	return t
}

// Size is how much the maps hold.
func (t *Table) Size() Size { return t.size }

// Len is how many services are in the maps.
func (t *Table) Len() int { return len(t.services) }

// Has reports whether a service is in the maps.
func (t *Table) Has(k dataplane.Key) bool { return t.services[k] != nil }

// Keys are the services in the maps, in no order.
func (t *Table) Keys() []dataplane.Key { return slices.Collect(maps.Keys(t.services)) }

// ID is the id of a service in the maps; 0 if it is not there.
func (t *Table) ID(k dataplane.Key) uint32 {
	if rec := t.services[k]; rec != nil {
		return rec.id
	}
	return 0
}

// Key is the service of an id, as long as it is in the maps.
func (t *Table) Key(id uint32) (dataplane.Key, bool) {
	rec := t.byID[id]
	if rec == nil {
		return dataplane.Key{}, false
	}
	return rec.key, true
}

// LastService is the largest id of a service so far. A table that takes over must
// not give out any up to it.
func (t *Table) LastService() uint32 { return t.last }

// SkipServices makes sure that no id up to last is given out.
func (t *Table) SkipServices(last uint32) { t.last = max(t.last, last) }

// Set makes the maps say of a service what plan says; has are the ids of all its
// endpoints, sorted, also of those that take no connections. On an error, which
// wraps ErrFull or is of a grace, the maps say what they said before.
func (t *Table) Set(k dataplane.Key, plan Plan, has []uint64) (Change, error) {
	rec, known := t.services[k]
	if !known {
		rec = t.newRecord(k)
	}
	e := &edit{table: t, rec: rec, plan: plan, has: has, known: known}
	if err := e.prepare(); err != nil {
		e.undo()
		return Change{}, fmt.Errorf("service %s: %w", k, err)
	}
	before := t.endpoints(rec)
	e.commit()
	c := Change{Operations: e.ops, ID: rec.id}
	for _, id := range before {
		if _, still := slices.BinarySearch(has, id); !still {
			c.Vanished = append(c.Vanished, id)
		}
	}
	return c, nil
}

// newRecord gives a service an id. It has no place before it is prepared, and is not
// in the table before it is committed.
func (t *Table) newRecord(k dataplane.Key) *record {
	t.last++
	return &record{key: k, id: t.last}
}

// Remove takes a service out of the maps; its frontends go with Finish.
func (t *Table) Remove(k dataplane.Key) Change {
	rec := t.services[k]
	if rec == nil {
		return Change{}
	}
	c := Change{Operations: 1, Vanished: t.endpoints(rec), ID: rec.id}
	delete(t.services, k)
	for _, f := range rec.frontends {
		t.orphan(f.Binding(), rec)
	}
	t.retireSets(rec, &t.late)
	t.buried = append(t.buried, rec)
	return c
}

// orphan notes that a frontend is not rec's any more, if it still was.
func (t *Table) orphan(b dataplane.Binding, rec *record) {
	if f := t.frontends[b]; f != nil && f.owner == rec {
		t.orphans[b] = f
	}
}

// retireSets gives up all sets of a service.
func (t *Table) retireSets(rec *record, to *[]retired) {
	for f, p := range rec.places() {
		*to = append(*to, retired{f, p, rec})
	}
	rec.sets = [Families][Scopes]place{}
}

// Finish ends a generation.
func (t *Table) Finish() (operations int) {
	for b, f := range t.orphans {
		t.index(b).Leave(f.entry)
		operations++
		delete(t.frontends, b)
		t.gone = append(t.gone, gone{f.entry, b})
	}
	clear(t.orphans)
	t.retired = append(t.retired, t.late...)
	t.late = nil
	for _, rec := range t.buried {
		leaveService(t.kernel.Service(rec.at), rec.id)
		if t.byID[rec.id] == rec {
			delete(t.byID, rec.id)
		}
		t.left = append(t.left, rec.at)
	}
	t.buried = nil
	return operations
}

// index is where a frontend is.
func (t *Table) index(b dataplane.Binding) *Index { return t.indexes[FamilyOf(b.Addr.Addr())] }

// reclaim makes free what is retired; false: nothing was.
func (t *Table) reclaim() (bool, error) {
	if len(t.retired) == 0 && len(t.gone) == 0 && len(t.left) == 0 {
		return false, nil
	}
	if err := t.kernel.Grace(); err != nil {
		return false, fmt.Errorf("grace period: %w", err)
	}
	for _, r := range t.retired {
		if t.byID[r.rec.id] == r.rec {
			takeAway(t.hand(r, r.rec.sets)) // what was counted since it was given up
		}
		t.regions[r.family].Free(r.place.at)
	}
	for _, g := range t.gone {
		t.index(g.binding).Free(g.entry, g.binding)
		t.used[FamilyOf(g.binding.Addr.Addr())]--
	}
	for _, at := range t.left {
		t.places.Free(at)
	}
	t.retired, t.gone, t.left = nil, nil, nil
	return true, nil
}

// endpoints are the ids in the sets of a service, sorted, each once.
func (t *Table) endpoints(rec *record) []uint64 {
	var ids []uint64
	for f, p := range rec.places() {
		set, n := t.set(f, p), f.SlotWords()
		for ; len(set) >= n; set = set[n:] {
			ids = append(ids, set[idWord(f)])
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// set is the memory of a set, empty if it has no slots.
func (t *Table) set(f Family, p place) []uint64 {
	if p.count == 0 {
		return nil
	}
	return t.kernel.Slots(f, p.at, p.count)
}

// slots reads the endpoints of a set.
func (t *Table) slots(f Family, p place) []Slot { return ParseSlots(t.set(f, p), f) }
