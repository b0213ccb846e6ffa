package dataplane

import "errors"

// Errors of the contract. Each has a wire code, by which a host decides what
// to do; ToWire and FromWire of package transfer translate. A provider wraps
// one of them with what, where, which value, and the remedy.
var (
	// ErrInvalid: what was sent is wrong; sending it again is of no use.
	ErrInvalid = errors.New("dataplane: invalid")
	// ErrBaseMismatch: the changes start from a generation that is not applied;
	// send a snapshot.
	ErrBaseMismatch = errors.New("dataplane: base generation does not match")
	// ErrOldGeneration: a generation that is not above the applied one.
	ErrOldGeneration = errors.New("dataplane: old generation")
	// ErrOldSession: a newer session of the agent, or another agent, took over.
	ErrOldSession = errors.New("dataplane: old session")
	// ErrNotConfigured: Configure comes first.
	ErrNotConfigured = errors.New("dataplane: not configured")
	// ErrBusy: another call is under way; try again.
	ErrBusy = errors.New("dataplane: busy")
	// ErrLimit: more than this provider takes.
	ErrLimit = errors.New("dataplane: over a limit")
	// ErrUnsupported: this provider cannot do it, ever.
	ErrUnsupported = errors.New("dataplane: unsupported")
	// ErrFailed: the system refused; a later try may succeed.
	ErrFailed = errors.New("dataplane: failed")
)
