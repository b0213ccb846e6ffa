package kv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// failover kills leaders under a put each millisecond.
func (b *bench) failover(out *strings.Builder) {
	b.t.Helper()
	gap := &figure{name: "longest time between two answers, ms", format: "%.0f", bar: 0.5, limit: 500}
	slowest := &figure{name: "  in the slowest trial", format: "%.0f", bar: 1, limit: 2000}
	all := b.clusters()
	for trial := range b.plan.trials {
		for k := range all {
			c := all[(trial+k)%len(all)]
			gap.add(c.name, float64(c.lose().Microseconds())/1000)
		}
	}
	for _, c := range all {
		slowest.add(c.name, spreadOf(gap.values[c.name]).high)
	}
	b.show(out, fmt.Sprintf("kill -9 of the leader, %d times", b.plan.trials), gap, slowest)
}

// lose kills the leader under a put each millisecond and returns the longest time
// without an answer. Then the member is back.
func (c *cluster) lose() time.Duration {
	c.t.Helper()
	const (
		spacing = time.Millisecond
		limit   = time.Second // of a put, after which it is given up
		enough  = 200         // answers to puts that were sent after the kill
	)
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	leader := c.leader()
	var killed atomic.Int64 // unix ns; 0: not yet
	var before, after atomic.Int64
	var mu sync.Mutex
	last, longest := time.Time{}, time.Duration(0)
	answered := func(sent time.Time) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if !last.IsZero() {
			longest = max(longest, now.Sub(last))
		}
		last = now
		if at := killed.Load(); at != 0 && sent.UnixNano() > at {
			after.Add(1)
		} else {
			before.Add(1)
		}
	}
	var all sync.WaitGroup
	var over atomic.Bool
	all.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		begun := time.Now()
		for n := 0; !over.Load(); n++ {
			if d := time.Until(begun.Add(time.Duration(n) * spacing)); d > 0 {
				pause(d)
			}
			k, v, on := key(r.IntN(keySpace)), value(r), c.conns[n%servers]
			all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				sent := time.Now()
				if on.put(ctx, k, v) == nil {
					answered(sent)
				}
			})
		}
	})
	until := func(n *atomic.Int64, what string) {
		for deadline := time.Now().Add(patience); n.Load() < enough; pause(time.Millisecond) {
			if time.Now().After(deadline) {
				c.t.Errorf("%s: %d answers to puts %s in %v\n%s", c.name, n.Load(), what, patience, c.said())
				return
			}
		}
	}
	until(&before, "before the leader is killed")
	mu.Lock()
	longest = 0 // of what follows
	mu.Unlock()
	killed.Store(time.Now().UnixNano())
	c.members[leader].signal()
	until(&after, "after the leader was killed")
	over.Store(true)
	all.Wait()
	c.members[leader].wait()
	c.members[leader].start()
	c.serving()
	return longest
}
