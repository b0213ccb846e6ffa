package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
)

// maxTransaction bounds the elements of one transaction: the kernel holds its lock
// for that time, and others wait. Services are not split.
const maxTransaction = 20_000

// writer collects what to do, and does it.
type writer struct {
	tables   *Tables
	del, put elements
	size     int // of del and put
	ops      int
	picks    map[bool]map[pick]bool     // that are needed
	sticky   map[plan.Place]*plan.Entry // what entries with affinity become; nil: they go
	begun    bool                       // a transaction was sent
}

func newWriter(t *Tables) *writer {
	w := &writer{tables: t}
	w.clear()
	return w
}

func (w *writer) clear() {
	w.del, w.put, w.size = make(elements), make(elements), 0
	w.picks, w.sticky = map[bool]map[pick]bool{false: {}, true: {}}, make(map[plan.Place]*plan.Entry)
}

// replace deletes what is in was only, and adds what is in is only.
func (w *writer) replace(was, is elements) {
	w.remove(was, is)
	w.add(was, is)
}

// remove deletes of was what is not the same in is.
func (w *writer) remove(was, is elements) {
	for id, set := range was {
		for key, el := range set {
			if now, there := is[id][key]; !there || now != el {
				w.drop(id, key)
			}
		}
	}
}

func (w *writer) drop(id setID, key string) {
	w.del.put(id, []byte(key), element{})
	w.size++
	w.ops++
}

// add adds of is what is not the same in was.
func (w *writer) add(was, is elements) {
	for id, set := range is {
		for key, el := range set {
			if then, there := was[id][key]; !there || then != el {
				w.put.put(id, []byte(key), el)
				w.size++
				w.ops++
			}
		}
	}
}

// need makes sure of the chain that an entry goes to.
func (w *writer) need(c Change) {
	v6 := c.At.Addr.Addr().Is6()
	was, is := w.tables.sticky[c.At], sticky(c.New)
	if !was.Equal(is) {
		w.sticky[c.At] = is
		w.size++
	}
	if p := (pick{0, c.At.Side}); c.New != nil && is == nil && len(c.New.Slots) > 0 {
		if p.slots = len(c.New.Slots); !w.tables.picks[v6][p] {
			w.picks[v6][p] = true
		}
	}
}

// pause sends what there is if that is a lot. Until the end no generation is said
// to be applied.
func (w *writer) pause(ctx context.Context, was Mark) error {
	if w.size < maxTransaction {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	was.Instance = w.tables.options.Instance
	now := was
	now.State.Generation = 0
	if !w.begun {
		a, b := make(elements), make(elements)
		if w.tables.made {
			a.renderMark(was)
		}
		b.renderMark(now)
		w.replace(a, b)
	}
	return w.send()
}

// end sends the rest, with what is applied then.
func (w *writer) end(was, is Mark) error {
	a, b := make(elements), make(elements)
	if w.begun {
		was.State.Generation = 0
	}
	was.Instance, is.Instance = w.tables.options.Instance, w.tables.options.Instance
	if w.tables.made {
		a.renderMark(was)
	}
	b.renderMark(is)
	ops := w.ops
	w.replace(a, b)
	w.ops = ops
	if w.size == 0 {
		return nil
	}
	return w.send()
}

// send is one transaction.
func (w *writer) send() error {
	t := w.tables
	c, err := t.connect()
	if err != nil {
		return err
	}
	if !t.made {
		if err := t.build(c); err != nil {
			return err
		}
		t.dropKeep(c)
	}
	for _, f := range t.families {
		for p := range w.picks[f.v6] {
			if !t.picks[f.v6][p] {
				addChain(c, chain{nftables.Chain{Table: t.table(f), Name: p.chain()}, f.pick(p)})
				t.picks[f.v6][p] = true
			}
		}
	}
	for at, is := range w.sticky {
		f := familyOf(at)
		if err := f.stickyBefore(c, t.table(f), at, t.sticky[at], is); err != nil {
			return err
		}
	}
	if t.made { // what is new has nothing to delete
		if err := w.elements(w.del, c.SetDeleteElements); err != nil {
			return err
		}
	}
	if err := w.elements(w.put, c.SetAddElements); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		t.forget()
		t.Close() // answers may be left in it
		return fmt.Errorf("table %s: %w", Name(t.options.Instance), err)
	}
	t.made, w.begun = true, true
	err = t.dropOrphans(c)
	// Before Linux 6.2 a chain cannot go in the transaction that takes the last way to it.
	for at, is := range w.sticky {
		f := familyOf(at)
		f.stickyAfter(c, t.table(f), at, t.sticky[at], is)
		if t.sticky[at] = is; is == nil {
			delete(t.sticky, at)
		}
	}
	if err := errors.Join(err, c.Flush()); err != nil {
		t.forget()
		t.Close()
		return fmt.Errorf("table %s: %w", Name(t.options.Instance), err)
	}
	w.clear()
	return nil
}

func familyOf(at plan.Place) family {
	if at.Addr.Addr().Is6() {
		return families()[1]
	}
	return families()[0]
}

// elements adds messages, of at most 64 KiB.
func (w *writer) elements(all elements, add func(*nftables.Set, []nftables.SetElement) error) error {
	const most = 48 << 10
	for id, set := range all {
		f := families()[0]
		if id.v6 {
			f = families()[1]
		}
		s := f.set(w.tables.table(f), id.kind, id.side)
		var list []nftables.SetElement
		bytes := 0
		flush := func() error {
			defer func() { list, bytes = nil, 0 }()
			if len(list) == 0 {
				return nil
			}
			return add(s, list)
		}
		for key, el := range set {
			e := nftables.SetElement{Key: []byte(key), Val: []byte(el.data), Comment: el.comment}
			if id.kind == frontends {
				e.Val, e.VerdictData = nil, &expr.Verdict{Kind: expr.VerdictGoto, Chain: el.data}
			}
			list = append(list, e)
			if bytes += 40 + len(key) + len(el.data) + len(el.comment); bytes > most {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}
