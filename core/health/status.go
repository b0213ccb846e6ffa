package health

import "time"

// MaxOutputBytes bounds what is kept of an answer.
const MaxOutputBytes = 4 << 10

// Status is what is known of an instance.
type Status struct {
	Passing bool          // all of Checks are passing
	Since   time.Time     // when Passing last changed, or the instance was first set
	Checks  []CheckStatus // in the order of its definition
}

// CheckStatus is what is known of one check.
type CheckStatus struct {
	Check   Check
	Passing bool

	Successes int // consecutive, up to the last probe; 0 if that failed
	Failures  int // consecutive, up to the last probe; 0 if that succeeded

	// Of the last probe; At is zero before the first.
	At     time.Time     // its end
	Took   time.Duration // from its start
	OK     bool          // it succeeded
	Output string        // what it was answered, or why it failed; valid UTF-8 without control characters but newline and tab, at most MaxOutputBytes
}
