package balance

import (
	"cmp"
	"time"
)

// Config holds what an operator may set; zero values are the defaults.
type Config struct {
	Foreign     bool          // connect to AddrForeign instead of Addr
	Decay       time.Duration // of a latency to 1/e of it; 2 s
	EjectFor    time.Duration // after the first failure, doubled by each failed trial; 1 s
	EjectAtMost time.Duration // 30 s
	BoundedLoad float64       // what a hash may give an endpoint, of its fair share; 1.25
	RetryRatio  float64       // retries for each request; 0.2
	RetryFloor  float64       // retries per second that are there in any case; 5
	RetryBurst  float64       // retries that may be saved up; 100
}

func (c Config) withDefaults() Config {
	c.Decay = cmp.Or(c.Decay, 2*time.Second)
	c.EjectFor = cmp.Or(c.EjectFor, time.Second)
	c.EjectAtMost = cmp.Or(c.EjectAtMost, 30*time.Second)
	c.BoundedLoad = cmp.Or(c.BoundedLoad, 1.25)
	c.RetryRatio = cmp.Or(c.RetryRatio, 0.2)
	c.RetryFloor = cmp.Or(c.RetryFloor, 5)
	c.RetryBurst = cmp.Or(c.RetryBurst, 100)
	return c
}

// common is what all endpoints of a registry share.
type common struct {
	cfg   Config
	epoch time.Time
}

// ns is the time as one number. The registry began at 1, so 0 is never now.
func (c *common) ns(now time.Time) int64 { return max(1, int64(now.Sub(c.epoch))) }
