package swim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// bury makes peers dead by hearsay, and mute.
func (r *rig) bury(ids ...int) {
	r.t.Helper()
	for _, i := range ids {
		p := r.peer(i)
		p.mute = true
		r.say(r.peer(2), said(p.id, p.value(model.StateDead), 2))
		r.want(p.id, p.value(model.StateDead))
	}
}

// DESIGN §4: "Tombstones keep address and value for 24 h".
func TestPaperTombstonesAreKept(t *testing.T) {
	r := with(t, 2, 5, func(c *swim.Config) { // less to do in a day
		c.ProbePeriod, c.TombstoneProbeInterval, c.ExchangeInterval = time.Minute, time.Minute, time.Hour
	})
	r.bury(4)
	r.say(r.peer(2), said(5, r.peer(5).value(model.StateLeft)))
	r.run(24*time.Hour - time.Minute)
	for _, i := range []int{4, 5} {
		if m := r.member(r.peer(i).id); m.Addr != addr(i) || m.Value.State.Live() {
			t.Fatalf("kept as %+v", m)
		}
	}
	r.run(2 * time.Minute)
	if r.has(4) || r.has(5) {
		t.Fatal("still there after 24 h")
	}
	if e := r.event(swim.EventReaped); e == nil || e.Was.State.Live() || e.Was.Epoch != 1 {
		t.Fatalf("event %+v", e)
	}
}

// DESIGN §4: tombstones "are re-probed slowly (a healed partition re-joins
// without an operator)".
func TestPaperTombstonesAreReprobed(t *testing.T) {
	r := with(t, 2, 8)
	r.bury(4, 5, 6)
	r.say(r.peer(2), said(8, r.peer(8).value(model.StateLeft))) // left is final: not asked
	r.peer(8).mute = true
	r.run(time.Second)
	r.forget()
	r.run(6 * r.cfg.TombstoneProbeInterval)
	total := 0
	for _, i := range []int{4, 5, 6} {
		pings := r.to(r.peer(i), wire.Ping)
		if total += len(pings); len(pings) == 0 {
			t.Errorf("no ping to tombstone %d in six intervals of three tombstones", i)
		}
		for _, p := range pings {
			if c := r.find(func(s sent) bool { return s.packet == p.packet && s.Subject == p.Subject && s.Type == wire.Claim }); len(c) != 1 || c[0].Value.State != model.StateDead {
				t.Errorf("the ping does not tell %d that it is held for dead", i)
			}
		}
	}
	if total != 6 {
		t.Errorf("%d pings to tombstones in six intervals", total)
	}
	if len(r.to(r.peer(8), wire.Ping)) > 0 {
		t.Error("who left is pinged")
	}
	if len(r.of(wire.PingReq)) > 0 || r.event(swim.EventSuspected) != nil {
		t.Error("a tombstone without answer is treated like a failing member")
	}
}

// "a healed partition re-joins without an operator": the answer brings the
// refutation, and both sides exchange their tables.
func TestPaperTombstoneAnswers(t *testing.T) {
	r := with(t, 2, 8)
	r.bury(4)
	back := r.peer(4)
	p := r.nextPing(back)
	r.forget()
	back.incarnation++
	r.say(back, ack(p.Seq))
	r.want(4, back.value(model.StateAlive))
	if k := r.kinds(4); !slices.Equal(k, []swim.EventKind{swim.EventRevived}) {
		t.Fatalf("events %v", k)
	}
	if s := r.wantedStreams(swim.StreamExchange); len(s) != 1 || s[0].To != back.addr {
		t.Fatalf("streams %+v, want an exchange with the other side", s)
	}
}

// DESIGN §4: tombstones are "never learned for an unknown id". Nor is anybody
// without a name and an address.
func TestPaperTombstonesAreNotLearned(t *testing.T) {
	r := with(t, 2, 4)
	ghost := &peer{id: 99, name: "ghost", addr: addr(99), epoch: 1}
	r.say(r.peer(2), ghost.as(model.StateDead, 2), ghost.as(model.StateLeft), said(99, ghost.value(model.StateAlive)), said(99, ghost.value(model.StateSuspect)))
	if _, err := r.node.ServeFrame(r.pack(r.peer(2), exchange(false, false), ghost.as(model.StateDead)), r.now); err != nil {
		t.Fatal(err)
	}
	if r.has(99) || len(r.node.Inspect().Rumours) > 0 {
		t.Fatal("a stranger's death was learned")
	}
	ghost.addr = addr(98)
	r.say(r.peer(2), ghost.as(model.StateSuspect, 2)) // live: learned, and asked
	if r.state(99) != model.StateSuspect || len(r.node.Inspect().Suspicions) != 1 {
		t.Fatal("a live stranger was not learned")
	}
}

// DESIGN §4: tombstones "travel only as rumour or as the answer to a stale
// alive": not in an exchange.
func TestPaperTombstonesAreNotExchanged(t *testing.T) {
	r := with(t, 2, 5)
	r.bury(4)
	r.say(r.peer(2), said(5, r.peer(5).value(model.StateLeft)))
	frames, err := r.node.ServeFrame(r.pack(r.peer(2), exchange(false, true)), r.now)
	if err != nil || len(frames) != 1 {
		t.Fatal(len(frames), err)
	}
	p, err := r.codec.Open(frames[0])
	if err != nil {
		t.Fatal(err)
	}
	var m wire.Message
	for reader := p.Reader(); reader.Next(&m); {
		if m.Subject == 4 || m.Subject == 5 {
			t.Fatalf("the table tells of %v", m.Subject)
		}
	}
	r.run(0)
	if len(r.claims(4)) == 0 || len(r.claims(5)) == 0 {
		t.Fatal("they do not travel as rumour either")
	}
}

// DESIGN §4: "… or as the answer to a stale alive". A departure is answered
// with itself. Deviation for a death, which may be what is stale: not the
// teller but the member itself is told, by a ping, and refutes if it lives.
func TestPaperStaleAlive(t *testing.T) {
	r := with(t, 2, 8)
	r.peer(5).mute = true
	r.bury(4)
	r.say(r.peer(2), said(5, model.Value{Epoch: 1, Incarnation: 1, State: model.StateLeft}))
	r.run(time.Second)
	r.forget()
	r.say(r.peer(6), said(5, r.peer(5).value(model.StateAlive)))
	if c := r.claims(5); len(c) != 1 || c[0].to != addr(6) || c[0].Value.State != model.StateLeft {
		t.Fatalf("the teller learns %+v", c)
	}
	r.say(r.peer(6), said(4, r.peer(4).value(model.StateAlive)))
	c := r.claims(4)
	if len(c) != 1 || c[0].to != addr(4) || c[0].Value.State != model.StateDead || len(r.to(r.peer(4), wire.Ping)) != 1 {
		t.Fatalf("who is held for dead is told %+v", c)
	}
	r.say(r.peer(7), said(4, r.peer(4).value(model.StateSuspect)))
	if n := len(r.to(r.peer(4), wire.Ping)); n != 1 {
		t.Fatalf("%d pings at once", n)
	}
	// It goes on being asked, however often that happened before.
	for i := range 100 {
		r.run(5 * time.Second)
		r.forget()
		r.say(r.peer(6), said(4, r.peer(4).value(model.StateAlive)))
		if len(r.to(r.peer(4), wire.Ping)) != 1 {
			t.Fatalf("not asked any more after %d times", i)
		}
	}
}

// DESIGN §4: tombstones "number at most max(1,024, 4 × the live)": the oldest
// go first.
func TestPaperTombstonesAreBounded(t *testing.T) {
	const limit = 10
	r := with(t, 2, 3, func(c *swim.Config) { c.TombstonesMin = limit })
	for i := 100; i < 130; i++ {
		p := r.add(i)
		p.mute = true
		r.run(time.Millisecond)
		r.bury(i)
		if in := r.node.Inspect(); in.Graves > max(limit, 4*(in.Live+1)) {
			t.Fatalf("%d tombstones at %d live members", in.Graves, in.Live+1)
		}
	}
	live := r.node.Inspect().Live + 1
	for i := 100; i < 130; i++ {
		if kept := i >= 130-max(limit, 4*live); r.has(model.NodeID(i)) != kept {
			t.Errorf("tombstone %d is kept: %v", i, !kept)
		}
	}
	// The live carry more.
	for i := 200; i < 210; i++ {
		r.add(i)
	}
	for i := 140; i < 190; i++ {
		r.add(i).mute = true
		r.run(time.Millisecond)
		r.bury(i)
	}
	if in := r.node.Inspect(); in.Graves != 4*(in.Live+1) {
		t.Fatalf("%d tombstones at %d live members", in.Graves, in.Live+1)
	}
}

// DESIGN §4: "Stored values never go back, also for the dead": also not by way
// of death, revival and death again.
func TestPaperDeadValueIsKept(t *testing.T) {
	r := with(t, 2, 4)
	p := r.peer(3)
	p.incarnation = 7
	r.say(r.peer(2), said(3, p.value(model.StateAlive)))
	p.mute = true
	if !r.until(r.now.Add(time.Minute), func() bool { return r.state(3) == model.StateDead }) {
		t.Fatal("never dead")
	}
	r.want(3, p.value(model.StateDead))
	for i := range uint64(8) {
		for s := model.StateAlive; s <= model.StateSuspect; s++ {
			r.say(r.peer(2), said(3, model.Value{Epoch: 1, Incarnation: i, State: s}))
			r.want(3, p.value(model.StateDead))
		}
	}
	if k := fmt.Sprint(r.kinds(3)); k != "[suspected died]" {
		t.Fatal(k)
	}
}
