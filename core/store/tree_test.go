package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// TestTree compares the tree with a map, and copies with what they were. It grows,
// and shrinks to nothing.
func TestTree(t *testing.T) {
	for seed := range uint64(scale.N(40)) {
		r := rand.New(rand.NewPCG(seed, 2))
		var tr tree
		var a arena
		want := map[string]entry{}
		type seen struct {
			tree tree
			want map[string]entry
		}
		var copies []seen
		for step := range 6000 {
			key := fmt.Sprintf("%04d", r.IntN(3000))
			switch _, there := want[key]; {
			case step < 600 && seed%2 == 0: // in order
				key = fmt.Sprintf("%04d", step)
				fallthrough
			case r.IntN(6000) > step || !there && r.IntN(2) == 0:
				e := want[key].with(a.add(key, version{mod: int64(step + 1)}))
				want[key] = e
				tr.set(&a, e)
			case there:
				delete(want, key)
				tr.remove(&a, key)
			}
			if step%500 == 0 {
				copies = append(copies, seen{tr.copy(), maps.Clone(want)})
			}
		}
		for _, c := range append(copies, seen{tr, want}) {
			treeIs(t, seed, &c.tree, &a, c.want)
		}
		for key := range want {
			tr.remove(&a, key)
		}
		treeIs(t, seed, &tr, &a, nil)
		if tr.root.leaf == nil {
			t.Fatalf("seed %d: the empty tree has more than one node", seed)
		}
	}
}

func treeIs(t *testing.T, seed uint64, tr *tree, a *arena, want map[string]entry) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	var got []string
	tr.ascend(a, "", func(e entry) bool { got = append(got, a.key(e.latest)); return true })
	if !slices.Equal(got, keys) || tr.keys != len(keys) {
		t.Fatalf("invariant views-stay: seed %d: the tree has %d keys, %v\nwant %v", seed, tr.keys, got, keys)
	}
	for _, key := range []string{"", "0500", "05005", "2999x"} {
		var first []string
		tr.ascend(a, key, func(e entry) bool { first = append(first, a.key(e.latest)); return false })
		i, _ := slices.BinarySearch(keys, key)
		if i == len(keys) != (first == nil) || first != nil && first[0] != keys[i] {
			t.Fatalf("seed %d: from %q on the tree has %v", seed, key, first)
		}
	}
	for i := range 3000 {
		key := fmt.Sprintf("%04d", i)
		e, there := tr.get(a, key)
		w, ok := want[key]
		if there != ok || e.latest != w.latest || !slices.Equal(e.older, w.older) {
			t.Fatalf("invariant views-stay: seed %d: key %s is %v, want %v", seed, key, e, w)
		}
	}
}
