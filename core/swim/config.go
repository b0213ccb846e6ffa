package swim

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrConfig is wrapped by every refusal of Config.Validate.
var ErrConfig = errors.New("swim: bad configuration")

// Config holds the knobs of the protocol. Start from DefaultLAN, DefaultWAN or
// DefaultLocal; all members of a cluster should use the same preset, because a
// node judges others by its own times.
type Config struct {
	// Cluster names the cluster. It keys the checksum of every packet, so
	// packets of another cluster are dropped like noise. 1–63 bytes.
	Cluster string

	// ProbePeriod is T of the SWIM paper (§3.1): one member is probed each
	// period, and a probe without answer by its end makes a suspect.
	//
	//	mean time to the first probe of a crashed member = T·e/(e-1)
	//	packets sent per node and second                 ≈ 2/T
	//
	// Lower: faster detection, proportionally more packets.
	ProbePeriod time.Duration

	// ProbeTimeout bounds the wait for a direct ack before helpers are asked;
	// until the round trip to a member was measured it is the wait. Then
	//
	//	wait = clamp(srtt + 4·rttvar, ProbeTimeoutFloor, ProbeTimeout)
	//
	// Must leave room for helpers: at most half of ProbePeriod. Lower: helpers
	// get more time, but a slow answer costs 2·Helpers packets sooner.
	ProbeTimeout time.Duration

	// ProbeTimeoutFloor is the least wait for a direct ack. Lower: needless
	// ping-reqs whenever a scheduler pauses a process.
	ProbeTimeoutFloor time.Duration

	// Helpers is k of the SWIM paper (§3.1): distinct members asked to ping in
	// our stead. Each costs up to 4 packets for a probe that fails.
	Helpers int

	// SuspicionMult scales the least time between suspicion and death:
	//
	//	min = SuspicionMult · max(1, log10(n)) · ProbePeriod
	//
	// with n live members. It has to cover the way of a suspicion to its
	// subject and of the refutation back, about 2·log(n) gossip intervals.
	// Lower: faster detection, more false deaths.
	SuspicionMult float64

	// SuspicionMaxMult scales the time that a lone accuser has to wait:
	//
	//	max     = SuspicionMaxMult · min
	//	wait(c) = max - (max-min) · log(c+1)/log(k+1)
	//
	// after c confirmations of k expected (Lifeguard §IV-B). 1 switches the
	// effect off.
	SuspicionMaxMult float64

	// Confirmations is k of wait(c): how many accusers beside the first make
	// the suspicion as short as it gets. At most 3, since a rumour carries 4
	// accusers; never more than the members that could accuse.
	Confirmations int

	// GossipInterval separates gossip packets while rumours wait. Lower:
	// faster spread, more packets after each event; no cost when idle.
	GossipInterval time.Duration

	// GossipFanout is how many random members get a gossip packet each
	// interval.
	GossipFanout int

	// RetransmitMult is λ of the SWIM paper (§4.1). A rumour is sent at most
	//
	//	max(RetransmitMin, RetransmitMult · ⌈log10(n+1)⌉)
	//
	// times by each node. Lower: fewer bytes, some members learn only from
	// the next full exchange.
	RetransmitMult int

	// RetransmitMin is the least limit; it makes small clusters complete
	// although log10 is then small.
	RetransmitMin int

	// QueueBytes bounds the rumours waiting, by their encoded size. When it is
	// exceeded the most-sent rumours go first; their subjects then spread by
	// full exchange only.
	QueueBytes int

	// MTU is the largest UDP payload sent, sealing included. 1,400 fits every
	// common path. 768–65,000.
	MTU int

	// ExchangeInterval separates full exchanges with one random member,
	// jittered by a quarter either way; the first one comes a fifteenth to a
	// sixth of it after a node found its cluster. Bytes per node and second
	// ≈ 2·n·50/ExchangeInterval.
	ExchangeInterval time.Duration

	// JoinRetry separates tries to reach a contact while this node is alone.
	JoinRetry time.Duration

	// ContactInterval separates tries to reach contacts that are no live
	// member's address, while other members are known. It re-joins clusters
	// that formed apart.
	ContactInterval time.Duration

	// StreamTimeout bounds a whole exchange.
	StreamTimeout time.Duration

	// TombstoneTTL is how long a dead or departed member is remembered; during
	// that time a healed partition is noticed without an operator.
	TombstoneTTL time.Duration

	// TombstoneProbeInterval separates pings to one dead member after the
	// other. Lower: partitions heal sooner, one more packet per interval
	// while anything is dead.
	TombstoneProbeInterval time.Duration

	// TombstonesMin is the number of tombstones always kept; the bound is
	// max(TombstonesMin, 4·live), the oldest go first.
	TombstonesMin int

	// MembersMax is how many live members are learned; claims that introduce
	// more are dropped and counted. Each takes about half a KiB, and as much as a
	// tombstone. It is far above any cluster: it bounds the memory that packets
	// can make this node use.
	MembersMax int

	// RelayMax bounds pings on behalf of others that are under way; beyond it
	// requests are dropped.
	RelayMax int
}

// DefaultLAN suits members in one data centre: detection of a crash in about
// 3 s at up to 10 members, 5 s at 100.
func DefaultLAN() Config {
	return Config{
		ProbePeriod:            time.Second,
		ProbeTimeout:           500 * time.Millisecond, // half a period: the other half is the helpers'
		ProbeTimeoutFloor:      200 * time.Millisecond, // a garbage collection or a busy core is no failure
		Helpers:                3,
		SuspicionMult:          1,
		SuspicionMaxMult:       4,
		Confirmations:          3,
		GossipInterval:         200 * time.Millisecond,
		GossipFanout:           3,
		RetransmitMult:         6, // with 4, three in ten joins of 30 at once left a table without one of them
		RetransmitMin:          6, // 3 sends at n = 5 left 5 of 20 runs incomplete
		QueueBytes:             4 << 20,
		MTU:                    1400,
		ExchangeInterval:       30 * time.Second,
		JoinRetry:              time.Second,
		ContactInterval:        10 * time.Second,
		StreamTimeout:          10 * time.Second,
		TombstoneTTL:           24 * time.Hour,
		TombstoneProbeInterval: 2 * time.Second,
		TombstonesMin:          1024,
		MembersMax:             16 << 10,
		RelayMax:               256,
	}
}

// DefaultWAN suits members in several regions, with round trips of up to some
// hundred milliseconds and loss.
func DefaultWAN() Config {
	c := DefaultLAN()
	c.ProbePeriod = 3 * time.Second
	c.ProbeTimeout = 1500 * time.Millisecond
	c.ProbeTimeoutFloor = 500 * time.Millisecond
	c.SuspicionMult = 1.5
	c.GossipInterval = 500 * time.Millisecond
	c.GossipFanout = 4
	c.ExchangeInterval = time.Minute
	c.JoinRetry = 2 * time.Second
	c.ContactInterval = 30 * time.Second
	c.StreamTimeout = 30 * time.Second
	c.TombstoneProbeInterval = 5 * time.Second
	return c
}

// DefaultLocal suits agents on one host: tests, development.
func DefaultLocal() Config {
	c := DefaultLAN()
	c.ProbeTimeout = 300 * time.Millisecond
	c.ProbeTimeoutFloor = 100 * time.Millisecond
	c.GossipInterval = 100 * time.Millisecond
	c.ExchangeInterval = 15 * time.Second
	c.JoinRetry = 500 * time.Millisecond
	c.ContactInterval = 5 * time.Second
	c.StreamTimeout = 3 * time.Second
	c.TombstoneProbeInterval = time.Second
	return c
}

// Validate returns the first rule that c breaks, or nil.
func (c Config) Validate() error {
	positive := []struct {
		name string
		d    time.Duration
	}{
		{"ProbePeriod", c.ProbePeriod},
		{"ProbeTimeout", c.ProbeTimeout},
		{"ProbeTimeoutFloor", c.ProbeTimeoutFloor},
		{"GossipInterval", c.GossipInterval},
		{"ExchangeInterval", c.ExchangeInterval},
		{"JoinRetry", c.JoinRetry},
		{"ContactInterval", c.ContactInterval},
		{"StreamTimeout", c.StreamTimeout},
		{"TombstoneTTL", c.TombstoneTTL},
		{"TombstoneProbeInterval", c.TombstoneProbeInterval},
	}
	for _, p := range positive {
		if p.d < time.Millisecond {
			return fmt.Errorf("%w: %s is %v: want at least 1ms", ErrConfig, p.name, p.d)
		}
	}
	switch {
	case len(c.Cluster) == 0 || len(c.Cluster) > 63:
		return fmt.Errorf("%w: Cluster %q has %d bytes: want 1 to 63", ErrConfig, c.Cluster, len(c.Cluster))
	case c.ProbeTimeout > c.ProbePeriod/2:
		return fmt.Errorf("%w: ProbeTimeout %v leaves helpers too little of ProbePeriod %v: want at most half", ErrConfig, c.ProbeTimeout, c.ProbePeriod)
	case c.ProbeTimeoutFloor > c.ProbeTimeout:
		return fmt.Errorf("%w: ProbeTimeoutFloor %v is above ProbeTimeout %v", ErrConfig, c.ProbeTimeoutFloor, c.ProbeTimeout)
	case c.Helpers < 0 || c.Helpers > 16:
		return fmt.Errorf("%w: Helpers is %d: want 0 to 16", ErrConfig, c.Helpers)
	case !(c.SuspicionMult > 0) || math.IsInf(c.SuspicionMult, 0):
		return fmt.Errorf("%w: SuspicionMult is %v: want a number above 0", ErrConfig, c.SuspicionMult)
	case !(c.SuspicionMaxMult >= 1) || math.IsInf(c.SuspicionMaxMult, 0):
		return fmt.Errorf("%w: SuspicionMaxMult is %v: want a number of at least 1", ErrConfig, c.SuspicionMaxMult)
	case c.Confirmations < 0 || c.Confirmations > 3:
		return fmt.Errorf("%w: Confirmations is %d: want 0 to 3, a rumour carries 4 accusers", ErrConfig, c.Confirmations)
	case c.GossipFanout < 1 || c.RetransmitMult < 1 || c.RetransmitMin < 1:
		return fmt.Errorf("%w: GossipFanout %d, RetransmitMult %d and RetransmitMin %d must be at least 1", ErrConfig, c.GossipFanout, c.RetransmitMult, c.RetransmitMin)
	case c.MTU < 768 || c.MTU > 65000:
		return fmt.Errorf("%w: MTU is %d: want 768 to 65000, a record of 512 bytes must fit", ErrConfig, c.MTU)
	case c.QueueBytes < 2*c.MTU:
		return fmt.Errorf("%w: QueueBytes is %d: want two packets at least (MTU %d), half of it is for records", ErrConfig, c.QueueBytes, c.MTU)
	case c.TombstonesMin < 1 || c.MembersMax < 1 || c.RelayMax < 1:
		return fmt.Errorf("%w: TombstonesMin %d, MembersMax %d and RelayMax %d must be at least 1", ErrConfig, c.TombstonesMin, c.MembersMax, c.RelayMax)
	}
	return nil
}

// suspicionBounds returns the least and the longest life of a suspicion in a
// cluster of live members.
func (c Config) suspicionBounds(live int) (least, longest time.Duration) {
	scale := math.Max(1, math.Log10(float64(max(live, 1))))
	least = time.Duration(c.SuspicionMult * scale * float64(c.ProbePeriod))
	longest = time.Duration(c.SuspicionMaxMult * float64(least))
	return least, longest
}

// suspicionWait returns how long a suspicion lives after c of k confirmations.
// With nobody who could confirm (k = 0) the least time holds at once.
func (c Config) suspicionWait(confirmations, k, live int) time.Duration {
	least, longest := c.suspicionBounds(live)
	if k <= 0 || confirmations >= k {
		return least
	}
	frac := math.Log(float64(confirmations)+1) / math.Log(float64(k)+1)
	return longest - time.Duration(frac*float64(longest-least))
}

// retransmitLimit returns how often each node sends one rumour.
func (c Config) retransmitLimit(live int) int {
	return max(c.RetransmitMin, c.RetransmitMult*int(math.Ceil(math.Log10(float64(live+1)))))
}
