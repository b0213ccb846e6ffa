package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// world is a correct store with clients, one after the other in truth, at the same
// time as far as they know.
type world struct {
	r        *rand.Rand
	now      int64
	revision int64
	items    map[string]Item
	events   map[int64][]Event
	wrote    map[int64]int64 // when
	h        History
}

const worldKeys = 3

// newWorld makes a history of n calls, some without an answer, and of two watches.
func newWorld(seed uint64, n int) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 1)), revision: 1, items: map[string]Item{}, events: map[int64][]Event{}, wrote: map[int64]int64{}}
	for i := range n {
		w.call(i)
	}
	w.watch("n1", 2)
	w.watch("n2", 2)
	w.watch("n2", 2+w.revision/2)
	return w
}

func (w *world) call(i int) {
	w.now += 100
	o := Operation{Client: i, Server: fmt.Sprintf("n%d", i%2), Kind: Kind(1 + w.r.IntN(4)), Key: fmt.Sprint("k", w.r.IntN(worldKeys)), Outcome: Done}
	o.Call, o.Return = w.now-w.r.Int64N(250), w.now+1+w.r.Int64N(250)
	value := fmt.Sprint("v", i)
	was := w.items[o.Key]
	lost := w.r.IntN(8) == 0
	happens := !lost || w.r.IntN(2) == 0
	switch o.Kind {
	case Get:
		o.Answer = Answer{Revision: w.revision, Item: was}
	case Put:
		if o.Value = value; w.r.IntN(3) == 0 {
			o.Also = o.Key + "/also"
		}
		if happens {
			w.write(o.keys(), value, false)
		}
		o.Answer = Answer{Revision: w.revision, Done: true}
	case Delete:
		if was.Modified != 0 && happens {
			w.write(o.keys(), "", true)
		}
		o.Answer = Answer{Revision: w.revision, Done: was.Modified != 0}
	case Swap:
		o.Value, o.Expect = value, was.Modified
		if w.r.IntN(3) == 0 {
			o.Expect = 1
			o.Answer = Answer{Revision: w.revision, Item: was}
			break
		}
		if happens {
			w.write(o.keys(), value, false)
		}
		o.Answer = Answer{Revision: w.revision, Done: true}
	}
	if lost {
		o.Outcome, o.Answer = Unknown, Answer{}
	}
	w.h.Operations = append(w.h.Operations, o)
}

func (w *world) write(keys []string, value string, remove bool) {
	w.revision++
	w.wrote[w.revision] = w.now
	for _, key := range keys {
		was := w.items[key]
		now := Item{Value: value, Created: was.Created, Modified: w.revision, Version: was.Version + 1}
		if was.Modified == 0 {
			now.Created = w.revision
		}
		e := Event{Key: key, Item: now, Before: &was}
		if remove {
			e.Deleted, e.Item = true, Item{Modified: w.revision}
			now = Item{}
		}
		w.items[key] = now
		w.events[w.revision] = append(w.events[w.revision], e)
	}
}

// watch shows all events from a revision, a few revisions at a time.
func (w *world) watch(name string, from int64) {
	s := Stream{Name: name, From: from}
	for at := from; at <= w.revision; {
		b := Batch{}
		for n := 1 + w.r.IntN(3); n > 0 && at <= w.revision; n-- {
			b.Events, b.Revision, b.At = append(b.Events, w.events[at]...), at, w.wrote[at]+50
			at++
		}
		s.Batches = append(s.Batches, b, Batch{Revision: b.Revision, At: b.At})
	}
	w.h.Streams = append(w.h.Streams, s)
}

// clone is what lies are told in.
func (h History) clone() History {
	out := History{Operations: slices.Clone(h.Operations)}
	for _, s := range h.Streams {
		s.Batches = slices.Clone(s.Batches)
		for i := range s.Batches {
			s.Batches[i].Events = slices.Clone(s.Batches[i].Events)
		}
		out.Streams = append(out.Streams, s)
	}
	return out
}
