package store

import (
	"container/heap"
	"math"
	"time"
)

// Lessor says on the leader when leases end. It is a value of one goroutine.
// Times are what a monotonic clock reads, since whenever: a wall clock that is
// set must not end a lease.
//
// Only the leader knows deadlines. A new one gives every lease its whole time
// again, see Extend, so that a lease never ends early, and lets it end by a Revoke
// that is fenced by its term. The others have a Lessor as well, and keep it up to
// what was granted and revoked.
type Lessor struct {
	terms map[Lease]*term
	queue queue
}

// Lease names a lease.
type Lease struct {
	Space Keyspace
	ID    LeaseID
}

// term is the time that a lease has.
type term struct {
	lease    Lease
	ttl      time.Duration
	deadline time.Duration // it ends, on the clock
	next     time.Duration // Due names it, at deadline or when it is to be tried again
	place    int           // in the queue
}

// retryRevoke is when Due names a lease again that should have ended.
const retryRevoke = time.Second

// NewLessor returns one in which all leases of a view have their whole time from
// now on.
func NewLessor(v *View, now time.Duration) *Lessor {
	l := &Lessor{terms: map[Lease]*term{}}
	for _, k := range []Keyspace{User, System} {
		v.Leases(k, func(id LeaseID, ttlSeconds int64) bool {
			l.Granted(Lease{k, id}, ttlSeconds, now)
			return true
		})
	}
	return l
}

// Granted adds a lease.
func (l *Lessor) Granted(id Lease, ttlSeconds int64, now time.Duration) {
	l.Revoked(id)
	t := &term{lease: id, ttl: seconds(ttlSeconds)}
	t.deadline = t.from(now)
	t.next = t.deadline
	l.terms[id] = t
	heap.Push(&l.queue, t)
}

// Extend gives all leases their whole time from now on: this server just became
// leader, and does not know who renewed what.
func (l *Lessor) Extend(now time.Duration) {
	for _, t := range l.terms {
		t.deadline = t.from(now)
		t.next = t.deadline
	}
	heap.Init(&l.queue)
}

// Revoked removes a lease; one that is not there is no matter.
func (l *Lessor) Revoked(id Lease) {
	if t, ok := l.terms[id]; ok {
		heap.Remove(&l.queue, t.place)
		delete(l.terms, id)
	}
}

// Renew gives a lease its whole time again and returns it. It is false if the
// lease is not there or is over: what ends is not brought back.
func (l *Lessor) Renew(id Lease, now time.Duration) (time.Duration, bool) {
	t, ok := l.terms[id]
	if !ok || t.deadline <= now {
		return 0, false
	}
	t.deadline = t.from(now)
	t.next = t.deadline
	heap.Fix(&l.queue, t.place)
	return t.ttl, true
}

// Left returns how long a lease still has, at least 0; false if it is not there.
func (l *Lessor) Left(id Lease, now time.Duration) (time.Duration, bool) {
	t, ok := l.terms[id]
	if !ok {
		return 0, false
	}
	return max(t.deadline-now, 0), true
}

// Due returns at most limit leases that are over and not revoked. They are named
// again after a second, should the Revoke be lost.
func (l *Lessor) Due(now time.Duration, limit int) []Lease {
	var due []Lease
	for len(due) < limit && len(l.queue) > 0 && l.queue[0].next <= now {
		t := l.queue[0]
		due = append(due, t.lease)
		t.next = now + retryRevoke
		heap.Fix(&l.queue, 0)
	}
	return due
}

// Next returns when Due has something next; false if there is no lease.
func (l *Lessor) Next() (time.Duration, bool) {
	if len(l.queue) == 0 {
		return 0, false
	}
	return l.queue[0].next, true
}

// from returns when a lease ends that has its whole time from now on. The longest
// one is nearly as long as a duration can be.
func (t *term) from(now time.Duration) time.Duration {
	if now > math.MaxInt64-t.ttl {
		return math.MaxInt64
	}
	return now + t.ttl
}

func seconds(n int64) time.Duration { return time.Duration(min(n, MaxTTLSeconds)) * time.Second }

// queue is a heap of leases, the one that is due first on top.
type queue []*term

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next < q[j].next }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*term)
	t.place = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return t
}
