package health

import (
	"container/heap"
	"time"
)

// firstWithin bounds the wait for a check's first probe.
const firstWithin = time.Second

// firstDue spreads first probes over firstWithin, or an interval if that is
// shorter, so that checks that were set together do not fire together. u is in
// [0, 1).
func firstDue(now time.Time, interval time.Duration, u float64) time.Time {
	return now.Add(part(min(interval, firstWithin), u))
}

// nextDue is when the next probe starts, if that which was due at prev has
// ended now. It keeps the rate and so the spread; a probe that is a whole
// interval late is not made up for, and takes a new place in the round.
//
// The first probes of checks with long intervals crowd in the first second;
// their second ones come half to one interval later, which spreads them.
func nextDue(prev, now time.Time, interval time.Duration, first bool, u float64) time.Time {
	if first && interval > firstWithin {
		return later(prev.Add(interval-part(interval/2, u)), now)
	}
	if next := prev.Add(interval); now.Sub(next) <= interval {
		return later(next, now)
	}
	return now.Add(part(interval, u))
}

func part(d time.Duration, u float64) time.Duration { return time.Duration(u * float64(d)) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// queue holds checks that wait for their time, the earliest first.
type queue []*entry

// put adds e, or moves it to its new time.
func (q *queue) put(e *entry, due time.Time) {
	e.due = due
	if e.place >= 0 {
		heap.Fix(q, e.place)
		return
	}
	heap.Push(q, e)
}

// drop takes e out if it is in.
func (q *queue) drop(e *entry) {
	if e.place >= 0 {
		heap.Remove(q, e.place)
	}
}

// take takes out the earliest if its time has come; else it returns nil.
func (q *queue) take(now time.Time) *entry {
	if len(*q) == 0 || (*q)[0].due.After(now) {
		return nil
	}
	return heap.Pop(q).(*entry)
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.place = -1
	return e
}
