package balance

import (
	"sync"
	"sync/atomic"
	"time"
)

// Budget limits retries to a share of the requests, so that a service in
// trouble does not get a multiple of its load. It is a bucket of tokens: each
// request brings a part of one, each second a few, a retry takes one. It is
// safe for concurrent use.
type Budget struct {
	common   *common
	requests atomic.Int64 // not yet turned into tokens

	mu     sync.Mutex
	tokens float64
	at     time.Time
}

// newBudget returns a budget that begins with what the floor gives in 4 s.
func newBudget(c *common, now time.Time) *Budget {
	cfg := c.config()
	return &Budget{common: c, tokens: min(cfg.RetryBurst, 4*cfg.RetryFloor), at: now}
}

// Request counts a request (not its retries) towards the budget.
func (b *Budget) Request() { b.requests.Add(1) }

// Retry takes one retry out of the budget, or reports that there is none.
func (b *Budget) Retry(now time.Time) bool {
	cfg := b.common.config()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens += cfg.RetryRatio * float64(b.requests.Swap(0))
	if past := now.Sub(b.at); past > 0 {
		b.tokens += cfg.RetryFloor * past.Seconds()
		b.at = now
	}
	b.tokens = min(b.tokens, cfg.RetryBurst)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
