package sim

import (
	"math"
	"time"

	"github.com/fairlead/fairlead/core/swim"
)

// Spread is how long a rumour takes to everybody in a cluster of n without
// faults: a node sends it a limited number of times, once per gossip interval,
// and one that learns it does the same.
func Spread(cfg *swim.Config, n int) time.Duration {
	return 2 * time.Duration(RumourLimit(cfg, n)) * cfg.GossipInterval
}

// RumourLimit is how often a node sends one rumour in a cluster of n.
func RumourLimit(cfg *swim.Config, n int) int {
	return max(cfg.RetransmitMin, cfg.RetransmitMult*int(math.Ceil(math.Log10(float64(n+1)))))
}

// Detection is D(n): in how long all of n members without faults have seen
// that one of them crashed, in the worst case.
//
//	(2·(n-1) - 1) · T   until the first of them probes it: a shuffled list is
//	                    walked to its end (SWIM §4.3)
//	T                   until that probe has failed
//	max(n)              while nobody confirms the suspicion
//	Spread(n)           until all have heard
func Detection(cfg *swim.Config, n int) time.Duration {
	least := cfg.SuspicionMult * math.Max(1, math.Log10(float64(n))) * float64(cfg.ProbePeriod)
	probes := time.Duration(max(1, 2*(n-1)-1)) * cfg.ProbePeriod
	return probes + cfg.ProbePeriod + time.Duration(cfg.SuspicionMaxMult*least) + Spread(cfg, n)
}

// Floor is in how long the live of n members agree once all faults have ended,
// with graves members that may be held dead.
//
//	Detection(n)                      what is wrongly held alive dies
//	graves · TombstoneProbeInterval   what is wrongly held dead is asked
//	5/4 · ContactInterval             clusters that lost each other meet
//	5/4 · ExchangeInterval            what rumours lost is found by an exchange
func Floor(cfg *swim.Config, n, graves int) time.Duration {
	return Detection(cfg, n) + time.Duration(graves)*cfg.TombstoneProbeInterval +
		cfg.ContactInterval*5/4 + cfg.ExchangeInterval*5/4
}

// Reunion is in how long the sides of a partition of n hold each other alive
// again when nobody has contacts: each side asks one of its dead at a time, the first that
// answers starts an exchange, and what is learned spreads. Accusations that
// crossed in the meantime are refuted.
func Reunion(cfg *swim.Config, n int) time.Duration {
	return 2*cfg.TombstoneProbeInterval + cfg.ProbePeriod + 2*Spread(cfg, n)
}
