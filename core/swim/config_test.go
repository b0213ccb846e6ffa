package swim

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestPresetsAreValid(t *testing.T) {
	for name, c := range map[string]Config{"LAN": DefaultLAN(), "WAN": DefaultWAN(), "Local": DefaultLocal()} {
		c.Cluster = "x"
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, tc := range []struct {
		field  string
		change func(*Config)
	}{
		{"Cluster", func(c *Config) { c.Cluster = "" }},
		{"Cluster", func(c *Config) { c.Cluster = strings.Repeat("x", 64) }},
		{"ProbePeriod", func(c *Config) { c.ProbePeriod = 0 }},
		{"ProbeTimeout", func(c *Config) { c.ProbeTimeout = -1 }},
		{"ProbeTimeoutFloor", func(c *Config) { c.ProbeTimeoutFloor = 0 }},
		{"GossipInterval", func(c *Config) { c.GossipInterval = time.Microsecond }},
		{"ExchangeInterval", func(c *Config) { c.ExchangeInterval = 0 }},
		{"JoinRetry", func(c *Config) { c.JoinRetry = 0 }},
		{"ContactInterval", func(c *Config) { c.ContactInterval = 0 }},
		{"StreamTimeout", func(c *Config) { c.StreamTimeout = 0 }},
		{"TombstoneTTL", func(c *Config) { c.TombstoneTTL = 0 }},
		{"TombstoneProbeInterval", func(c *Config) { c.TombstoneProbeInterval = 0 }},
		{"ProbeTimeout", func(c *Config) { c.ProbeTimeout = c.ProbePeriod/2 + 1 }},
		{"ProbeTimeoutFloor", func(c *Config) { c.ProbeTimeoutFloor = c.ProbeTimeout + 1 }},
		{"Helpers", func(c *Config) { c.Helpers = -1 }},
		{"Helpers", func(c *Config) { c.Helpers = 17 }},
		{"SuspicionMult", func(c *Config) { c.SuspicionMult = 0 }},
		{"SuspicionMult", func(c *Config) { c.SuspicionMult = math.NaN() }},
		{"SuspicionMult", func(c *Config) { c.SuspicionMult = math.Inf(1) }},
		{"SuspicionMaxMult", func(c *Config) { c.SuspicionMaxMult = 0.9 }},
		{"SuspicionMaxMult", func(c *Config) { c.SuspicionMaxMult = math.Inf(1) }},
		{"Confirmations", func(c *Config) { c.Confirmations = -1 }},
		{"Confirmations", func(c *Config) { c.Confirmations = 4 }},
		{"GossipFanout", func(c *Config) { c.GossipFanout = 0 }},
		{"RetransmitMult", func(c *Config) { c.RetransmitMult = 0 }},
		{"RetransmitMin", func(c *Config) { c.RetransmitMin = 0 }},
		{"MTU", func(c *Config) { c.MTU = 767 }},
		{"MTU", func(c *Config) { c.MTU = 65001 }},
		{"QueueBytes", func(c *Config) { c.QueueBytes = 2*c.MTU - 1 }},
		{"TombstonesMin", func(c *Config) { c.TombstonesMin = 0 }},
		{"MembersMax", func(c *Config) { c.MembersMax = 0 }},
		{"RelayMax", func(c *Config) { c.RelayMax = 0 }},
	} {
		c := DefaultLAN()
		c.Cluster = "x"
		tc.change(&c)
		err := c.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%s: %v", tc.field, err)
		}
	}
}

// TestSuspicionWait compares the formula with times worked out by hand.
func TestSuspicionWait(t *testing.T) {
	c := DefaultLAN() // least 1 s · max(1, log10 n), longest four times that
	for _, tc := range []struct {
		confirmations, k, live int
		want                   float64 // seconds
	}{
		{0, 3, 1, 4},
		{0, 3, 10, 4},
		{1, 3, 10, 2.5}, // log 2 / log 4 = 1/2
		{2, 3, 10, 1.6226},
		{3, 3, 10, 1},
		{9, 3, 10, 1},
		{0, 0, 2, 1}, // nobody else could accuse
		{0, 1, 3, 4},
		{1, 1, 3, 1},
		{0, 3, 100, 8},
		{3, 3, 100, 2},
		{0, 3, 1000, 12},
		{3, 3, 1000, 3},
		{0, 3, 0, 4}, // never log of nothing
	} {
		got := c.suspicionWait(tc.confirmations, tc.k, tc.live).Seconds()
		if math.Abs(got-tc.want) > 0.0001 {
			t.Errorf("%d of %d confirmations, %d live: %v s, want %v s", tc.confirmations, tc.k, tc.live, got, tc.want)
		}
	}
}

func TestRetransmitLimit(t *testing.T) {
	c := DefaultLAN()
	for live, want := range map[int]int{1: 6, 2: 6, 9: 6, 10: 12, 99: 12, 100: 18, 999: 18, 1000: 24, 5000: 24} {
		if got := c.retransmitLimit(live); got != want {
			t.Errorf("%d live: %d, want %d", live, got, want)
		}
	}
}
