package swim_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// targets returns whom the node pings in the next periods.
func targets(r *rig, periods int) []model.NodeID {
	r.t.Helper()
	var ids []model.NodeID
	for len(ids) < periods {
		r.forget()
		r.run(r.cfg.ProbePeriod)
		for _, p := range r.of(wire.Ping) {
			ids = append(ids, p.Subject)
		}
	}
	return ids[:periods]
}

// passes cuts a sequence of targets into traversals: where the cut lies is
// found by trying each.
func passes(ids []model.NodeID, n int) [][]model.NodeID {
	for cut := range n {
		var all [][]model.NodeID
		whole := true
		for i := cut; i+n <= len(ids); i += n {
			pass := ids[i : i+n]
			sorted := slices.Clone(pass)
			slices.Sort(sorted)
			whole = whole && len(slices.Compact(sorted)) == n
			all = append(all, pass)
		}
		if whole {
			return all
		}
	}
	return nil
}

// SWIM §4.3: "The failure detection protocol at member Mi works by maintaining
// a list (intuitively, an array) of the known elements of the current
// membership list, and selecting ping targets not randomly from this list, but
// in a round-robin fashion."
func TestPaperRoundRobin(t *testing.T) {
	r := with(t, 2, 12)
	if passes(targets(r, 110), 11) == nil {
		t.Fatal("a member was pinged twice before another was pinged once")
	}
}

// SWIM §4.3: "On completing a traversal of the entire list, Mi rearranges the
// membership list to a random reordering."
func TestPaperReshuffledEachPass(t *testing.T) {
	r := with(t, 2, 12)
	all := passes(targets(r, 110), 11)
	for i := 1; i < len(all); i++ {
		if slices.Equal(all[i], all[i-1]) {
			t.Fatalf("passes %d and %d have one order: %v", i-1, i, all[i])
		}
	}
}

// SWIM §4.3: "Whenever a new member joins the group, it is inserted in the
// membership list at a position that is chosen uniformly at random."
// Deviation: at random among those still to come in this pass, so that it is
// probed in this pass already.
func TestPaperNewMemberAtARandomPlace(t *testing.T) {
	r := newRig(t)
	for i := 2; i <= 9; i++ {
		r.add(i)
	}
	places := [4]int{} // by quarters of what is still to come
	for i := 20; i < 100; i++ {
		targets(r, 1) // the pass has begun
		r.add(i)
		left := len(r.peers) - 1
		place := slices.Index(targets(r, left), model.NodeID(i))
		if place < 0 {
			t.Fatalf("the newcomer is not probed among the %d still to come", left)
		}
		places[4*place/left]++
	}
	for _, n := range places {
		if n < 8 {
			t.Fatalf("places by quarters: %v, want about 20 each", places)
		}
	}
}

// SWIM §4.3: "successive selections of the same target are at most (2·ni − 1)
// protocol periods apart", hence Time Bounded Completeness: a failure is
// detected by every member within that time.
//
// DESIGN §4: "Per period T = 1 s one probe to the next target of a shuffled
// list (new members enter at a random place; reshuffle each pass)."
func TestPaperTimeBoundedCompleteness(t *testing.T) {
	const n = 11
	r := with(t, 2, n+1)
	last := map[model.NodeID]int{}
	longest := 0
	for i, id := range targets(r, 400*n) {
		if at, ok := last[id]; ok {
			longest = max(longest, i-at)
		}
		last[id] = i
	}
	if longest > 2*n-1 {
		t.Fatalf("%d periods between two probes of one member, want at most %d", longest, 2*n-1)
	}
	if longest < n+1 {
		t.Fatal("always in one order")
	}
	r.forget()
	target := r.peer(6)
	target.mute = true
	crashed := r.now
	r.until(r.now.Add(3*n*r.cfg.ProbePeriod), func() bool { return r.event(swim.EventSuspected) != nil })
	if took := r.now.Sub(crashed); took > 2*n*r.cfg.ProbePeriod {
		t.Fatalf("detected after %v", took)
	}
}
