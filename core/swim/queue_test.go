package swim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is a queue as one would write it without a thought for cost: a list in
// order of arrival at the present number of sends.
type twin struct{ list []*rumour }

func (q *twin) remove(r *rumour) {
	q.list = slices.DeleteFunc(q.list, func(o *rumour) bool { return o == r })
}

func (q *twin) stalest() *rumour {
	var s *rumour
	for _, r := range q.list {
		if s == nil || r.sends > s.sends {
			s = r
		}
	}
	return s
}

func (q *twin) bytes() (sum int) {
	for _, r := range q.list {
		sum += r.bytes
	}
	return sum
}

// TestQueueLikeItsTwin does the same to a queue and its dumb twin.
func TestQueueLikeItsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	var q queue
	var dumb twin
	all := make([]rumour, 50)
	for step := range 20_000 {
		r := &all[rng.IntN(len(all))]
		switch {
		case rng.IntN(3) == 0:
			q.remove(r) // queued or not
			dumb.remove(r)
		case !r.queued:
			r.sends, r.bytes = rng.IntN(12), 14+rng.IntN(100)
			q.push(r)
			dumb.list = append(dumb.list, r)
		default: // sent once more
			q.remove(r)
			dumb.remove(r)
			r.sends++
			q.push(r)
			dumb.list = append(dumb.list, r)
		}
		if q.count != len(dumb.list) || q.bytes != dumb.bytes() || q.stalest() != dumb.stalest() {
			t.Fatalf("step %d: %d rumours of %d bytes, twin %d of %d", step, q.count, q.bytes, len(dumb.list), dumb.bytes())
		}
		if r.queued != slices.Contains(dumb.list, r) {
			t.Fatalf("step %d: queued is %v", step, r.queued)
		}
		var order []*rumour
		for sends, level := range q.bySends {
			for _, o := range level {
				if o.sends != sends {
					t.Fatalf("step %d: a rumour sent %d times is among those sent %d times", step, o.sends, sends)
				}
			}
			order = append(order, level...)
		}
		want := slices.Clone(dumb.list)
		slices.SortStableFunc(want, func(a, b *rumour) int { return a.sends - b.sends })
		if !slices.Equal(order, want) {
			t.Fatalf("step %d: another order than the twin", step)
		}
	}
}
