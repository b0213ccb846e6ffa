package raft

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPropose writes 256 bytes by so many writers at once, to groups on the
// disk of the temporary directory, whose messages stay in the process.
func BenchmarkPropose(b *testing.B) {
	value := strings.Repeat("v", 256)
	for _, servers := range []int{1, 3} {
		for _, writers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("servers=%d/writers=%d", servers, writers), func(b *testing.B) {
				g := newGroup(b, servers, Sizes{})
				g.tick = 100 * time.Millisecond
				h := g.leader()
				g.put(h, "first", value)
				var next atomic.Int64
				b.SetParallelism(writers)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						r, err := h.Propose(b.Context(), putOf(fmt.Sprint("key-", next.Add(1)%100_000), value))
						if err != nil || r.Err != nil {
							b.Error(err, r.Err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			})
		}
	}
}

// BenchmarkRead makes linearizable reads.
func BenchmarkRead(b *testing.B) {
	for _, readers := range []int{1, 64} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			g := newGroup(b, 3, Sizes{})
			h := g.leader()
			g.put(h, "a", "1")
			b.SetParallelism(readers)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := h.Read(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
		})
	}
}
