package swim_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/scale"
)

// held is p's claim that it is off for d, under its present incarnation.
func (p *peer) held(d time.Duration) part {
	return claim(wire.Claimed{Subject: p.id, Value: p.value(model.StateAlive), Name: p.name, Addr: p.addr, HoldMillis: uint32(d.Milliseconds())})
}

// holds lets p announce a hold and stop.
func (r *rig) holds(p *peer, d time.Duration) {
	r.t.Helper()
	p.incarnation++
	r.say(p, p.held(d))
	p.mute = true
}

// heldFor is how long the node still holds id.
func (r *rig) heldFor(id model.NodeID) time.Duration {
	r.t.Helper()
	if until := r.member(id).HeldUntil; !until.IsZero() {
		return until.Sub(r.now)
	}
	return 0
}

// usual is in how long the node itself gives a member up that stops answering:
// two passes of probes, a failed probe and a suspicion that nobody confirms.
func (r *rig) usual() time.Duration {
	return time.Duration(2*len(r.peers)+1)*r.cfg.ProbePeriod + time.Duration(r.cfg.SuspicionMaxMult*r.cfg.SuspicionMult*float64(r.cfg.ProbePeriod)) + time.Second
}

// DESIGN §4: "A planned restart announces a hold of ≤ 30 s": under a new
// incarnation, to each member, until it acked.
func TestPaperHoldIsAnnounced(t *testing.T) {
	r := with(t, 2, 5)
	r.peer(3).mute = true
	if err := r.node.Hold(15*time.Second, r.now); err != nil {
		t.Fatal(err)
	}
	r.drain()
	r.want(1, model.Value{Epoch: selfEpoch, Incarnation: 1})
	if r.node.HoldDone() {
		t.Error("done although 3 did not ack")
	}
	for _, p := range r.peers {
		c := r.find(func(s sent) bool { return s.to == p.addr && s.Subject == 1 && s.Type == wire.Claim })
		if len(c) == 0 || c[0].HoldMillis != 15_000 || c[0].Value.Incarnation != 1 {
			t.Errorf("%s was told %+v", p.name, c)
		}
	}
	told := func() (n int) {
		for _, s := range r.to(r.peer(3), wire.Ping) {
			if slices.ContainsFunc(r.claims(1), func(c sent) bool { return c.packet == s.packet && c.HoldMillis > 0 }) {
				n++
			}
		}
		return n
	}
	before := told()
	r.run(500 * time.Millisecond)
	if told() == before {
		t.Error("3 is not told again")
	}
	r.peer(3).mute = false
	r.run(r.cfg.GossipInterval)
	if !r.node.HoldDone() {
		t.Error("not done although all acked")
	}
	if got := r.kinds(1); !slices.Equal(got, []swim.EventKind{swim.EventHeld}) {
		t.Errorf("events of itself: %v", got)
	}
}

// A node that is alone, or whose peers went, does not wait for anybody.
func TestPaperHoldWaitsForTheLivingOnly(t *testing.T) {
	r := newRig(t)
	if err := r.node.Hold(time.Second, r.now); err != nil || !r.node.HoldDone() {
		t.Errorf("alone: %v, done %v", err, r.node.HoldDone())
	}
	r = with(t, 2, 3)
	r.peer(3).mute = true
	if err := r.node.Hold(swim.MaxHold, r.now); err != nil {
		t.Fatal(err)
	}
	if !r.until(r.now.Add(r.usual()), r.node.HoldDone) {
		t.Error("waits for a peer that failed")
	}
}

// A hold is for 1 ms to 30 s, an epoch has one, and none is left to a node
// that said good-bye. A new epoch has its own.
func TestPaperHoldIsLimited(t *testing.T) {
	r := with(t, 2, 3)
	refused := func(when string, d time.Duration) {
		t.Helper()
		if err := r.node.Hold(d, r.now); !errors.Is(err, swim.ErrHold) {
			t.Errorf("%s: %v, want ErrHold", when, err)
		}
	}
	refused("none", 0)
	refused("negative", -time.Second)
	refused("too long", swim.MaxHold+time.Millisecond)
	if err := r.node.Hold(swim.MaxHold, r.now); err != nil {
		t.Fatal(err)
	}
	refused("a second one", time.Second)
	r.run(swim.MaxHold + time.Second)
	refused("one after it", time.Second)
	r.node.Leave(r.now)
	refused("after a good-bye", time.Second)
	r.node.Rejoin(r.now)
	if err := r.node.Hold(time.Second, r.now); err != nil {
		t.Errorf("in a new epoch: %v", err)
	}
}

// DESIGN §4: "a hold … in which nobody accuses". After it a node that did not
// come back is found in the usual time.
func TestPaperHoldIsNotAccused(t *testing.T) {
	r := with(t, 2, 4)
	p := r.peer(3)
	r.holds(p, 15*time.Second)
	if got := r.kinds(3); !slices.Equal(got, []swim.EventKind{swim.EventHeld}) {
		t.Fatalf("events %v", got)
	}
	start := r.now
	r.forget()
	r.run(15*time.Second - time.Millisecond)
	r.want(3, p.value(model.StateAlive))
	if r.node.Counters().FailedProbes == 0 || len(r.to(p, wire.Ping)) == 0 {
		t.Error("it was not probed meanwhile, so nothing is shown")
	}
	for _, c := range r.claims(3) {
		if c.Value.State != model.StateAlive {
			t.Errorf("said of it at %v: %v", c.at.Sub(start), c.Value)
		}
	}
	if !r.until(r.now.Add(r.usual()), func() bool { return r.state(3) == model.StateDead }) {
		t.Errorf("held for %v long after its hold", r.member(3).Value)
	}
}

// An accusation by a node that did not hear of the hold is not taken over, at
// its word or below, and answered with the hold.
func TestPaperHoldAnswersAccusations(t *testing.T) {
	for _, s := range []model.State{model.StateSuspect, model.StateDead} {
		for back := range uint64(2) {
			r := with(t, 2, 4)
			p := r.peer(3)
			r.holds(p, 15*time.Second)
			r.run(5 * time.Second)
			r.forget()
			accusation := p.value(s)
			accusation.Incarnation -= back
			r.say(r.peer(2), said(3, accusation, 2))
			r.want(3, p.value(model.StateAlive))
			answer := r.find(func(s sent) bool { return s.Type == wire.Claim && s.Subject == 3 && s.to == addr(2) })
			if len(answer) == 0 || answer[0].HoldMillis != 10_000 || answer[0].Value != p.value(model.StateAlive) {
				t.Errorf("%v is answered with %+v", accusation, answer)
			}
		}
	}
}

// Who accused in ignorance takes it back when it hears of the hold.
func TestPaperHoldTakesAccusationsBack(t *testing.T) {
	for state, event := range map[model.State]swim.EventKind{model.StateSuspect: swim.EventRefuted, model.StateDead: swim.EventRevived} {
		r := with(t, 2, 4)
		p := r.peer(3)
		p.incarnation++
		p.mute = true
		r.say(r.peer(2), said(3, p.value(state), 2))
		r.want(3, p.value(state))
		r.forget()
		r.say(r.peer(4), p.held(10*time.Second))
		r.want(3, p.value(model.StateAlive))
		if got := r.kinds(3); !slices.Equal(got, []swim.EventKind{event, swim.EventHeld}) {
			t.Errorf("%v: events %v", state, got)
		}
		r.run(9 * time.Second)
		r.want(3, p.value(model.StateAlive))
	}
}

// A good-bye, the next epoch and another word of the owner's end a hold at
// once.
func TestPaperHoldEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig, p *peer){
		"epoch":       func(_ *rig, p *peer) { p.epoch, p.incarnation = p.epoch+1, 0 },
		"incarnation": func(_ *rig, p *peer) { p.incarnation++ },
	} {
		r := with(t, 2, 4)
		p := r.peer(3)
		r.holds(p, swim.MaxHold)
		end(r, p)
		r.say(p, p.intro())
		if left := r.heldFor(3); left != 0 {
			t.Errorf("%s: still held for %v", name, left)
		}
		if !r.until(r.now.Add(r.usual()), func() bool { return r.state(3) == model.StateDead }) {
			t.Errorf("%s: not found", name)
		}
	}
	r := with(t, 2, 4)
	r.holds(r.peer(3), swim.MaxHold)
	gone := r.peer(3).value(model.StateLeft)
	gone.Incarnation++
	r.say(r.peer(2), said(3, gone))
	r.want(3, gone)
}

// What is announced beyond 30 s is not heard, and no further announcement of an
// epoch lengthens it, so that nobody escapes detection for ever.
func TestPaperHoldIsNotRenewed(t *testing.T) {
	r := with(t, 2, 4)
	p := r.peer(3)
	r.holds(p, time.Hour)
	if left := r.heldFor(3); left != swim.MaxHold {
		t.Fatalf("held for %v", left)
	}
	for r.heldFor(3) > 5*time.Second {
		r.run(4 * time.Second)
		before := r.heldFor(3)
		r.holds(p, swim.MaxHold)
		if left := r.heldFor(3); left != before {
			t.Fatalf("lengthened from %v to %v", before, left)
		}
	}
	r.run(5 * time.Second)
	r.holds(p, swim.MaxHold)
	if left := r.heldFor(3); left != 0 {
		t.Errorf("a second one of %v", left)
	}
	p.epoch, p.incarnation = p.epoch+1, 0
	r.holds(p, time.Second)
	if left := r.heldFor(3); left != time.Second {
		t.Errorf("the next epoch is held for %v", left)
	}
}

// What is passed on is the time that is left, by rumour as by exchange, and a
// relay that knows nothing of holds does not end one.
func TestPaperHoldIsPassedOn(t *testing.T) {
	r := with(t, 2, 4)
	p := r.peer(3)
	r.holds(p, 15*time.Second)
	r.run(5 * time.Second)
	spread := r.claims(3)
	if len(spread) == 0 {
		t.Fatal("not a word of it")
	}
	end := spread[0].at.Add(15 * time.Second)
	for _, c := range spread {
		if left := end.Sub(c.at).Milliseconds(); int64(c.HoldMillis) != left {
			t.Errorf("at %v before the end it says %d ms", end.Sub(c.at), c.HoldMillis)
		}
	}
	frame := r.pack(r.peer(2), exchange(false, true))
	reply, err := r.node.ServeFrame(frame, r.now)
	if err != nil {
		t.Fatal(err)
	}
	told := uint32(0)
	for _, f := range reply {
		open, err := r.codec.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		var m wire.Message
		for rd := open.Reader(); rd.Next(&m); {
			if m.Type == wire.Claim && m.Subject == 3 {
				told = m.HoldMillis
			}
		}
	}
	if told != 10_000 {
		t.Errorf("an exchange says %d ms", told)
	}
	r.say(r.peer(2), p.intro())
	if left := r.heldFor(3); left != 10*time.Second {
		t.Errorf("held for %v after a claim without a hold", left)
	}
	r.say(r.peer(2), p.held(8*time.Second))
	if left := r.heldFor(3); left != 8*time.Second {
		t.Errorf("held for %v, another knows of 8s", left)
	}
	r.add(5)
	r.holds(r.peer(5), 7*time.Second)
	r.run(7 * time.Second)
	r.forget()
	r.say(r.peer(2), said(3, r.peer(3).value(model.StateAlive)))
	r.run(rumours)
	for _, c := range append(r.claims(3), r.claims(5)...) {
		if c.HoldMillis != 0 && c.at.After(end) {
			t.Errorf("a hold that is over is passed on: %+v", c)
		}
	}
}

// A stranger that is introduced with its hold is held.
func TestPaperHoldOfAStranger(t *testing.T) {
	r := with(t, 2, 3)
	p := &peer{id: 9, name: "n9", addr: addr(9), epoch: 1, mute: true}
	r.say(r.peer(2), p.held(5*time.Second))
	if left := r.heldFor(9); left != 5*time.Second {
		t.Errorf("held for %v", left)
	}
	if got := r.kinds(9); !slices.Equal(got, []swim.EventKind{swim.EventJoined, swim.EventHeld}) {
		t.Errorf("events %v", got)
	}
}

// Only the owner can announce its hold: one that others put into its mouth is
// refuted like an accusation.
func TestPaperHoldOfOthersIsRefuted(t *testing.T) {
	r := with(t, 2, 4)
	forged := claim(wire.Claimed{Subject: 1, Value: r.node.Self().Value, HoldMillis: 20_000})
	r.say(r.peer(2), forged)
	r.want(1, model.Value{Epoch: selfEpoch, Incarnation: 1})
	r.run(time.Second)
	for _, c := range r.claims(1) {
		if c.HoldMillis != 0 {
			t.Errorf("it says so itself: %+v", c)
		}
	}
	// Its own comes back from others, at the end of it as well, and is no news.
	if err := r.node.Hold(2*time.Second, r.now); err != nil {
		t.Fatal(err)
	}
	own := claim(wire.Claimed{Subject: 1, Value: r.node.Self().Value, HoldMillis: 20_000})
	r.say(r.peer(2), own)
	r.run(3 * time.Second)
	r.say(r.peer(2), own)
	r.want(1, model.Value{Epoch: selfEpoch, Incarnation: 2})
}

// An accusation that comes before the node stops is refuted, and the hold goes
// on; Rejoin ends it.
func TestPaperHoldSurvivesARefutation(t *testing.T) {
	r := with(t, 2, 4)
	if err := r.node.Hold(15*time.Second, r.now); err != nil {
		t.Fatal(err)
	}
	r.run(5 * time.Second)
	r.forget()
	v := r.node.Self().Value
	v.State = model.StateSuspect
	r.say(r.peer(2), said(1, v, 2))
	r.run(time.Second)
	if left := r.heldFor(1); left != 9*time.Second {
		t.Errorf("held for %v", left)
	}
	for _, p := range r.peers {
		if !slices.ContainsFunc(r.claims(1), func(s sent) bool {
			return s.to == p.addr && s.Value.Incarnation == 2 && s.HoldMillis > 9_000
		}) {
			t.Errorf("%s was not told", p.name)
		}
	}
	r.forget()
	r.node.Rejoin(r.now)
	r.run(time.Second)
	r.want(1, model.Value{Epoch: selfEpoch, Incarnation: 3})
	if left := r.heldFor(1); left != 0 {
		t.Errorf("held for %v after Rejoin", left)
	}
	for _, c := range r.claims(1) {
		if c.HoldMillis != 0 {
			t.Errorf("after Rejoin it says %+v", c)
		}
	}
}

// A node under another id that answers at the address proves that the old one
// is gone: then its hold is over on this node.
func TestPaperHoldEndsByReplacement(t *testing.T) {
	r := with(t, 2, 3)
	p := r.peer(3)
	r.holds(p, swim.MaxHold)
	ping := r.nextPing(p)
	other := &peer{id: 9, name: "n9", addr: p.addr, epoch: 1}
	r.say(other, ack(ping.Seq))
	r.want(3, p.value(model.StateDead))
	r.say(r.peer(2), p.held(10*time.Second))
	r.want(3, p.value(model.StateDead))
}

// Who announced that it will not answer is not asked for help.
func TestPaperHeldIsNoHelper(t *testing.T) {
	r := with(t, 2, 5)
	r.holds(r.peer(3), swim.MaxHold)
	r.peer(4).mute = true
	r.run(20 * time.Second)
	if len(r.of(wire.PingReq)) == 0 || len(r.to(r.peer(3), wire.PingReq)) > 0 {
		t.Errorf("%d ping-reqs, %d of them to the held", len(r.of(wire.PingReq)), len(r.to(r.peer(3), wire.PingReq)))
	}
}

// Merging stays commutative, associative and idempotent with holds: of all
// orders in which some claims arrive, and with repetitions, the same comes out.
func TestPaperHoldMergesInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range scale.N(3000) {
		var claims []part
		var shown []wire.Claimed
		for range 2 + rng.IntN(4) {
			c := wire.Claimed{Subject: 2, Value: model.Value{Epoch: 1 + rng.Uint64N(2), Incarnation: rng.Uint64N(3), State: model.State(rng.IntN(4))}}
			if c.Value.State == model.StateAlive && rng.IntN(3) > 0 {
				c.HoldMillis = 1 + rng.Uint32N(40_000)
			}
			claims, shown = append(claims, claim(c)), append(shown, c)
		}
		type outcome struct {
			value model.Value
			until time.Time
		}
		var first outcome
		for i := range 6 {
			r := newRig(t)
			r.add(2)
			r.add(3)
			order := rng.Perm(len(claims))
			for _, j := range append(order, order[:rng.IntN(len(order))]...) {
				r.say(r.peer(3), claims[j])
			}
			m := r.member(2)
			got := outcome{m.Value, m.HeldUntil}
			if i == 0 {
				first = got
			} else if got != first {
				t.Fatalf("%+v in the order %v: %+v, in another %+v", shown, order, got, first)
			}
		}
	}
}

// Three nodes restart one after the other, each with a hold: nobody sees
// anybody but alive, and each is back at a new epoch.
func TestPaperHoldRollingRestart(t *testing.T) {
	c := formed(t, 3)
	for i := 1; i <= 3; i++ {
		n := c.nodes[addr(i)]
		if err := n.Hold(15*time.Second, c.now); err != nil {
			t.Fatal(err)
		}
		for !n.HoldDone() {
			c.run(10 * time.Millisecond)
		}
		c.down[addr(i)] = true
		c.run(12 * time.Second)
		c.boot(t, i, 2, 1, 2, 3)
		c.mustAgree(t, 2*time.Second, 3)
	}
	for _, e := range c.log {
		switch e.Kind {
		case swim.EventSuspected, swim.EventDied, swim.EventLeft, swim.EventRefuted:
			t.Errorf("%v sees %s %v", e.by, e.Member.Name, e.Kind)
		}
	}
}
