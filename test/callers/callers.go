// Package callers goes on calling while a test alters what answers, and counts the
// calls that failed.
package callers

import (
	"sync"
	"testing"
	"time"
)

// Callers call without end, each on its own beat.
type Callers struct {
	quit   chan struct{}
	done   sync.WaitGroup
	mu     sync.Mutex
	calls  int
	failed []error
}

// Start lets n callers call, each once per every, or as often as it gets an answer.
// An error of call is a call that failed.
func Start(n int, every time.Duration, call func() error) *Callers {
	c := &Callers{quit: make(chan struct{})}
	for range n {
		c.done.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-c.quit:
					return
				case <-tick.C:
				}
				c.note(call())
			}
		})
	}
	return c
}

func (c *Callers) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if err != nil {
		c.failed = append(c.failed, err)
	}
}

// Count returns how many calls there were so far.
func (c *Callers) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Stop ends the callers, and fails the test if a call failed.
func (c *Callers) Stop(t testing.TB) {
	t.Helper()
	close(c.quit)
	c.done.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%d of %d calls failed, the first: %v", len(c.failed), c.calls, c.failed[0])
	}
	t.Logf("%d calls", c.calls)
}
