package kv

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sample is what one window showed.
type sample struct {
	rate     float64 // answers a second
	p50, p99 float64 // ms
	server   float64 // CPU of all members for each answer, µs
	client   float64 // CPU of this process for each answer, µs
	failed   int64   // requests
}

// tally counts answers while it is open.
type tally struct {
	open    atomic.Bool
	ok      atomic.Int64
	failed  atomic.Int64
	latency histogram
	mu      sync.Mutex
	err     error // the first
}

func (l *tally) add(since time.Time, err error) {
	switch {
	case err != nil:
		l.failed.Add(1)
		l.mu.Lock()
		if l.err == nil {
			l.err = err
		}
		l.mu.Unlock()
	case l.open.Load():
		l.ok.Add(1)
		l.latency.add(time.Since(since))
	}
}

// measure opens tallies for a window, after a warm-up of a fifth of it, and
// returns a sample of each. CPU is for each answer to any of them. On a busy machine
// a short window may pass before a member gets a turn: then another one follows.
func (c *cluster) measure(window time.Duration, tallies ...*tally) (samples []sample) {
	c.t.Helper()
	pause(window / 5)
	server, client, begun := c.cpu(), ownCPU(), time.Now()
	for _, l := range tallies {
		l.open.Store(true)
	}
	silent := func(l *tally) bool { return l.ok.Load() == 0 }
	for pause(window); slices.ContainsFunc(tallies, silent) && time.Since(begun) < patience; {
		pause(window)
	}
	for _, l := range tallies {
		l.open.Store(false)
	}
	took := time.Since(begun)
	server, client = c.cpu()-server, ownCPU()-client
	var answers float64
	for _, l := range tallies {
		answers += float64(l.ok.Load())
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / answers }
	for _, l := range tallies {
		if l.ok.Load() == 0 {
			l.mu.Lock()
			c.t.Errorf("%s: no answer in %v: %v", c.name, took, l.err)
			l.mu.Unlock()
		}
		samples = append(samples, sample{
			rate: float64(l.ok.Load()) / took.Seconds(), p50: l.latency.quantile(0.5), p99: l.latency.quantile(0.99),
			server: each(server), client: each(client), failed: l.failed.Load(),
		})
	}
	return samples
}

// closed keeps so many requests under way, over connections in turn. A client
// sends its next request when it has the answer.
func (c *cluster) closed(clients int, do request, on []*conn, window time.Duration) sample {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), window+patience)
	defer cancel()
	l := &tally{}
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			for n := i; !over.Load(); n++ {
				begun := time.Now()
				err := do(ctx, on[n%len(on)], r)
				l.add(begun, err)
				if err != nil {
					pause(time.Millisecond) // a member without leader answers at once
				}
			}
		})
	}
	samples := c.measure(window, l)
	over.Store(true)
	all.Wait()
	return samples[0]
}

// flow is requests that are sent at a rate, whether or not answers come.
type flow struct {
	tally
	rate float64 // a second
	do   request
	on   []*conn
}

// open runs flows beside each other and returns a sample of each.
func (c *cluster) open(window time.Duration, flows ...*flow) []sample {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), window+patience)
	defer cancel()
	var over atomic.Bool
	var all sync.WaitGroup
	var tallies []*tally
	for _, f := range flows {
		tallies = append(tallies, &f.tally)
		all.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), 1))
			begun := time.Now()
			for n := 0; !over.Load(); n++ {
				due := begun.Add(time.Duration(float64(n) / f.rate * float64(time.Second)))
				if d := time.Until(due); d > 0 {
					pause(d)
				}
				seed, on := r.Uint64(), f.on[n%len(f.on)]
				all.Go(func() { f.add(due, f.do(ctx, on, rand.New(rand.NewPCG(seed, 2)))) })
			}
		})
	}
	samples := c.measure(window, tallies...)
	over.Store(true)
	all.Wait()
	return samples
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
