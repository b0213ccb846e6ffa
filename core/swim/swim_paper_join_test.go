package swim_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// A node joins by an exchange with its contacts, tried again until one
// answers. DESIGN §11: "an own address in it is ignored".
func TestPaperJoin(t *testing.T) {
	r := newRig(t, func(c *swim.Config) { c.ExchangeInterval = time.Hour }) // not to be taken for a try
	r.node.Join([]netip.AddrPort{addr(1), addr(2), addr(3), addr(2)}, r.now)
	r.run(0)
	tried := func() (to []netip.AddrPort) {
		for _, s := range r.streams {
			if s.Kind != swim.StreamExchange {
				t.Fatalf("stream %+v", s)
			}
			to = append(to, s.To)
			r.node.StreamClosed(s.Token, swim.StreamRefused, r.now)
		}
		r.streams = nil
		return to
	}
	if got := tried(); !slices.Equal(got, []netip.AddrPort{addr(2), addr(3)}) {
		t.Fatalf("tried %v", got)
	}
	for range 20 { // while alone it never slows down
		if !r.until(r.now.Add(r.cfg.JoinRetry*5/4), func() bool { return len(r.streams) == 2 }) {
			t.Fatal("not tried again")
		}
		tried()
	}
	r.run(2 * r.cfg.JoinRetry)
	s := r.streams[len(r.streams)-1]
	r.streams = nil
	p, err := r.codec.Open(s.Frames[0])
	if err != nil || p.First() != wire.Exchange || p.Sender != 1 {
		t.Fatalf("asks with %v of %v, %v", p.First(), p.Sender, err)
	}
	two, three := &peer{id: 2, name: "n2", addr: addr(2), epoch: 1}, &peer{id: 3, name: "n3", addr: addr(3), epoch: 1}
	r.peers = append(r.peers, two, three)
	r.answer(s, two, exchange(true, true), two.intro(), three.intro())
	r.want(2, two.value(model.StateAlive))
	r.want(3, three.value(model.StateAlive))
	r.run(rumours)
	if got := tried(); len(got) > 0 {
		t.Fatalf("members are still tried as contacts: %v", got)
	}
	if len(r.claims(2))+len(r.claims(3)) > 0 {
		t.Fatal("what a newcomer learns is spread as if it were news")
	}
	if len(r.claims(1)) == 0 {
		t.Fatal("the newcomer does not say that it is here")
	}
}

// Contacts that are nobody's address are tried on, ever more slowly, so that
// clusters that formed apart find each other.
func TestPaperContactsAreTriedOn(t *testing.T) {
	r := newRig(t)
	r.add(2)
	r.node.Join([]netip.AddrPort{addr(2), addr(50)}, r.now)
	var times []time.Time
	for len(times) < 20 {
		r.streams = nil
		r.until(r.now.Add(time.Minute), func() bool { return len(r.streams) > 0 })
		if len(r.streams) == 0 {
			t.Fatal("not tried any more")
		}
		if r.streams[0].To == addr(50) {
			times = append(times, r.now)
		}
	}
	first, last := times[1].Sub(times[0]), times[19].Sub(times[18])
	if first > 2*r.cfg.JoinRetry || last < r.cfg.ContactInterval*3/4 || last > r.cfg.ContactInterval*5/4 {
		t.Fatalf("%v between the first tries, %v between the last", first, last)
	}
}

// A contact that turns out to be this node itself, by another address, is
// dropped.
func TestPaperContactIsMyself(t *testing.T) {
	r := newRig(t)
	r.node.Join([]netip.AddrPort{addr(60)}, r.now)
	r.run(0)
	frames, err := r.node.ServeFrame(r.streams[0].Frames[0], r.now)
	if err != nil || len(frames) != 1 {
		t.Fatal(len(frames), err)
	}
	if err := r.node.StreamFrame(r.streams[0].Token, frames[0], r.now); err != nil {
		t.Fatal(err)
	}
	r.streams = nil
	r.run(time.Minute)
	if len(r.streams) > 0 || len(r.node.Members()) != 1 || len(r.events) > 0 {
		t.Fatalf("it goes on talking to itself: %+v", r.streams)
	}
}

// DESIGN §4: "left is said by the owner at incarnation + 1".
func TestPaperLeave(t *testing.T) {
	r := with(t, 2, 8)
	r.node.Leave(r.now)
	r.drain()
	left := model.Value{Epoch: selfEpoch, Incarnation: 1, State: model.StateLeft}
	r.want(1, left)
	for _, p := range r.peers { // a small cluster is told at once
		if c := r.find(func(s sent) bool { return s.Subject == 1 && s.to == p.addr }); len(c) != 1 || c[0].Value != left {
			t.Fatalf("%s is told %+v", p.name, c)
		}
	}
	if k := r.kinds(1); !slices.Equal(k, []swim.EventKind{swim.EventLeft}) {
		t.Fatalf("events %v", k)
	}
	if r.node.LeaveDone() {
		t.Fatal("done before anybody can have heard")
	}
	if !r.until(r.now.Add(5*time.Second), r.node.LeaveDone) {
		t.Fatal("never done")
	}
	if n := len(r.claims(1)); n < r.cfg.RetransmitMin {
		t.Fatalf("said %d times", n)
	}
}

// Who left probes nobody and judges nobody, but answers until it is gone, and
// always with its good-bye: nobody sees it fail.
func TestPaperDepartedAnswers(t *testing.T) {
	r := with(t, 2, 8)
	for _, p := range r.peers {
		p.mute = true
	}
	r.node.Leave(r.now)
	r.run(rumours)
	if len(r.of(wire.Ping)) > 0 || r.event(swim.EventSuspected) != nil {
		t.Fatal("it still probes")
	}
	r.forget()
	for range 20 { // however often: the rumour itself was sent out long ago
		r.forget()
		r.say(r.peer(3), ping(5, 1))
		if a := r.to(r.peer(3), wire.Ack); len(a) != 1 || a[0].Seq != 5 {
			t.Fatalf("answers %+v", a)
		}
		if c := r.claims(1); len(c) != 1 || c[0].Value.State != model.StateLeft {
			t.Fatalf("does not say that it left: %+v", c)
		}
	}
	r.say(r.peer(3), said(1, model.Value{Epoch: selfEpoch, State: model.StateDead}))
	r.want(1, model.Value{Epoch: selfEpoch, Incarnation: 1, State: model.StateLeft})
}

// Others take a good-bye as what it is, whatever they held.
func TestPaperLeftIsNoFailure(t *testing.T) {
	for _, s := range []model.State{model.StateAlive, model.StateSuspect, model.StateDead} {
		r := with(t, 2, 5)
		p := r.peer(4)
		p.mute = true
		r.say(r.peer(2), said(4, p.value(s), 2))
		r.forget()
		p.incarnation++
		r.say(p, said(4, p.value(model.StateLeft)))
		r.want(4, p.value(model.StateLeft))
		r.run(time.Minute)
		r.want(4, p.value(model.StateLeft))
		for _, e := range r.events {
			if e.Kind == swim.EventSuspected || e.Kind == swim.EventDied {
				t.Errorf("%v, then %v: %s", s, e.Kind, e.Member.Name)
			}
		}
		if len(r.to(p, wire.Ping)) > 0 {
			t.Errorf("%v: who left is probed", s)
		}
	}
}

// A departure is final for an epoch; Rejoin takes it back under the next one,
// persisted first.
func TestPaperRejoin(t *testing.T) {
	r := with(t, 2, 6)
	if err := r.node.SetRecord([]byte("mine"), r.now); err != nil {
		t.Fatal(err)
	}
	r.node.Rejoin(r.now) // did not leave: nothing
	r.node.Leave(r.now)
	r.run(10 * time.Second)
	r.forget()
	r.node.Rejoin(r.now)
	ready := r.node.Ready()
	back := model.Value{Epoch: selfEpoch + 1}
	if ready.PersistEpoch != back.Epoch || len(ready.Packets) > 0 {
		t.Fatalf("persists %d with %d packets", ready.PersistEpoch, len(ready.Packets))
	}
	r.want(1, back)
	if e := ready.Events; e[len(e)-1].Kind != swim.EventRevived || e[len(e)-1].Was != (model.Value{Epoch: selfEpoch, Incarnation: 1, State: model.StateLeft}) {
		t.Fatalf("events %+v", e)
	}
	r.run(time.Second)
	if c := r.claims(1); len(c) == 0 || c[0].Value != back || !c[0].HasMeta {
		t.Fatalf("says %+v", c)
	}
	if q := r.find(func(s sent) bool { return s.Type == wire.RecordOf }); len(q) == 0 || q[0].Epoch != back.Epoch || string(q[0].Payload) != "mine" {
		t.Fatalf("records %+v", q)
	}
	r.run(3 * time.Second)
	if len(r.of(wire.Ping)) == 0 {
		t.Fatal("it does not take part again")
	}
}

// Alone, there is nobody to say good-bye to.
func TestPaperLeaveAlone(t *testing.T) {
	r := newRig(t)
	r.node.Leave(r.now)
	if !r.node.LeaveDone() {
		t.Fatal("waits for nobody")
	}
}
