package swim_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// DESIGN §4: "Epoch = persisted boot counter, so a restarted node beats its
// own tombstone at once, with a new address too."
func TestPaperRestartBeatsTheTombstone(t *testing.T) {
	for _, s := range []model.State{model.StateDead, model.StateLeft} {
		t.Run(s.String(), func(t *testing.T) {
			r := with(t, 2, 5)
			p := r.peer(3)
			p.mute = true
			r.say(r.peer(2), said(3, model.Value{Epoch: 1, Incarnation: 40, State: s}))
			p.epoch, p.addr = 2, addr(33)
			r.say(p, p.intro())
			r.want(3, model.Value{Epoch: 2})
			if m := r.member(3); m.Addr != addr(33) {
				t.Fatalf("held at %v", m.Addr)
			}
			if r.event(swim.EventRevived) == nil {
				t.Fatalf("events %v", r.kinds(3))
			}
			p.mute = false
			r.nextPing(p)
			if n := r.find(func(s sent) bool { return s.Type == wire.Ping && s.to == addr(3) }); len(n) > 0 && n[len(n)-1].at.Equal(r.now) {
				t.Fatal("the old address is still pinged")
			}
			r.run(0)
			c := r.claims(3)
			if last := c[len(c)-1]; last.Value != (model.Value{Epoch: 2}) || last.Addr != addr(33) {
				t.Fatalf("passed on as %+v", last)
			}
		})
	}
}

// A restart that nobody noticed: a live member at a new epoch and address is
// an update, not a death.
func TestPaperRestartUnnoticed(t *testing.T) {
	r := with(t, 2, 5)
	p := r.peer(3)
	p.epoch, p.addr, p.name = 2, addr(34), "renamed"
	r.say(p, p.intro())
	if m := r.member(3); m.Addr != addr(34) || m.Name != "renamed" || m.Value != (model.Value{Epoch: 2}) {
		t.Fatalf("held as %+v", m)
	}
	for _, e := range r.events {
		if e.Kind != swim.EventUpdated {
			t.Fatalf("event %v", e.Kind)
		}
	}
	if last := r.events[len(r.events)-1]; last.Member.Addr != addr(34) {
		t.Fatalf("the last event tells %v", last.Member.Addr)
	}
	// Identity is of the epoch: a late claim of the old one changes nothing.
	r.say(r.peer(2), claim(wire.Claimed{Subject: 3, Value: model.Value{Epoch: 1, Incarnation: 9}, Name: "n3", Addr: addr(3)}))
	if m := r.member(3); m.Addr != addr(34) || m.Name != "renamed" {
		t.Fatalf("an old claim moved it to %v", m.Addr)
	}
}

// A new epoch that is heard of by header only makes the node ask who that is
// now: name and address may have changed with it.
func TestPaperNewEpochIsAskedForItsIdentity(t *testing.T) {
	r := with(t, 2, 5)
	r.run(2 * time.Second) // at most one exchange out of turn per period
	r.forget()
	p := r.peer(3)
	p.epoch = 2
	r.sayFrom(addr(35), p, ping(1, 1))
	if s := r.wantedStreams(swim.StreamExchange); len(s) != 1 || s[0].To != addr(35) {
		t.Fatalf("streams %+v, want an exchange with %v", s, addr(35))
	}
}

// DESIGN §4: "A node that hears its own id at a higher (epoch, incarnation)
// than it ever said takes the heard epoch + 1, persists it, then speaks".
func TestPaperOwnIDHeardHigher(t *testing.T) {
	for _, heard := range []model.Value{
		{Epoch: selfEpoch + 3, Incarnation: 8, State: model.StateDead},
		{Epoch: selfEpoch + 3, State: model.StateAlive},
		{Epoch: selfEpoch, Incarnation: 1, State: model.StateAlive},
		{Epoch: selfEpoch, Incarnation: 1, State: model.StateSuspect},
		{Epoch: selfEpoch, State: model.StateLeft}, // our own good-bye, forgotten
	} {
		t.Run(heard.String(), func(t *testing.T) {
			r := with(t, 2, 5)
			want := model.Value{Epoch: heard.Epoch + 1}
			if err := r.node.Step(addr(2), r.pack(r.peer(2), said(1, heard), ping(1, 1)), r.now); err != nil {
				t.Fatal(err)
			}
			ready := r.node.Ready()
			if ready.PersistEpoch != want.Epoch {
				t.Fatalf("persists %d, want %d", ready.PersistEpoch, want.Epoch)
			}
			// All of this Ready leaves after the epoch was persisted, and
			// none of it can have been encoded before under a later one.
			if len(ready.Packets) == 0 {
				t.Fatal("nothing is said under the new epoch")
			}
			for _, p := range ready.Packets {
				if m := r.read(p); m[0].word != want {
					t.Fatalf("speaks as %v, want %v", m[0].word, want)
				}
			}
			r.want(1, want)
			if ready.Events[0].Kind != swim.EventEpochJumped {
				t.Fatalf("events %+v", ready.Events)
			}
			r.run(time.Second)
			if c := r.claims(1); len(c) < r.cfg.RetransmitMin || c[0].Value != want {
				t.Fatalf("the new epoch is said %d times", len(c))
			}
		})
	}
}

// DESIGN §4: "(an accusation at its own value is only refuted)"
func TestPaperAccusationIsOnlyRefuted(t *testing.T) {
	r := with(t, 2, 5)
	for i := range uint64(10) {
		r.say(r.peer(2), said(1, model.Value{Epoch: selfEpoch, Incarnation: i, State: model.StateDead}, 2))
		r.want(1, model.Value{Epoch: selfEpoch, Incarnation: i + 1})
	}
	if len(r.persist) > 0 || r.node.Silent() {
		t.Fatal("an accusation was taken for a forgotten epoch")
	}
}

// What others hold below our own word is answered with it, so that they learn.
func TestPaperOldAccusationIsAnswered(t *testing.T) {
	r := with(t, 2, 5)
	r.say(r.peer(4), said(1, model.Value{Epoch: selfEpoch - 1, Incarnation: 30, State: model.StateDead}))
	if c := r.claims(1); len(c) != 1 || c[0].to != addr(4) || c[0].Value != (model.Value{Epoch: selfEpoch}) {
		t.Fatalf("answered %+v", c)
	}
}

// DESIGN §4: "three such jumps in 60 s mean a cloned data directory: reported,
// and it falls silent."
func TestPaperCloneFallsSilent(t *testing.T) {
	jump := func(r *rig) {
		r.say(r.peer(2), said(1, model.Value{Epoch: r.member(1).Value.Epoch, Incarnation: 1}))
	}
	t.Run("in 60 s", func(t *testing.T) {
		r := newRig(t)
		for i := 2; i <= 5; i++ {
			r.add(i)
		}
		jump(r)
		r.run(25 * time.Second)
		jump(r)
		r.run(25 * time.Second)
		if r.node.Silent() {
			t.Fatal("silent after two jumps")
		}
		r.forget()
		jump(r)
		e := r.event(swim.EventCloned)
		if e == nil || !r.node.Silent() || !strings.Contains(e.Detail, "0000000000000001") {
			t.Fatalf("not reported: %+v", e)
		}
		r.forget()
		if err := r.node.Step(addr(2), r.pack(r.peer(2), ping(1, 1)), r.now); !errors.Is(err, swim.ErrSilent) {
			t.Fatalf("takes packets: %v", err)
		}
		if _, err := r.node.ServeFrame(r.pack(r.peer(2), ping(1, 1)), r.now); !errors.Is(err, swim.ErrSilent) {
			t.Fatalf("serves streams: %v", err)
		}
		if err := r.node.StreamFrame(1, r.pack(r.peer(2), ack(1)), r.now); !errors.Is(err, swim.ErrSilent) {
			t.Fatalf("takes frames: %v", err)
		}
		r.node.Leave(r.now)
		r.node.Rejoin(r.now)
		r.run(10 * time.Minute)
		if len(r.sent) > 0 || len(r.streams) > 0 || !r.node.LeaveDone() {
			t.Fatal("a silent node speaks")
		}
	})
	// Deviation: a node that had run for a while may jump once more than one
	// that has just started, so that the copy falls silent and not the original.
	t.Run("the original outlasts the copy", func(t *testing.T) {
		r := with(t, 2, 5)
		r.run(5 * r.cfg.ProbePeriod)
		for range 3 {
			jump(r)
		}
		if r.node.Silent() {
			t.Fatal("the original fell silent before the copy can")
		}
		jump(r)
		if !r.node.Silent() {
			t.Fatal("four jumps are too many for anybody")
		}
	})
	t.Run("in more", func(t *testing.T) {
		r := with(t, 2, 5)
		for range 10 {
			jump(r)
			r.run(31 * time.Second)
		}
		if r.node.Silent() || r.member(1).Value.Epoch != selfEpoch+10 {
			t.Fatalf("silent %v at %v", r.node.Silent(), r.member(1).Value)
		}
	})
}

// Two nodes on copies of one data directory speak at one epoch: the id at our
// own value but with another name or address is as good as a higher one.
func TestPaperCloneAtTheSameEpoch(t *testing.T) {
	r := with(t, 2, 5)
	twin := &peer{id: 1, name: "n1", addr: addr(77), epoch: selfEpoch}
	r.say(twin, twin.intro())
	r.want(1, model.Value{Epoch: selfEpoch + 1})
	if !slices.Equal(r.persist, []uint64{selfEpoch + 1}) {
		t.Fatalf("persisted %v", r.persist)
	}
	// And by header alone.
	twin.epoch = selfEpoch + 4
	r.say(twin, ping(1, 1))
	r.want(1, model.Value{Epoch: selfEpoch + 5})
	// Our own words, reflected, are none of this.
	mirror := &peer{id: 1, name: "n1", addr: addr(1), epoch: selfEpoch + 5}
	r.say(mirror, mirror.intro(), ping(1, 1))
	r.want(1, model.Value{Epoch: selfEpoch + 5})
}

// Words far beyond what honest restarts and refutations can reach are dropped,
// or one forged packet would end a member's numbers. This bounds "takes the
// heard epoch + 1".
func TestPaperImplausibleLeaps(t *testing.T) {
	r := with(t, 2, 5)
	const leap = 1<<20 + 1
	r.say(r.peer(2), said(1, model.Value{Epoch: selfEpoch + leap}), said(3, model.Value{Epoch: 1 + leap}), said(3, model.Value{Epoch: 1, Incarnation: leap}))
	r.want(1, model.Value{Epoch: selfEpoch})
	r.want(3, r.peer(3).value(model.StateAlive))
	if got := r.node.Counters().Implausible; got != 2 {
		t.Fatalf("counted %d, want 2", got)
	}
}

// DESIGN §4: "A valid answer (keyed checksum, later AEAD) to a probe from a
// member's address under a new id marks the old id dead at its stored value."
func TestPaperAnswerUnderANewID(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  netip.AddrPort
		valid bool
		want  model.State
	}{
		{"from its address", addr(4), true, model.StateDead},
		{"from elsewhere", addr(44), true, model.StateAlive},
		{"of another cluster", addr(4), false, model.StateAlive},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := with(t, 2, 6)
			old := r.peer(4)
			old.mute, old.incarnation = true, 3
			r.say(r.peer(2), said(4, old.value(model.StateAlive)))
			q := r.nextPing(old)
			if q.Subject != old.id {
				t.Fatalf("the ping names %v", q.Subject)
			}
			heir := &peer{id: 400, name: "n400", addr: addr(4), epoch: 1}
			answer := r.pack(heir, ack(q.Seq))
			if !tc.valid {
				answer = wire.NewCodec("other").Seal(answer[:len(answer)-8])
			}
			err := r.node.Step(tc.from, answer, r.now)
			r.drain()
			if tc.valid != (err == nil) || err != nil && !errors.Is(err, wire.ErrChecksum) {
				t.Fatal(err)
			}
			r.want(4, old.value(tc.want))
			if e := r.event(swim.EventDied); e != nil && !strings.Contains(e.Detail, heir.id.String()) {
				t.Fatalf("the reason %q does not name the new id", e.Detail)
			}
		})
	}
	t.Run("over TCP", func(t *testing.T) {
		r := with(t, 2, 6)
		r.peer(4).mute = true
		q := r.nextPing(r.peer(4))
		r.run(r.cfg.ProbeTimeout)
		r.answer(r.wantedStreams(swim.StreamPing)[0], &peer{id: 400, epoch: 1}, ack(q.Seq))
		r.want(4, r.peer(4).value(model.StateDead))
	})
}
