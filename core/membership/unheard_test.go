package membership_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
)

func TestSnapshotSaysWhoeverIsMissing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		keep := func(cfg *membership.Config) { cfg.DataDir, cfg.Join = dir, nil }
		lone := c.start(3, keep)
		if s := lone.Snapshot(); s.Unheard != 0 || s.Exchanged {
			t.Errorf("a node without contacts: %d unheard, exchanged %v, want 0, false", s.Unheard, s.Exchanged)
		}
		c.start(1)
		if s := c.nodes[1].Snapshot(); s.Unheard != 0 {
			t.Errorf("a node that is its own contact: %d unheard, want 0", s.Unheard)
		}
		n := c.start(2)
		if s := n.Snapshot(); s.Unheard != 1 || s.Exchanged {
			t.Errorf("a node with one contact: %d unheard, exchanged %v, want 1, false", s.Unheard, s.Exchanged)
		}
		c.await(3*time.Second, "the exchange is done on both sides", func() bool {
			return n.Snapshot().Exchanged && c.nodes[1].Snapshot().Exchanged
		})
		if lone.Snapshot().Exchanged {
			t.Error("exchanged with nobody")
		}

		c.kill(lone)
		lone = c.start(3, keep, func(cfg *membership.Config) { cfg.Join = []string{host(1).String()} })
		c.await(3*time.Second, "found", func() bool { return lone.Snapshot().Live() == 3 && lone.Snapshot().Exchanged })
		c.pass(3 * time.Second)
		for len(c.nodes) > 0 {
			c.kill(c.nodes[0])
		}
		lone = c.start(3, keep)
		if s := lone.Snapshot(); s.Unheard != 2 || s.Exchanged {
			t.Errorf("after a restart of all: %d unheard, exchanged %v, want 2, false", s.Unheard, s.Exchanged)
		}
	})
}
