package history

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// TestTruth: no history of a correct store is rejected, with its watches or without.
func TestTruth(t *testing.T) {
	for seed := range uint64(scale.N(500)) {
		w := newWorld(seed, 120)
		if err := w.h.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// Without watches each call of an unknown outcome doubles the possibilities.
		if err := Linearizable(newWorld(seed, 40).h.Operations); err != nil {
			t.Fatalf("seed %d, without watches: %v", seed, err)
		}
		state, err := w.h.State(w.revision)
		if err != nil {
			t.Fatal(err)
		}
		for key, item := range w.items {
			if item != state[key] {
				t.Fatalf("seed %d: %s is %v, by the watches %v", seed, key, item, state[key])
			}
		}
	}
}

// TestLies: each lie is found, by its name.
func TestLies(t *testing.T) {
	for _, lie := range []struct {
		name, found string
		tell        func(*History) bool // false: there is nothing to lie about
	}{
		{"acknowledged write lost", "no watch has shown that", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.writes() }, func(o *Operation) { o.Answer.Revision += 1000 })
		}},
		{"stale read", "revisions go back", func(h *History) bool {
			return h.stale()
		}},
		{"stale read of one key", "porcupine", func(h *History) bool {
			return h.stale()
		}},
		{"stale read older than one before", "at n0 revisions go back", func(h *History) bool {
			var before *Operation
			for i := range h.Operations {
				o := &h.Operations[i]
				if o.Kind != Get || o.Outcome != Done {
					continue
				}
				o.Server, o.Stale = "n0", true
				if before != nil && before.Return < o.Call {
					o.Answer = Answer{Revision: 1} // which is the truth
					return true
				}
				if o.Answer.Revision > 1 {
					before = o
				}
			}
			return false
		}},
		{"dirty read", "at that revision it was", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Get && o.Outcome == Done }, func(o *Operation) { o.Answer.Item.Value += "x" })
		}},
		{"refused write happened", "the call was", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Put && o.writes() }, func(o *Operation) { o.Outcome = Refused })
		}},
		{"write that nobody made", "nobody called for that", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Put && o.writes() }, func(o *Operation) { o.Kind = Get })
		}},
		{"swap in spite of another value", "before that it was", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Swap && o.writes() }, func(o *Operation) { o.Expect += 3 })
		}},
		{"swap refused for nothing", "that is what the key was at", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Swap && o.Outcome == Done && !o.Answer.Done }, func(o *Operation) { o.Expect = o.Answer.Item.Modified })
		}},
		{"one write, two answers", "another call made that revision", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Put && o.writes() }, func(o *Operation) { h.Operations = append(h.Operations, *o) })
		}},
		{"event left out", "not reliable", func(h *History) bool {
			return h.events(0, func(all []Batch) []Batch { return slices.Delete(all, len(all)/2, len(all)/2+2) })
		}},
		{"event twice", "not unique", func(h *History) bool {
			return h.events(0, func(all []Batch) []Batch { return append(all, all[len(all)-2]) })
		}},
		{"events out of order", "not ordered", func(h *History) bool {
			return h.events(0, func(all []Batch) []Batch { all[2], all[4] = all[4], all[2]; return all })
		}},
		{"event older than asked for", "not resumable", func(h *History) bool {
			h.Streams[2].From += 2
			return true
		}},
		{"bookmark too early", "not bookmarkable", func(h *History) bool {
			return h.events(0, func(all []Batch) []Batch { all[1].Revision = all[len(all)-1].Revision; return all })
		}},
		{"transaction in two pieces", "not atomic", func(h *History) bool {
			for i, b := range h.Streams[0].Batches {
				for j := 1; j < len(b.Events); j++ {
					if b.Events[j].Item.Modified == b.Events[j-1].Item.Modified {
						first, second := b, b
						first.Events, second.Events = b.Events[:j], b.Events[j:]
						h.Streams[0].Batches = slices.Replace(h.Streams[0].Batches, i, i+1, first, second)
						return true
					}
				}
			}
			return false
		}},
		{"two truths", "elsewhere", func(h *History) bool {
			return h.event(0, func(e *Event) bool { return !e.Deleted }, func(e *Event) { e.Item.Value = "other" })
		}},
		{"wrong value before", "it says that there was", func(h *History) bool {
			for i := range h.Streams {
				if !h.event(i, func(e *Event) bool { return e.Item.Modified == 20 }, func(e *Event) { e.Before = &Item{Value: "x", Modified: 1} }) {
					return i == 2
				}
			}
			return true
		}},
		{"seen before it was called for", "before anybody called", func(h *History) bool {
			return h.operation(func(o *Operation) bool { return o.Kind == Put && o.writes() }, func(o *Operation) {
				for i, b := range h.Streams[0].Batches {
					if len(b.Events) > 0 && b.Events[0].Item.Modified <= o.Answer.Revision {
						h.Streams[0].Batches[i].At = -1000
					}
				}
				o.Outcome, o.Answer = Unknown, Answer{}
			})
		}},
	} {
		t.Run(lie.name, func(t *testing.T) {
			told := 0
			for seed := range uint64(scale.N(100)) {
				h := newWorld(seed, 120).h.clone()
				if !lie.tell(&h) {
					continue
				}
				told++
				if err := h.Check(); err == nil || !strings.Contains(err.Error(), lie.found) {
					t.Fatalf("seed %d: want %q in: %v", seed, lie.found, err)
				}
			}
			if told < scale.N(100)/3 {
				t.Errorf("the lie was told %d times only", told)
			}
		})
	}
}

// TestLinearizableAlone: porcupine finds without watches what it can find.
func TestLinearizableAlone(t *testing.T) {
	put := func(client int, value string, from, to, at int64) Operation {
		return Operation{Client: client, Kind: Put, Key: "k", Value: value, Call: from, Return: to, Outcome: Done, Answer: Answer{Revision: at, Done: true}}
	}
	get := func(from, to, at int64, value string, modified int64) Operation {
		return Operation{Client: 9, Kind: Get, Key: "k", Call: from, Return: to, Outcome: Done, Answer: Answer{Revision: at, Item: Item{Value: value, Modified: modified}}}
	}
	lost := func(o Operation) Operation {
		o.Outcome, o.Answer = Unknown, Answer{}
		return o
	}
	for _, test := range []struct {
		name  string
		calls []Operation
		right bool
	}{
		{"in order", []Operation{put(1, "a", 1, 2, 2), get(3, 4, 2, "a", 2)}, true},
		{"stale", []Operation{put(1, "a", 1, 2, 2), put(1, "b", 3, 4, 3), get(5, 6, 3, "a", 2)}, false},
		{"lost", []Operation{put(1, "a", 1, 2, 2), get(5, 6, 2, "", 0)}, false},
		{"unknown, happened late", []Operation{lost(put(1, "a", 1, 2, 0)), get(3, 4, 1, "", 0), get(5, 6, 2, "a", 2)}, true},
		{"unknown, never happened", []Operation{lost(put(1, "a", 1, 2, 0)), get(3, 4, 1, "", 0), get(5, 6, 1, "", 0)}, true},
		{"unknown, happened and went away", []Operation{lost(put(1, "a", 1, 2, 0)), get(3, 4, 2, "a", 2), get(5, 6, 2, "", 0)}, false},
		{"unknown deletion", []Operation{put(1, "a", 1, 2, 2), lost(Operation{Kind: Delete, Key: "k", Call: 3}), get(4, 5, 3, "", 0)}, true},
		{"unknown at two revisions", []Operation{lost(put(1, "a", 1, 2, 0)), get(3, 4, 2, "a", 2), get(5, 6, 3, "a", 3)}, false},
		{"revision used twice", []Operation{put(1, "a", 1, 9, 2), put(2, "b", 1, 9, 2)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := Linearizable(test.calls); (err == nil) != test.right {
				t.Errorf("want right = %v: %v", test.right, err)
			}
		})
	}
}

// operation tells a lie about a call in the middle that it can be told about.
func (h *History) operation(fits func(*Operation) bool, tell func(*Operation)) bool {
	for i := len(h.Operations) / 2; i < len(h.Operations); i++ {
		if o := &h.Operations[i]; fits(o) {
			tell(o)
			return true
		}
	}
	return false
}

// event is the same about an event of a stream.
func (h *History) event(stream int, fits func(*Event) bool, tell func(*Event)) bool {
	for _, b := range h.Streams[stream].Batches {
		for i := range b.Events {
			if fits(&b.Events[i]) {
				tell(&b.Events[i])
				return true
			}
		}
	}
	return false
}

func (h *History) events(stream int, tell func([]Batch) []Batch) bool {
	h.Streams[stream].Batches = tell(h.Streams[stream].Batches)
	return true
}

// wrote reports whether an item was written between two moments, and not around one.
func (h *History) wrote(item Item, from, to int64) bool {
	for _, o := range h.Operations {
		if o.writes() && o.Answer.Revision == item.Modified {
			return o.Call > from && o.Return < to
		}
	}
	return false
}

// stale has a read answer what a much older one has answered.
func (h *History) stale() bool {
	for i, old := range h.Operations {
		if old.Kind != Get || old.Outcome != Done {
			continue
		}
		for j := i + 1; j < len(h.Operations); j++ {
			if o := &h.Operations[j]; o.Kind == Get && o.Outcome == Done && o.Key == old.Key && h.wrote(o.Answer.Item, old.Return, o.Call) {
				o.Answer = old.Answer
				return true
			}
		}
	}
	return false
}
