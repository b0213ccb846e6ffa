package transport

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/raft"
)

// BenchmarkPropose writes 256 bytes at a time, by so many writers, at the leader or
// at a follower, of three servers in this process, each with a log on disk.
func BenchmarkPropose(b *testing.B) {
	g := newGroup(b, func(g *group) { g.sizes, g.election = raft.Sizes{}, time.Second })
	leader := g.leader()
	follower := g.hosts[leader.ID()%3+1]
	value := strings.Repeat("v", 256)
	for _, at := range []struct {
		name string
		host *raft.Host
	}{{"leader", leader}, {"follower", follower}} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", at.name, writers), func(b *testing.B) {
				w := g.wires[at.host.ID()]
				asks, cpu := w.counted(w.metrics.asks), cpuTime(b)
				var all sync.WaitGroup
				for i := range writers {
					all.Go(func() {
						for n := i; n < b.N; n += writers {
							g.put(at.host, fmt.Sprint("key-", n%1000), value)
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
				b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-us/write") // of all three servers
				if at.host == follower {
					b.ReportMetric(float64(b.N)/(w.counted(w.metrics.asks)-asks), "writes/call")
				}
			})
		}
	}
	if now := g.leader(); now != leader {
		b.Error("another server leads now")
	}
}

// cpuTime returns what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
