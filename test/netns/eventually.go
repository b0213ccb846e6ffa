package netns

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// pollEvery is how often conditions are looked at: short beside every deadline of the tests, long beside a command line call.
const pollEvery = 10 * time.Millisecond

// Eventually waits until cond holds and returns how long that took; it fails the test at the deadline, naming what was awaited.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, what string, args ...any) time.Duration {
	t.Helper()
	return EventuallyNil(t, timeout, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	}, what, args...)
}

var errNotYet = errors.New("not yet")

// EventuallyNil is [Eventually] for a condition that can say why it does not hold: the last reason is part of the failure.
// A condition that takes longer than the timeout is judged by its result.
func EventuallyNil(t testing.TB, timeout time.Duration, cond func() error, what string, args ...any) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := cond()
		took := time.Since(start)
		if err == nil {
			return took
		}
		if took >= timeout {
			t.Fatalf("netns: still not after %v: %s: %v", timeout, fmt.Sprintf(what, args...), err)
		}
		<-tick.C
	}
}
