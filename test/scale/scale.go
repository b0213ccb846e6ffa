// Package scale turns the full counts of a test (seeds, packets, rounds) into
// the counts of this run.
//
// The counts named in requirements belong to `make test-long`, which sets
// FAIRLEAD_TEST_SCALE=1. Every other run, `make test` and a plain `go test`
// alike, uses a tenth of them, so that the whole suite stays quick enough to be
// run before each commit. The tests are the same; only how often they try
// differs.
package scale

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"time"
)

// Env names the variable that holds the factor: a decimal number above 0 and at
// most MaxFactor. Unset or empty means DefaultFactor.
const Env = "FAIRLEAD_TEST_SCALE"

const (
	// DefaultFactor applies when Env is unset: a tenth of the full counts.
	DefaultFactor = 0.1
	// MaxFactor bounds Env. More than a hundred times the full counts is a
	// typing mistake, not a soak.
	MaxFactor = 100
)

// Factor reports the factor of this run. It panics on a value of Env that is no
// number in (0, MaxFactor]: a test run with a mistyped scale must not look like
// a passed one.
func Factor() float64 {
	f, err := parse(os.Getenv(Env))
	if err != nil {
		panic(err)
	}
	return f
}

// N reports how many of full repetitions this run does: full × Factor, rounded,
// and at least 1.
func N(full int) int {
	return apply(full, Factor())
}

// Bound returns a bound of time as it is required, where the tests run in full; else
// one that a machine keeps which is busy with other packages' tests.
func Bound(required, busy time.Duration) time.Duration {
	if Factor() >= 1 {
		return required
	}
	return busy
}

func apply(full int, factor float64) int {
	return max(1, int(math.Round(float64(full)*factor)))
}

func parse(s string) (float64, error) {
	if s == "" {
		return DefaultFactor, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("scale: %s=%q is not a number: set it to a factor such as 0.1 or 1: %w", Env, s, err)
	}
	if !(f > 0 && f <= MaxFactor) { // written so that NaN is refused too
		return 0, fmt.Errorf("scale: %s=%q is out of range: set it above 0 and at most %d", Env, s, MaxFactor)
	}
	return f, nil
}
