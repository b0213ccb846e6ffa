package view_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/test/scale"
)

func TestApplyIsBuild(t *testing.T) {
	for seed := range uint64(scale.N(400)) {
		w := newWorld(seed)
		v := view.New(self, 100)
		for step := range 60 {
			e := w.next()
			next := view.Apply(v, e)
			if next != v && next.Epoch != v.Epoch+1 {
				t.Fatalf("seed %d step %d: epoch %d after %d", seed, step, next.Epoch, v.Epoch)
			}
			if next != v && dump(next) == dump(v) && !recordsDiffer(next, v) {
				t.Fatalf("seed %d step %d: %T made a view that says the same as before\n%s", seed, step, e, dump(v))
			}
			v = next
			built := view.Build(self, v.Epoch, v.Completeness, slices.Collect(v.Nodes()))
			if got, want := dump(v), dump(built); got != want {
				t.Fatalf("seed %d step %d: after %T%+v\nApply\n%s\nBuild\n%s", seed, step, e, e, got, want)
			}
		}
	}
}

// recordsDiffer reports whether records differ in something that dump leaves out:
// instances of no consequence, such as those of dead nodes.
func recordsDiffer(a, b *view.View) bool {
	for n := range a.Nodes() {
		if n.Record != b.Node(n.ID).Record {
			return true
		}
	}
	return false
}

func TestDiffIsWhatDiffers(t *testing.T) {
	for seed := range uint64(scale.N(100)) {
		w := newWorld(seed)
		views := []*view.View{nil, view.New(self, 1)}
		for range 80 {
			views = append(views, view.Apply(views[len(views)-1], w.next()))
		}
		is := views[len(views)-1]
		foreign := view.Build(self, 1, view.Exchanged, slices.Collect(views[40].Nodes()))
		for i, was := range append(views, foreign) {
			var got []string
			for _, c := range view.Diff(was, is) {
				got = append(got, c.Key.String())
				if c.New != is.Service(c.Key) || was != nil && c.Old != was.Service(c.Key) {
					t.Fatalf("seed %d: view %d: change of %v holds other services", seed, i, c.Key)
				}
			}
			if want := brute(was, is); !slices.Equal(got, want) {
				t.Fatalf("seed %d: view %d to the last: Diff %v, want %v", seed, i, got, want)
			}
		}
	}
}

func brute(was, is *view.View) []string {
	keys := map[model.ServiceKey]string{}
	for s := range is.Services() {
		keys[s.Key] = dumpService(s)
	}
	if was != nil {
		for s := range was.Services() {
			if keys[s.Key] == dumpService(s) {
				delete(keys, s.Key)
			} else {
				keys[s.Key] = ""
			}
		}
	}
	var out []string
	for _, k := range slices.SortedFunc(maps.Keys(keys), model.ServiceKey.Compare) {
		out = append(out, k.String())
	}
	return out
}

func TestDiffFromBeforeTheRememberedRemovals(t *testing.T) {
	old := view.New(self, 1)
	v := apply(t, old, view.Seen{Member: member(other, model.StateAlive), Record: rec([]model.Service{service("stays", 1)})})
	first := v
	var early *view.View // has a service whose removal is not remembered
	for i := range 5000 {
		v = view.Apply(v, view.Seen{Member: member(3, model.StateAlive), Record: rec([]model.Service{service(fmt.Sprintf("s%d", i), 1)})})
		if i == 0 {
			early = v
		}
	}
	for _, was := range []*view.View{old, first, early} {
		var got []string
		for _, c := range view.Diff(was, v) {
			got = append(got, c.Key.String())
		}
		if want := brute(was, v); !slices.Equal(got, want) {
			t.Errorf("from epoch %d: %v, want %v", was.Epoch, got, want)
		}
	}
}

// An older view stays what it was, whatever is made of it.
func TestViewsAreImmutable(t *testing.T) {
	w := newWorld(7)
	var views []*view.View
	var said []string
	v := view.New(self, 1)
	for range 300 {
		v = view.Apply(v, w.next())
		views, said = append(views, v), append(said, dump(v))
	}
	for i := range views {
		if dump(views[i]) != said[i] {
			t.Fatalf("view %d changed", i)
		}
	}
}
