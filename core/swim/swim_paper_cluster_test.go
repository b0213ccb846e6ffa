package swim_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// SWIM §2: membership lists of all members converge. With no faults nobody is
// ever accused, and once all is known nothing but probes is sent.
func TestPaperCalmCluster(t *testing.T) {
	c := formed(t, 9)
	c.run(time.Minute)
	for _, e := range c.log {
		if e.Kind != swim.EventJoined {
			t.Fatalf("%v sees %v of %s in a calm cluster", e.by, e.Kind, e.Member.Name)
		}
	}
	before := c.sent
	c.run(time.Minute)
	if got := c.sent - before; got != 9*60*2 {
		t.Fatalf("%d packets in 60 periods of 9 idle members, want a ping and an ack each", got)
	}
}

// SWIM §3: a crash is detected by some member and known to all soon after. The
// bound is that of chance at its worst: 2·4−1 periods until the first of four
// members probes it (§4.3), one for the probe, one of suspicion, since all
// helpers confirm it, and some gossip.
func TestPaperCrashIsSeenByAll(t *testing.T) {
	for victim := 1; victim <= 5; victim++ {
		c := formed(t, 5)
		c.run(time.Duration(victim) * 1300 * time.Millisecond)
		c.down[addr(victim)] = true
		if took := c.mustAgree(t, 9*time.Second+500*time.Millisecond, 4); took < time.Second {
			t.Fatalf("dead after %v, without a suspicion in between", took)
		}
		for _, e := range c.log {
			if (e.Kind == swim.EventSuspected || e.Kind == swim.EventDied) && e.Member.ID != model.NodeID(victim) {
				t.Fatalf("%v sees %v of %s", e.by, e.Kind, e.Member.Name)
			}
		}
	}
}

// DESIGN §4: a "graceful leave that nobody sees as a failure and that a rejoin
// ends".
func TestPaperLeaveOfACluster(t *testing.T) {
	for _, n := range []int{2, 7, 40} {
		c := formed(t, n)
		c.run(5 * time.Second)
		goer := c.nodes[addr(2)]
		c.log = nil
		goer.Leave(c.now)
		c.pump()
		for start := c.now; !goer.LeaveDone(); c.run(50 * time.Millisecond) {
			if c.now.Sub(start) > 5*time.Second {
				t.Fatal("the good-bye is never done")
			}
		}
		c.down[addr(2)] = true
		c.mustAgree(t, time.Second, n-1)
		c.run(20 * time.Second)
		heard := 0
		for _, e := range c.log {
			switch {
			case e.Kind == swim.EventSuspected || e.Kind == swim.EventDied:
				t.Fatalf("of %d, %v sees %v of %s", n, e.by, e.Kind, e.Member.Name)
			case e.Kind == swim.EventLeft:
				heard++
			}
		}
		if heard != n {
			t.Fatalf("%d of %d members learned that it left", heard, n)
		}
		delete(c.down, addr(2))
		goer.Rejoin(c.now)
		c.pump()
		within := 2 * time.Second
		if n > 10 { // whom chance left out learns by exchange
			within = lan().ExchangeInterval * 5 / 4
		}
		c.mustAgree(t, within, n)
	}
}

// DESIGN §4: "a restarted node beats its own tombstone at once, with a new
// address too": also where nobody noticed that it was gone.
func TestPaperRestartOfANode(t *testing.T) {
	for _, gone := range []time.Duration{0, 1500 * time.Millisecond, time.Minute} {
		c := formed(t, 6)
		c.down[addr(3)] = true
		c.run(gone)
		delete(c.nodes, addr(3))
		c.bootAt(t, 3, 30, 2, 5)
		c.mustAgree(t, 3*time.Second, 6)
		if c.first(swim.EventNameConflict, 3) != nil || c.first(swim.EventAddressConflict, 3) != nil {
			t.Fatal("a restart is taken for a conflict")
		}
	}
}

// DESIGN §4: "a healed partition re-joins without an operator", after a short
// cut and after one in which all were buried.
func TestPaperPartitionHeals(t *testing.T) {
	for _, d := range []time.Duration{3 * time.Second, 15 * time.Second, time.Minute, 10 * time.Minute} {
		c := formed(t, 6)
		side := func(a netip.AddrPort) bool { return a.Addr().As4()[3] <= 3 }
		c.cut = func(from, to netip.AddrPort) bool { return side(from) != side(to) }
		c.run(d)
		c.cut = nil
		c.mustAgree(t, 10*time.Second, 6)
	}
}

// SWIM §3.1: the indirect probe is there "to get around any congestion on the
// network path between Mi and Mj": a cut between two members, one way or both,
// kills neither.
func TestPaperCutBetweenTwo(t *testing.T) {
	for _, both := range []bool{false, true} {
		c := formed(t, 6)
		c.cut = func(from, to netip.AddrPort) bool {
			return from == addr(2) && to == addr(5) || both && from == addr(5) && to == addr(2)
		}
		c.run(5 * time.Minute)
		for _, e := range c.log {
			if e.Kind != swim.EventJoined {
				t.Fatalf("both %v: %v sees %v of %s", both, e.by, e.Kind, e.Member.Name)
			}
		}
	}
}

// A node that was stopped for a while accuses nobody when it goes on, and is
// itself taken back.
func TestPaperStoppedNode(t *testing.T) {
	for _, d := range []time.Duration{700 * time.Millisecond, 4 * time.Second, 30 * time.Second} {
		c := formed(t, 6)
		c.run(3 * time.Second)
		for c.nodes[addr(4)].Inspect().Probes == 0 { // the ack comes while it is stopped
			c.run(time.Millisecond / 2)
		}
		c.down[addr(4)] = true
		c.run(d)
		delete(c.down, addr(4))
		c.mustAgree(t, 5*time.Second, 6)
		for _, e := range c.log {
			if (e.Kind == swim.EventSuspected || e.Kind == swim.EventDied) && e.Member.ID != 4 {
				t.Fatalf("stopped for %v: %v sees %v of %s", d, e.by, e.Kind, e.Member.Name)
			}
		}
	}
}

// DESIGN §4: a node whose data directory is older than its last run "takes the
// heard epoch + 1, persists it, then speaks".
func TestPaperOldDataDirectory(t *testing.T) {
	c := formed(t, 5)
	delete(c.nodes, addr(3))
	c.boot(t, 3, 40, 1)
	c.mustAgree(t, 3*time.Second, 5)
	c.nodes[addr(3)] = nil
	delete(c.nodes, addr(3))
	c.run(20 * time.Second)
	n := c.boot(t, 3, 7, 1) // restored from a copy
	c.mustAgree(t, 5*time.Second, 5)
	if got := n.Self().Value.Epoch; got != 41 || n.Silent() {
		t.Fatalf("back at epoch %d, want 41", got)
	}
}

// DESIGN §4: "three such jumps in 60 s mean a cloned data directory: reported,
// and it falls silent." One of two clones does, the others are unharmed.
func TestPaperTwoClones(t *testing.T) {
	for _, epoch := range []uint64{1, 2} { // of the copy
		c := formed(t, 5)
		c.bootAt(t, 3, 60, epoch, 1)
		c.run(30 * time.Second)
		original, copied := c.nodes[addr(3)].Silent(), c.nodes[addr(60)].Silent()
		if original == copied {
			t.Fatalf("epoch %d: original silent %v, copy silent %v: want one of them", epoch, original, copied)
		}
		if c.first(swim.EventCloned, 3) == nil {
			t.Fatal("not reported")
		}
		c.mustAgree(t, 10*time.Second, 5)
		if slices.ContainsFunc(c.log, func(e seen) bool {
			return (e.Kind == swim.EventSuspected || e.Kind == swim.EventDied) && e.Member.ID != 3
		}) {
			t.Fatal("others were harmed")
		}
	}
}
