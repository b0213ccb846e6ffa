package kv

import (
	"math"
	"sync/atomic"
	"time"
)

// histogram counts times in buckets of 2 %, from a microsecond up.
type histogram struct{ buckets [1024]atomic.Int64 }

var step = math.Log(1.02)

func (h *histogram) add(d time.Duration) {
	us := max(1, float64(d.Nanoseconds())/1000)
	h.buckets[min(int(math.Log(us)/step), len(h.buckets)-1)].Add(1)
}

// quantile is in ms; NaN if nothing was counted.
func (h *histogram) quantile(q float64) float64 {
	var all, sum int64
	for i := range h.buckets {
		all += h.buckets[i].Load()
	}
	for i := range h.buckets {
		if sum += h.buckets[i].Load(); all > 0 && float64(sum) >= q*float64(all) {
			return math.Exp((float64(i)+0.5)*step) / 1000
		}
	}
	return math.NaN()
}
