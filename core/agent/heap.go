package agent

import (
	"context"
	"os"
	"runtime/debug"
	rt "runtime/metrics"
	"sync"
	"time"
)

// garbageBytes is how much garbage may lie beside what is in use before it is
// collected, unless that is a tenth of it. The runtime would let as much lie as is in
// use: a store of a gigabyte would take two. It can be collected often, since nearly
// all of a large store is bytes that the collector does not look at.
const (
	garbageBytes   = 48 << 20
	garbagePercent = 10
	defaultPercent = 100 // the runtime's own
	heapEvery      = time.Second
)

// startHeap bounds the garbage of this process from now on, unless GOGC does.
func startHeap(c *cleanups) {
	if os.Getenv("GOGC") != "" {
		return
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(heapEvery)
		defer ticker.Stop()
		for {
			boundGarbage()
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	})
	c.add(func(context.Context) {
		close(stop)
		running.Wait()
	})
}

// boundGarbage looks at what is in use.
func boundGarbage() {
	now := []rt.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	rt.Read(now)
	want, is := percentOf(now[0].Value.Uint64()), now[1].Value.Uint64()
	// Not for every little: to set it stops all goroutines for a moment.
	if diff := max(want, is) - min(want, is); diff > is/8 {
		debug.SetGCPercent(int(want))
	}
}

// percentOf is how much of what is in use garbage may be.
func percentOf(live uint64) uint64 {
	return min(defaultPercent, max(garbagePercent, garbageBytes*100/max(live, 1)))
}
