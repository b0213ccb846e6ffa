package balance

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Config holds what an operator may set; zero values are the defaults, unless
// said otherwise.
type Config struct {
	Decay       time.Duration // of a latency to 1/e of it; 2 s
	EjectFor    time.Duration // after the first failure, doubled by each failed trial; 1 s
	EjectAtMost time.Duration // 30 s
	BoundedLoad float64       // what a hash may give an endpoint, of its fair share; 1.25
	RetryRatio  float64       // retries for each request; 0 is none
	RetryFloor  float64       // retries per second that are there in any case; 0 is none
	RetryBurst  float64       // retries that may be saved up; 100
}

func (c Config) withDefaults() Config {
	c.Decay = cmp.Or(c.Decay, 2*time.Second)
	c.EjectFor = cmp.Or(c.EjectFor, time.Second)
	c.EjectAtMost = cmp.Or(c.EjectAtMost, 30*time.Second)
	c.BoundedLoad = cmp.Or(c.BoundedLoad, 1.25)
	c.RetryBurst = cmp.Or(c.RetryBurst, 100)
	return c
}

// common is what all endpoints of a registry share.
type common struct {
	cfg   atomic.Pointer[Config]
	epoch time.Time
}

// config is what is in force now.
func (c *common) config() *Config { return c.cfg.Load() }

// ns is the time as one number. The registry began at 1, so 0 is never now.
func (c *common) ns(now time.Time) int64 { return max(1, int64(now.Sub(c.epoch))) }
