package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// TestArena reads back versions of all sizes, also after they were moved.
func TestArena(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	type added struct {
		ref
		key string
		version
	}
	var a arena
	var all []added
	for i := range scale.N(5000) {
		n := []int{0, 1, 200, maxSharedBytes, 300_000}[r.IntN(5)]
		v := version{
			mod: r.Int64N(1 << uint(1+r.IntN(60))), number: r.Int64N(1 << 40), lease: LeaseID(r.Uint64()), place: r.Int32(),
			value: bytes.Repeat([]byte{byte(i)}, n),
		}
		v.create = r.Int64N(v.mod + 1)
		if n == 0 {
			v.value = nil
		}
		key := fmt.Sprintf("%0*d", 1+r.IntN(300), i)
		all = append(all, added{a.add(key, v), key, v})
	}
	for moved := range 2 {
		for i, w := range all {
			got := a.version(w.ref)
			if a.key(w.ref) != w.key || a.mod(w.ref) != w.mod || !bytes.Equal(got.value, w.value) || digestOf(w.key, got) != digestOf(w.key, w.version) {
				t.Fatalf("moved %d times, version %d is %s %+v, want %s %+v", moved, i, a.key(w.ref), got, w.key, w.version)
			}
			all[i].ref = a.move(w.ref)
		}
		a.sweep()
	}
	for _, w := range all {
		a.drop(w.ref)
	}
	a.sweep()
	if n := a.held(); n > slabBytes {
		t.Fatalf("%d bytes are held although no version counts", n)
	}
}

// held is how many bytes all slabs have.
func (a *arena) held() int {
	n := 0
	for _, slab := range a.slabs {
		n += len(slab)
	}
	return n
}

// TestSlabs writes values of all sizes and compacts now and then. What is compacted
// is let go of, but not what a view has.
func TestSlabs(t *testing.T) {
	for seed := range uint64(scale.N(40)) {
		r := rand.New(rand.NewPCG(seed, 4))
		m := NewMachine()
		type seen struct {
			view *View
			hash uint32
		}
		var views []seen
		keep := func() {
			v := m.View()
			hash, _, _, err := v.HashAt(User, 0)
			if err != nil {
				t.Fatal(err)
			}
			views = append(views, seen{v, hash})
		}
		for step := range 3000 {
			key := fmt.Sprintf("key-%d", r.IntN(300))
			c := Command{Space: User}
			switch n := r.IntN(300); {
			case n < 250:
				c.Op = &Op{Put: &PutOp{Key: key, Value: bytes.Repeat([]byte(key), r.IntN(1+r.IntN(1<<r.IntN(12))))}}
			case n < 299:
				c.Op = &Op{Delete: &DeleteOp{Range: Range{Key: key}}}
			default:
				keep()
				c.Compact = &Compact{Revision: m.user.revision - r.Int64N(20)}
			}
			m.Apply(uint64(step+1), 1, []Command{c})
			if c.Compact == nil || m.user.compacted != c.Compact.Revision {
				continue
			}
			sinceTheCompaction(t, m.View())
			if n, most := m.user.arena.held(), 3*int(m.user.bytes)+2*slabBytes; n > most {
				t.Fatalf("seed %d: slabs of %d bytes hold %d", seed, n, m.user.bytes)
			}
			keep()
			if r.IntN(3) == 0 {
				m = restored(t, m.View())
			}
		}
		for _, v := range views {
			if hash, _, _, err := v.view.HashAt(User, 0); err != nil || hash != v.hash {
				t.Fatalf("invariant views-stay: seed %d: the view of entry %d changed: hash %x, %v, want %x", seed, v.view.index, hash, err, v.hash)
			}
			sinceTheCompaction(t, v.view)
		}
	}
}

// TestJournalStays compacts what is in one slab with what is not: a slab that a watch
// may still ask for stays where it is.
func TestJournalStays(t *testing.T) {
	m := NewMachine()
	put := func(key string, bytes int) {
		m.Apply(1, 1, []Command{{Space: User, Op: &Op{Put: &PutOp{Key: key, Value: make([]byte, bytes)}}}})
	}
	for range 200 {
		put("k", 700)
	}
	first := m.user.arena.slabs
	for range 200 {
		put("k", 700)
	}
	for n := range first {
		m.Apply(1, 1, []Command{{Space: User, Compact: &Compact{Revision: m.user.revision - 399 + int64(n*20)}}})
		for _, r := range slices.Concat(append(m.user.journal.full, m.user.journal.tail)...) {
			if m.user.arena.slabs[r.slab()] == nil {
				t.Fatalf("invariant history: compacted at %d, a version of the journal is gone", m.user.compacted)
			}
		}
	}
}

// sinceTheCompaction looks at all that a watch is told.
func sinceTheCompaction(t *testing.T, v *View) {
	t.Helper()
	last, stats := int64(0), v.Stats(User)
	if err := v.Since(User, Range{Key: "k", End: FromKey}, stats.Compacted, func(e Event) bool {
		if last != 0 && e.KV.Mod != last+1 || e.KV.Mod < stats.Compacted {
			t.Fatalf("invariant history: after revision %d came %d", last, e.KV.Mod)
		}
		if e.KV.Version > 1 && e.KV.Mod > stats.Compacted && (e.Prev == nil || e.Prev.Version != e.KV.Version-1) {
			t.Fatalf("invariant history: before %s of revision %d there was %v", e.KV.Key, e.KV.Mod, e.Prev)
		}
		last = e.KV.Mod
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if last != 0 && last != stats.Revision {
		t.Fatalf("invariant history: the last revision is %d, want %d", last, stats.Revision)
	}
}
