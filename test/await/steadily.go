package await

import (
	"context"
	"testing"
	"time"
)

const (
	// stoodStill is how long nothing of a host has to run for a figure of that time to
	// say nothing.
	stoodStill = 300 * time.Millisecond
	// steadyTries bounds how often something is measured.
	steadyTries = 3
)

// Steadily does what measures time, and does it again if it fails while the host stood
// still: then nobody was answered in time. It fails the test with the last error.
func Steadily(t testing.TB, measure func() error) {
	t.Helper()
	steadily(t, measure, standstill)
}

func steadily(t testing.TB, measure func() error, watch func(context.Context) (longest func() time.Duration)) {
	t.Helper()
	for try := 1; ; try++ {
		longest := watch(t.Context())
		err := measure()
		stood := longest()
		if err == nil {
			return
		}
		if try == steadyTries || stood < stoodStill {
			t.Fatalf("%v", err)
		}
		t.Logf("again, as the host stood still for %v: %v", stood, err)
	}
}

// standstill watches this host, until its result is asked for the longest time in which
// nothing ran.
func standstill(ctx context.Context) (longest func() time.Duration) {
	end, found := make(chan struct{}), make(chan time.Duration, 1)
	most, last := time.Duration(0), time.Now() // the goroutine may be late as well
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			ended := false
			select {
			case <-tick.C:
			case <-end:
				ended = true
			case <-ctx.Done(): // the test skipped itself
				return
			}
			now := time.Now()
			if most, last = max(most, now.Sub(last)), now; ended {
				found <- most
				return
			}
		}
	}()
	return func() time.Duration {
		close(end)
		return <-found
	}
}
