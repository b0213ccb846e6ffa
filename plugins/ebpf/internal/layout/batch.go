package layout

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
)

// Entry is a service to bring into the maps, as for Set.
type Entry struct {
	Key  dataplane.Key
	Plan Plan
	Has  []uint64
}

// batchSize is how many services go into the maps together.
const batchSize = 1024

// SetAll is Set for many services: those that are new to the maps share system
// calls. done is told of each entry, by its index, how that went; one that fails
// leaves the others alone.
func (t *Table) SetAll(entries []Entry, done func(i int, c Change, err error)) {
	b := &batch{table: t}
	for i, entry := range entries {
		if !b.fits(entry) {
			b.flush()
			c, err := t.Set(entry.Key, entry.Plan, entry.Has)
			done(i, c, err)
			continue
		}
		e := &edit{table: t, rec: t.newRecord(entry.Key), plan: entry.Plan}
		b.stage(e, func(c Change, err error) { done(i, c, err) })
	}
	b.flush()
}

// batch is edits of services that are new to the maps, as are their frontends.
// All are prepared, none is inserted.
type batch struct {
	table *Table
	edits []*edit
	done  []func(Change, error)
	leads map[dataplane.Binding]bool // of the edits
	keys  map[dataplane.Key]bool     // likewise
}

// fits reports whether an entry is new in all respects, also beside those that are
// staged. What is not has something to take over, and is better set by itself.
func (b *batch) fits(entry Entry) bool {
	t := b.table
	if t.services[entry.Key] != nil || b.keys[entry.Key] {
		return false
	}
	for _, f := range entry.Plan.Frontends {
		if t.frontends[f.Binding()] != nil || b.leads[f.Binding()] {
			return false
		}
	}
	return true
}

// stage prepares an edit; done is told what became of it, at once if there is no
// room. The error is of any edit that was done with.
func (b *batch) stage(e *edit, done func(Change, error)) error {
	t := b.table
	var err error
	if len(b.edits) == batchSize || uint32(len(t.byID)+len(b.edits)) >= t.size.Services {
		err = b.flush()
	}
	if problem := e.prepare(); problem != nil {
		e.undo()
		problem = fmt.Errorf("service %s: %w", e.rec.key, problem)
		done(Change{}, problem)
		return errors.Join(err, problem)
	}
	if b.edits == nil {
		b.leads, b.keys = make(map[dataplane.Binding]bool, batchSize), make(map[dataplane.Key]bool, batchSize)
	}
	b.edits, b.done = append(b.edits, e), append(b.done, done)
	b.keys[e.rec.key] = true
	for lead := range e.added {
		b.leads[lead] = true
	}
	return err
}

// flush brings all edits into the maps: together, or one by one if that fails, so
// that it is known which of them cannot be.
func (b *batch) flush() (err error) {
	together := b.insert() == nil
	for i, e := range b.edits {
		var problem error
		if !together {
			problem = e.insert()
		}
		if problem != nil {
			e.undo()
			problem = fmt.Errorf("service %s: %w", e.rec.key, problem)
			b.done[i](Change{}, problem)
			err = errors.Join(err, problem)
			continue
		}
		e.commit()
		b.done[i](Change{Operations: e.ops, ID: e.rec.id}, nil)
	}
	b.edits, b.done, b.leads, b.keys = nil, nil, nil, nil
	return err
}

// insert is that of all edits.
func (b *batch) insert() error {
	if len(b.edits) == 0 {
		return nil
	}
	names, leads := make([]Name, 0, len(b.edits)), make([]Lead, 0, len(b.leads))
	for _, e := range b.edits {
		e.named = true
		names = append(names, Name{e.rec.id, e.rec.key})
		for binding, f := range e.added {
			leads = append(leads, Lead{binding, f.id})
		}
	}
	if err := b.table.kernel.NameServices(names); err != nil {
		return err
	}
	return b.table.kernel.InsertFrontends(leads)
}
