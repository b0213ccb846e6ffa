// Package await is how tests wait: for a condition, never for a time. A condition is
// given half a minute, which a machine that is busy with much else may need; a test
// that passes does not take longer for it.
package await

import (
	"testing"
	"time"
)

// Patience is what a condition is given.
const Patience = 30 * time.Second

// pollEvery is how often conditions are looked at: they are cheap, and each test
// waits for several.
const pollEvery = 2 * time.Millisecond

// For waits until the condition holds. It fails the test after Patience, naming what
// was awaited.
func For(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is [For] for conditions that may take longer, or have to hold sooner.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	poll(t, limit, func() string {
		if holds() {
			return ""
		}
		return what
	})
}

// Until is [For] for a condition that can say what is missing; empty: it holds. The
// last word is part of the failure.
func Until(t testing.TB, missing func() string) {
	t.Helper()
	poll(t, Patience, missing)
}

func poll(t testing.TB, limit time.Duration, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		late := !time.Now().Before(deadline) // a condition that takes long is judged by its result
		what := missing()
		switch {
		case what == "":
			return
		case late:
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
}
