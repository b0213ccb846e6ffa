package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// on keeps a node's state in dir, so that it starts again as itself.
func on(dir string) func(*membership.Config) {
	return func(cfg *membership.Config) { cfg.DataDir = dir }
}

// held reports whether all other nodes hold n.
func (c *cluster) held(n *node) bool {
	for _, o := range c.nodes {
		if m, ok := o.Snapshot().Find(n.id()); o != n && (!ok || m.HeldUntil.IsZero() || m.Value.State != model.StateAlive) {
			return false
		}
	}
	return true
}

// neverSaw fails if a running node saw a kind of event about n.
func (c *cluster) neverSaw(n *node, kinds ...swim.EventKind) {
	c.t.Helper()
	for _, o := range c.nodes {
		for _, kind := range kinds {
			if _, ok := o.saw(c.t, kind, n.id()); ok {
				c.t.Errorf("%s saw %s %v", o.cfg.Name, n.cfg.Name, kind)
			}
		}
	}
}

func TestHoldKeepsARestartingNodeAlive(t *testing.T) {
	dir := t.TempDir()
	inCluster(t, func(t *testing.T, c *cluster) {
		goes := c.start(4, on(dir))
		c.startAll(3)
		if err := goes.SetRecord(nil, []byte{7}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := goes.Hold(t.Context(), 15*time.Second); err != nil {
			t.Fatalf("hold: %v", err)
		}
		if took := time.Since(begun); took > time.Second || !c.held(goes) {
			t.Errorf("after %v not all know", took)
		}
		if m := goes.Snapshot().Self; m.HeldUntil.Sub(begun) != 15*time.Second {
			t.Errorf("it holds itself until %v", m.HeldUntil)
		}
		c.kill(goes)
		c.pass(12 * time.Second)
		if !c.all(model.StateAlive, goes) {
			t.Error("not alive for all any more")
		}
		for _, n := range c.nodes {
			if m, _ := n.Snapshot().Find(goes.id()); len(m.Vector) != 1 {
				t.Errorf("%s lost its record", n.cfg.Name)
			}
			if got := n.metric(t, "held"); got != 1 {
				t.Errorf("%s counts %v held", n.cfg.Name, got)
			}
		}
		back := c.start(4, on(dir))
		c.await(2*time.Second, "all see it at its next epoch", func() bool {
			for _, n := range c.nodes {
				if m, ok := n.Snapshot().Find(back.id()); !ok || m.Value.Epoch != 2 || !m.HeldUntil.IsZero() {
					return false
				}
			}
			return true
		})
		c.pass(20 * time.Second)
		c.neverSaw(back, swim.EventSuspected, swim.EventDied, swim.EventLeft)
	})
}

func TestHoldOfANodeThatStaysAwayEnds(t *testing.T) {
	dir := t.TempDir()
	inCluster(t, func(t *testing.T, c *cluster) {
		goes := c.start(4, on(dir))
		c.startAll(3)
		if err := goes.Hold(t.Context(), 10*time.Second); err != nil {
			t.Fatalf("hold: %v", err)
		}
		c.kill(goes)
		c.pass(9 * time.Second)
		c.neverSaw(goes, swim.EventSuspected)
		c.await(time.Second+9*time.Second, "all see it dead after its hold", func() bool { return c.all(model.StateDead, goes) })
	})
}

func TestHoldIsRefused(t *testing.T) {
	dir := t.TempDir()
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(2)
		if err := c.nodes[0].Hold(t.Context(), time.Second); !errors.Is(err, membership.ErrHold) {
			t.Errorf("without a data directory: %v", err)
		}
		n := c.start(4, on(dir))
		c.await(3*time.Second, "it is known", func() bool { return c.all(model.StateAlive, n) })
		for _, d := range []time.Duration{0, -time.Second, membership.MaxHold + time.Millisecond} {
			if err := n.Hold(t.Context(), d); !errors.Is(err, membership.ErrHold) {
				t.Errorf("for %v: %v", d, err)
			}
		}
		if err := n.Hold(t.Context(), time.Second); err != nil {
			t.Errorf("the first: %v", err)
		}
		if err := n.Hold(t.Context(), time.Second); !errors.Is(err, membership.ErrHold) || !errors.Is(err, swim.ErrHold) {
			t.Errorf("the second: %v", err)
		}
		if err := n.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.Hold(t.Context(), time.Second); !errors.Is(err, membership.ErrHold) {
			t.Errorf("after a good-bye: %v", err)
		}
		c.kill(n)
		if err := n.Hold(t.Context(), time.Second); err == nil {
			t.Error("after Close: no error")
		}
	})
}

// A member that does not answer is waited for, but not for ever.
func TestHoldIsBounded(t *testing.T) {
	dir := t.TempDir()
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.start(4, on(dir))
		nodes := c.startAll(3)
		c.net.Cut(nodes[1].addr, n.addr)
		begun := time.Now()
		err := n.Hold(t.Context(), 30*time.Second)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if err := n.Rejoin(); err != nil {
			t.Fatal(err)
		}
		c.await(2*time.Second, "the hold is taken back", func() bool {
			m, _ := nodes[2].Snapshot().Find(n.id())
			return m.HeldUntil.IsZero() && m.Value.Incarnation == 2
		})
	})
}
