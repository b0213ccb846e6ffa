package membership_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

func TestNodesFindEachOtherThroughOneSeed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		for _, n := range nodes {
			s := n.Snapshot()
			if len(s.Members) != 5 || s.Live() != 5 {
				t.Errorf("%s sees %d members, %d live, want 5", n.cfg.Name, len(s.Members), s.Live())
			}
			if !slices.IsSortedFunc(s.Members, func(a, b membership.Member) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("%s: members are not sorted by name", n.cfg.Name)
			}
			if s.Self.Name != n.cfg.Name || !s.Self.Self || s.Self.Addr != n.addr {
				t.Errorf("%s: self is %+v", n.cfg.Name, s.Self)
			}
			if got := n.metric(t, "members", "alive"); got != 5 {
				t.Errorf("%s: metric members{alive} is %v, want 5", n.cfg.Name, got)
			}
			if last := n.history(t); s.Seq != last[len(last)-1].Seq {
				t.Errorf("%s: snapshot says seq %d, the log ends at %d", n.cfg.Name, s.Seq, last[len(last)-1].Seq)
			}
		}
		c.pass(time.Minute)
		for _, n := range nodes {
			for _, e := range n.history(t) {
				if e.Kind != swim.EventJoined {
					t.Errorf("%s: %v of %s in a cluster without faults", n.cfg.Name, e.Kind, e.Member.Name)
				}
			}
		}
	})
}

func TestKilledNodeIsSeenDeadByAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		gone := nodes[4]
		id := gone.id()
		c.kill(gone)
		c.await(6*time.Second, "all see it dead", func() bool { return c.all(model.StateDead, gone) })
		refused := 0.0
		for _, n := range c.nodes {
			if _, ok := n.saw(t, swim.EventSuspected, id); !ok {
				t.Errorf("%s: died without having been suspected", n.cfg.Name)
			}
			refused += n.metric(t, "streams_total", "out", "refused")
			if !strings.Contains(n.log.String(), "msg=\"member changed\" kind=died member=n5 id="+id.String()) {
				t.Errorf("%s logs no line about the death", n.cfg.Name)
			}
		}
		if refused == 0 {
			t.Error("no TCP ping found out that nobody listens there any more")
		}
	})
}

func TestLeaveIsNeverSeenAsFailureAndRejoinEndsIt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		goes := nodes[2]
		if err := goes.Leave(t.Context()); err != nil {
			t.Fatalf("leave: %v", err)
		}
		c.await(time.Second, "all see it left", func() bool { return c.all(model.StateLeft, goes) })
		c.pass(20 * time.Second)
		if err := goes.Rejoin(); err != nil {
			t.Fatalf("rejoin: %v", err)
		}
		c.await(5*time.Second, "all see it alive again", func() bool { return c.all(model.StateAlive, goes) })
		c.kill(goes)
		for _, n := range c.nodes {
			for _, kind := range []swim.EventKind{swim.EventSuspected, swim.EventDied} {
				if _, ok := n.saw(t, kind, nodes[2].id()); ok {
					t.Errorf("%s: a departure was seen as %v", n.cfg.Name, kind)
				}
			}
		}
	})
}

func TestLeaveIsBounded(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := nodes[0].Leave(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("leave under an ended context: %v, want context.Canceled", err)
		}
		alone := c.start(9, func(cfg *membership.Config) { cfg.Join = nil })
		start := time.Now()
		if err := alone.Leave(t.Context()); err != nil || time.Since(start) > time.Second {
			t.Errorf("a lone node leaves after %v with %v, want at once", time.Since(start), err)
		}
	})
}

func TestCallsAfterCloseAreRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.startAll(1)[0]
		c.kill(n)
		if err := n.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if err := n.SetRecord(nil, []byte{1}); !errors.Is(err, membership.ErrClosed) {
			t.Errorf("SetRecord after Close: %v, want ErrClosed", err)
		}
		if err := n.Leave(t.Context()); !errors.Is(err, membership.ErrClosed) {
			t.Errorf("Leave after Close: %v, want ErrClosed", err)
		}
		if n.Snapshot().Self.ID == 0 {
			t.Error("the last snapshot is gone after Close")
		}
		for _, err := range n.Events(t.Context(), n.Snapshot().Seq, true) {
			if !errors.Is(err, membership.ErrClosed) {
				t.Errorf("following after Close: %v, want ErrClosed", err)
			}
		}
	})
}

func TestPartitionHealsByItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(5)
		c.net.Partition([]netip.AddrPort{host(1), host(2)}, []netip.AddrPort{host(3), host(4), host(5)})
		c.await(15*time.Second, "both sides bury the other", func() bool {
			return c.nodes[0].Snapshot().Live() == 2 && c.nodes[4].Snapshot().Live() == 3
		})
		c.pass(time.Minute)
		c.net.Heal()
		c.await(10*time.Second, "all alive again", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if c.net.Counts().Cut == 0 {
			t.Error("the partition cut nothing")
		}
		for _, n := range c.nodes {
			if n.metric(t, "streams_total", "out", "refused") != 0 {
				t.Errorf("%s took a cut for a refusal", n.cfg.Name)
			}
		}
	})
}

func TestFollowingReaderSeesEverythingInOrder(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.start(1)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []membership.Event)
		go func() {
			var all []membership.Event
			for u, err := range n.Events(ctx, 0, true) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("ended by %v, want context.Canceled", err)
					}
					break
				}
				if at := n.Snapshot().Seq; at < u.Event.Seq {
					t.Errorf("event %d is out, the snapshot is still at %d", u.Event.Seq, at)
				}
				all = append(all, u.Event)
			}
			got <- all
		}()
		c.start(2)
		third := c.start(3)
		c.await(3*time.Second, "3 nodes", func() bool { return c.all(model.StateAlive, c.nodes...) })
		c.kill(third)
		c.await(10*time.Second, "dead", func() bool { return c.all(model.StateDead, third) })
		cancel()
		followed, logged := <-got, n.history(t)
		if len(followed) == 0 || len(followed) != len(logged) {
			t.Fatalf("followed %d events, the log holds %d", len(followed), len(logged))
		}
		for i := range followed {
			if followed[i].Seq != logged[i].Seq || followed[i].Kind != logged[i].Kind {
				t.Errorf("event %d: followed %v, logged %v", i, followed[i], logged[i])
			}
		}
	})
}

func TestOneWayCutKillsNobody(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(5)
		c.net.Cut(host(2), host(3))
		c.pass(time.Minute)
		c.net.Heal()
		if c.net.Counts().Cut == 0 {
			t.Error("the cut cut nothing")
		}
		for _, n := range c.nodes {
			for _, e := range n.history(t) {
				if e.Kind == swim.EventDied {
					t.Errorf("%s saw %s die, who is reached by others", n.cfg.Name, e.Member.Name)
				}
			}
		}
	})
}

func TestLossyNetworkStillConverges(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.net.SetLoss(0.1)
		for i := 1; i <= 5; i++ {
			c.start(i)
		}
		c.await(10*time.Second, "all see all", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if c.net.Counts().Lost == 0 {
			t.Error("nothing was lost")
		}
	})
}
