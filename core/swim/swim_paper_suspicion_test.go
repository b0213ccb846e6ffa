package swim_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// SWIM §4.2: "Any group member that receives such a message also marks Mj as
// suspected", and hands it on.
func TestPaperSuspicionIsTakenOver(t *testing.T) {
	r := with(t, 2, 6)
	r.say(r.peer(2), said(4, r.peer(4).value(model.StateSuspect), 3))
	r.want(4, r.peer(4).value(model.StateSuspect))
	if got := r.kinds(4); !slices.Equal(got, []swim.EventKind{swim.EventSuspected}) || r.events[0].From != addr(2) {
		t.Fatalf("events %+v", r.events)
	}
	r.run(0)
	if c := r.claims(4); len(c) == 0 || c[0].Value.State != model.StateSuspect || !c[0].Accusers.Has(3) {
		t.Fatalf("handed on as %+v", c)
	}
}

// SWIM §4.2: "The suspected process Mj stays in the membership list, and is
// treated similar to a non-faulty member with respect to ping target
// selection."
func TestPaperSuspectStaysATarget(t *testing.T) {
	r := with(t, 2, 4, func(c *swim.Config) { c.SuspicionMult = 100 })
	r.peer(3).mute = true
	r.say(r.peer(2), said(3, r.peer(3).value(model.StateSuspect), 2))
	r.run(30 * r.cfg.ProbePeriod)
	if got := len(r.to(r.peer(3), wire.Ping)); got != 10 {
		t.Fatalf("a suspect among three members got %d of 30 pings, want 10", got)
	}
}

// SWIM §4.2: "If at some later point a member Ml successfully pings Mj …, Ml
// un-marks its suspicion". Deviation: an ack alone does not, since only the
// owner raises its value; but the ping tells the suspect of the accusation and
// each header carries its sender's incarnation, so the ack itself refutes.
func TestPaperSuccessfulPingRefutes(t *testing.T) {
	r := with(t, 2, 4)
	target := r.peer(3)
	target.mute = true
	r.say(r.peer(2), said(3, target.value(model.StateSuspect), 2))
	p := r.nextPing(target)
	accusation := r.find(func(s sent) bool { return s.packet == p.packet && s.Subject == 3 && s.Type == wire.Claim })
	if len(accusation) == 0 || accusation[0].Value != target.value(model.StateSuspect) {
		t.Fatalf("the ping tells %+v", accusation)
	}
	r.say(target, ack(p.Seq))
	r.want(3, target.value(model.StateSuspect))
	target.incarnation++
	r.say(target, ack(p.Seq))
	r.want(3, target.value(model.StateAlive))
	if got := r.kinds(3); got[len(got)-1] != swim.EventRefuted {
		t.Fatalf("events %v", got)
	}
	r.run(r.cfg.GossipInterval)
	if c := r.claims(3); c[len(c)-1].Value != target.value(model.StateAlive) {
		t.Fatal("the refutation is not passed on")
	}
}

// SWIM §4.2: "Suspected entries in membership lists expire after a
// prespecified time-out. If Mj is suspected … and this time-out expires before
// receipt of an Alive message about Mj, Mh declares Mj as faulty …, and begins
// spreading a {Confirm Mj:Mh declares Mj as faulty} message."
func TestPaperSuspicionExpires(t *testing.T) {
	r := with(t, 2, 6)
	target := r.peer(4)
	target.mute = true
	r.say(r.peer(2), said(4, target.value(model.StateSuspect), 2, 3, 5, 6)) // no confirmation shortens it any more
	s := r.node.Inspect().Suspicions[0]
	r.run(s.Deadline.Sub(r.now) - time.Millisecond)
	r.want(4, target.value(model.StateSuspect))
	r.run(2 * time.Millisecond)
	r.want(4, target.value(model.StateDead))
	e := r.event(swim.EventDied)
	if e == nil || !e.At.Equal(s.Deadline) || e.Was != target.value(model.StateSuspect) {
		t.Fatalf("event %+v, want a death at %v", e, s.Deadline)
	}
	c := r.claims(4)
	if last := c[len(c)-1]; last.Value != target.value(model.StateDead) || !last.at.Equal(s.Deadline) || last.Accusers.Len() != wire.MaxAccusers {
		t.Fatalf("spreads %+v", last)
	}
}

// SWIM §4.2: "… before receipt of an Alive message".
func TestPaperAliveStopsTheClock(t *testing.T) {
	r := with(t, 2, 6)
	target := r.peer(4)
	r.say(r.peer(2), said(4, target.value(model.StateSuspect), 2))
	r.run(100 * time.Millisecond)
	target.incarnation = 1
	r.say(r.peer(2), said(4, target.value(model.StateAlive)))
	r.run(time.Minute)
	if got := r.kinds(4); !slices.Equal(got, []swim.EventKind{swim.EventSuspected, swim.EventRefuted}) {
		t.Fatalf("events %v", got)
	}
}

// SWIM §4.2: "The incarnation number of a process Mi is initialized to 0 when
// it becomes a member, and it can be incremented only by Mi, when it receives
// information (via the dissemination component) about itself being suspected
// in the current incarnation – Mi then generates an Alive message with its
// identifier and an incremented incarnation number."
func TestPaperRefutation(t *testing.T) {
	for _, s := range []model.State{model.StateSuspect, model.StateDead} {
		t.Run(s.String(), func(t *testing.T) {
			r := with(t, 2, 6)
			own := model.Value{Epoch: selfEpoch}
			r.want(1, own)
			r.say(r.peer(3), said(1, model.Value{Epoch: selfEpoch, State: s}, 2))
			own.Incarnation = 1
			r.want(1, own)
			told := r.claims(1)
			if len(told) != 1 || told[0].to != addr(3) || told[0].Value != own || told[0].word != own {
				t.Fatalf("the accuser is told %+v", told)
			}
			r.say(r.peer(4), said(1, model.Value{Epoch: selfEpoch, State: s}, 2)) // an older one
			r.want(1, own)
			r.run(time.Second)
			if n := len(r.claims(1)); n < r.cfg.RetransmitMin || r.event(swim.EventRefuted) == nil {
				t.Fatalf("the refutation was sent %d times", n)
			}
		})
	}
}

// SWIM §4.2: the incarnation "can be incremented only by Mi": nothing that we
// hear or see of others raises theirs.
func TestPaperOthersNeverRaiseIt(t *testing.T) {
	r := with(t, 2, 6)
	for _, p := range r.peers {
		p.mute = p.id%2 == 0
	}
	r.run(time.Minute)
	for _, p := range r.peers {
		if v := r.member(p.id).Value; v.Epoch != p.epoch || v.Incarnation != p.incarnation {
			t.Fatalf("%s is held at %v, it never said so", p.name, v)
		}
	}
}

// SWIM §4.2, order of preference:
//
//	{Alive Ml, inc = i} overrides {Suspect Ml, inc = j}, i > j
//	                              {Alive Ml, inc = j}, i > j
//	{Suspect Ml, inc = i} overrides {Suspect Ml, inc = j}, i > j
//	                                {Alive Ml, inc = j}, i ≥ j
//	{Confirm Ml, inc = i} overrides {Alive Ml, inc = j}, any j
//	                                {Suspect Ml, inc = j}, any j
//
// Deviation in the last two lines, DESIGN §4: "Precedence for one member is a
// total order, (epoch, incarnation, rank) with rank left > dead > suspect >
// alive … (The classic rule, dead over everything, is not: a suspicion with a
// higher incarnation proves that the owner refuted the older death.)"
func TestPaperPrecedence(t *testing.T) {
	var values []model.Value
	for e := uint64(1); e <= 2; e++ {
		for i := uint64(0); i <= 2; i++ {
			for s := model.StateAlive; s <= model.StateLeft; s++ {
				values = append(values, model.Value{Epoch: e, Incarnation: i, State: s})
			}
		}
	}
	for _, old := range values {
		for _, next := range values {
			r := quietPair(t)
			r.say(r.peer(2), said(3, old))
			r.want(3, old)
			r.say(r.peer(2), said(3, next))
			want := old
			if next.Epoch > old.Epoch || next.Epoch == old.Epoch && (next.Incarnation > old.Incarnation ||
				next.Incarnation == old.Incarnation && next.State > old.State) {
				want = next
			}
			r.want(3, want)
		}
	}
}

// quietPair knows two members; the second starts low and answers nothing.
func quietPair(t *testing.T) *rig {
	r := newRig(t)
	r.add(2)
	p := &peer{id: 3, name: "n3", addr: addr(3), epoch: 0, mute: true}
	r.peers = append(r.peers, p)
	r.say(p, p.intro())
	return r
}

// DESIGN §4: "so merging is commutative, associative and idempotent", and
// "Stored values never go back, also for the dead."
func TestPaperMergeOrderDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var said3 []model.Value
		for range 1 + rng.IntN(6) {
			said3 = append(said3, model.Value{Epoch: rng.Uint64N(3), Incarnation: rng.Uint64N(3), State: model.State(rng.IntN(4))})
		}
		want := slices.MaxFunc(append(said3, model.Value{}), model.Value.Compare)
		for range 3 {
			rng.Shuffle(len(said3), func(i, j int) { said3[i], said3[j] = said3[j], said3[i] })
			r := quietPair(t)
			held := r.member(3).Value
			for _, v := range append(said3, said3...) {
				r.say(r.peer(2), said(3, v))
				now := r.member(3).Value
				if now.Compare(held) < 0 {
					t.Fatalf("%v went back to %v by %v", held, now, v)
				}
				held = now
			}
			if held != want {
				t.Fatalf("%v after %v, want %v", held, said3, want)
			}
		}
	}
}
