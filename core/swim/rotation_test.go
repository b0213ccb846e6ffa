package swim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// TestRotationVisitsAll adds and removes members at random and checks that no
// member is picked twice before each that was there all the time was picked.
func TestRotationVisitsAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var r rotation
	waits := map[*member]int{} // picks since the last of its own
	next := model.NodeID(1)
	picked := map[*member]int{}
	for range 20_000 {
		switch n := rng.IntN(20); {
		case n == 0 && len(r.list) < 40:
			m := &member{id: next}
			next++
			r.add(m, rng)
			waits[m] = 0
		case n == 1 && len(r.list) > 0:
			m := r.list[rng.IntN(len(r.list))]
			r.remove(m)
			r.remove(m) // once is enough
			delete(waits, m)
		default:
			m := r.pick(rng, isAny)
			if m == nil {
				if len(r.list) > 0 {
					t.Fatal("nobody was picked from a list with members")
				}
				continue
			}
			if _, known := waits[m]; !known {
				t.Fatalf("%v was removed and picked", m.id)
			}
			picked[m]++
			for o := range waits {
				waits[o]++
			}
			waits[m] = 0
			for o, w := range waits {
				if w > 2*40 {
					t.Fatalf("%v has waited for %d picks", o.id, w)
				}
			}
		}
	}
	if len(picked) < 100 {
		t.Fatalf("%d members were ever picked", len(picked))
	}
}

func TestRotationPicksWhatIsAccepted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var r rotation
	if r.pick(rng, isAny) != nil {
		t.Fatal("picked from nothing")
	}
	for i := range 10 {
		r.add(&member{id: model.NodeID(i + 1), value: model.Value{State: model.State(i % 3)}}, rng)
	}
	for range 100 {
		if m := r.pick(rng, isDead); m == nil || m.value.State != model.StateDead {
			t.Fatalf("picked %+v", m)
		}
	}
	if m := r.pick(rng, func(*member) bool { return false }); m != nil {
		t.Fatalf("picked %v against the will", m.id)
	}
}

// TestSample compares both ways of sampling with what they promise: distinct,
// accepted, as many as there are up to k, and everybody in the long run.
func TestSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, 2, 3, 4, 24, 25, 200} {
		var r rotation
		for i := range size {
			r.add(&member{id: model.NodeID(i + 1)}, rng)
		}
		for _, odd := range []bool{false, true} {
			ok := func(m *member) bool { return !odd || m.id%20 == 1 }
			accepted := 0
			for _, m := range r.list {
				if ok(m) {
					accepted++
				}
			}
			found := map[*member]bool{}
			for range 2000 {
				got := r.sample(3, rng, ok)
				if len(got) != min(3, accepted) {
					t.Fatalf("%d of %d accepted", len(got), accepted)
				}
				once := map[*member]bool{}
				for _, m := range got {
					if once[m] || !ok(m) {
						t.Fatalf("%v twice, or not accepted", m.id)
					}
					once[m], found[m] = true, true
				}
			}
			if len(found) != accepted {
				t.Fatalf("%d of %d were ever drawn", len(found), accepted)
			}
		}
	}
}

// TestRTT follows RFC 6298 §2 by hand.
func TestRTT(t *testing.T) {
	const ms = time.Millisecond
	var r rtt
	if got := r.wait(10*ms, 500*ms); got != 500*ms {
		t.Fatalf("unmeasured: %v", got)
	}
	r.sample(80 * ms)
	if r.smoothed != 80*ms || r.variance != 40*ms || r.wait(10*ms, 500*ms) != 240*ms {
		t.Fatalf("first: %+v", r)
	}
	r.sample(40 * ms) // variance 40 + (40-40)/4, smoothed 80 - 40/8
	if r.smoothed != 75*ms || r.variance != 40*ms {
		t.Fatalf("second: %+v", r)
	}
	r.sample(115 * ms) // variance 40 + (40-40)/4, smoothed 75 + 40/8
	if r.smoothed != 80*ms || r.variance != 40*ms {
		t.Fatalf("third: %+v", r)
	}
	if got := r.wait(10*ms, 100*ms); got != 100*ms {
		t.Fatalf("ceiling: %v", got)
	}
	if got := r.wait(300*ms, 500*ms); got != 300*ms {
		t.Fatalf("floor: %v", got)
	}
}
