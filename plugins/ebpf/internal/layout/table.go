package layout

import (
	"errors"
	"fmt"
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
	ids     *IDs

	services  map[dataplane.Key]*record
	byID      map[uint32]*record
	frontends map[dataplane.Binding]*frontend
	last      uint32 // the largest service id so far; 0 is nobody's

	orphans map[dataplane.Binding]*frontend // of nobody since this generation
	late    []retired                       // regions to retire when these are deleted
	retired []retired                       // until the next grace
	gone    []uint32                        // ids, likewise
	buried  []uint32                        // service ids to forget
}

// record is one service in the maps.
type record struct {
	key       dataplane.Key
	id        uint32
	sets      [Families][Scopes]place
	affinity  uint32
	frontends []dataplane.Frontend // Kind is not kept: only whether it refuses counts
	past      Tally                // of regions that were given up
}

// place is where a set is; Foreign is the same as Home where they are shared.
type place struct {
	there bool
	at    uint32
	count int // slots, the header not counted
}

// frontend is an address in the maps.
type frontend struct {
	id      uint32
	owner   *record
	refuses bool
}

// retired is a region that programs may still read, and whose hits are not added
// up yet.
type retired struct {
	family Family
	place  place
	rec    *record
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
		kernel: k, size: size, ids: NewIDs(size.IDs()),
		services: make(map[dataplane.Key]*record), byID: make(map[uint32]*record),
		frontends: make(map[dataplane.Binding]*frontend), orphans: make(map[dataplane.Binding]*frontend),
	}
	for f := range Families {
		t.regions[f] = NewRegions(size.Slots[f])
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
// wraps ErrFull or is of the kernel, the maps say what they said before.
func (t *Table) Set(k dataplane.Key, plan Plan, has []uint64) (Change, error) {
	rec, known := t.services[k]
	if !known {
		rec = t.newRecord(k)
	}
	e := &edit{table: t, rec: rec, plan: plan, known: known}
	err := e.prepare()
	if err == nil {
		err = e.insert()
	}
	if err != nil {
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

// newRecord gives a service an id. It is not in the table before it is committed.
func (t *Table) newRecord(k dataplane.Key) *record {
	t.last++
	return &record{key: k, id: t.last}
}

// Remove takes a service out of the maps, as far as Finish succeeds.
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
	t.buried = append(t.buried, rec.id)
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
	for f := range Families {
		for s, p := range rec.sets[f] {
			if p.there && (Scope(s) == Home || p != rec.sets[f][Home]) {
				*to = append(*to, retired{f, p, rec})
			}
		}
		rec.sets[f] = [Scopes]place{}
	}
}

// Finish ends a generation. On an error what is left is tried again by the next.
func (t *Table) Finish() (operations int, err error) {
	for b, f := range t.orphans {
		if err := t.kernel.DeleteFrontend(b); err != nil {
			return operations, fmt.Errorf("frontend %v/%v: %w", b.Addr, b.Protocol, err)
		}
		operations++
		delete(t.orphans, b)
		delete(t.frontends, b)
		t.gone = append(t.gone, f.id)
	}
	t.retired = append(t.retired, t.late...)
	t.late = nil
	for len(t.buried) > 0 {
		id := t.buried[len(t.buried)-1]
		if err := t.kernel.ForgetService(id); err != nil {
			return operations, fmt.Errorf("the name of service %d: %w", id, err)
		}
		t.buried = t.buried[:len(t.buried)-1]
		delete(t.byID, id)
	}
	return operations, nil
}

// reclaim makes free what is retired; false: nothing was.
func (t *Table) reclaim() (bool, error) {
	if len(t.retired) == 0 && len(t.gone) == 0 {
		return false, nil
	}
	if err := t.kernel.Grace(); err != nil {
		return false, fmt.Errorf("grace period: %w", err)
	}
	for _, r := range t.retired {
		r.rec.past.add(t.kernel, r.family, r.place)
		t.regions[r.family].Free(r.place.at)
	}
	for _, id := range t.gone {
		t.kernel.Publish(id, 0, 0)
		t.ids.Free(id)
	}
	t.retired, t.gone = nil, nil
	return true, nil
}

// endpoints are the ids in the sets of a service, sorted, each once.
func (t *Table) endpoints(rec *record) []uint64 {
	var ids []uint64
	for f := range Families {
		for s := range Scopes {
			if p := rec.sets[f][s]; p.there && (s == Home || p != rec.sets[f][Home]) {
				for _, slot := range t.slots(f, p) {
					ids = append(ids, slot.ID)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// slots reads the endpoints of a set.
func (t *Table) slots(f Family, p place) []Slot {
	return ParseSlots(t.kernel.Slots(f, p.at, 1+p.count)[f.SlotBytes():], f)
}
