package swim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// lives returns how long a suspicion that accusers share lives in a cluster
// of live members.
func lives(t *testing.T, live int, accusers ...model.NodeID) time.Duration {
	t.Helper()
	r := with(t, 2, live)
	target := r.peer(2)
	target.mute = true
	start := r.now
	for _, a := range accusers { // one message each, as if they came one by one
		r.say(r.peer(3), said(2, target.value(model.StateSuspect), a))
	}
	// It is not probed in the meantime: our own accusation would count too.
	if !r.until(r.now.Add(time.Minute), func() bool { return r.state(2) == model.StateDead || len(r.to(target, wire.Ping)) > 0 }) {
		t.Fatal("the suspicion never ends")
	}
	if e := r.event(swim.EventDied); e != nil {
		return e.At.Sub(start)
	}
	return r.node.Inspect().Suspicions[0].Deadline.Sub(start)
}

func near(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond }

// Lifeguard §IV-B: the suspicion timeout is
// max(Min, Max - (Max-Min)·log(C+1)/log(K+1)) with Min = α·log10(n)·period and
// Max = β·Min, where C is the number of independent suspicions received.
//
// DESIGN §4: "Suspicion time grows with log n and shrinks with independent
// confirmations; expiry → dead."
func TestPaperSuspicionTime(t *testing.T) {
	cfg := lan()
	for _, live := range []int{5, 10, 100, 200} {
		least := time.Duration(cfg.SuspicionMult * math.Max(1, math.Log10(float64(live))) * float64(cfg.ProbePeriod))
		longest := time.Duration(cfg.SuspicionMaxMult * float64(least))
		before := longest + 1
		for c := range 4 {
			accusers := []model.NodeID{1001, 1002, 1003, 1004}[:c+1]
			got := lives(t, live, accusers...)
			want := longest - time.Duration(math.Log(float64(c+1))/math.Log(4)*float64(longest-least))
			if !near(got, want) || got >= before {
				t.Errorf("%d members, %d confirmations: %v, want %v", live, c, got, want)
			}
			before = got
		}
	}
}

// Lifeguard §IV-B: only suspicions from distinct members count. DESIGN §4:
// confirmations are of "distinct accusers".
func TestPaperConfirmationsAreDistinct(t *testing.T) {
	if once, thrice := lives(t, 20, 1001), lives(t, 20, 1001, 1001, 1001); !near(once, thrice) {
		t.Fatalf("one accuser alone: %v once, %v if repeated", once, thrice)
	}
}

// Lifeguard §IV-B: with too few members to confirm, the minimum is used from
// the start: nobody could shorten the wait.
func TestPaperSuspicionInSmallClusters(t *testing.T) {
	cfg := lan()
	r := with(t, 2, 2)
	r.peer(2).mute = true
	r.nextPing(r.peer(2))
	r.run(cfg.ProbePeriod)
	if s := r.node.Inspect().Suspicions; len(s) != 1 || s[0].Deadline.Sub(s[0].Since) != cfg.ProbePeriod {
		t.Fatalf("of two members: %+v, want the least time at once", s)
	}
	if got := lives(t, 3, 1001, 1002); got != cfg.ProbePeriod {
		t.Fatalf("of three members with both accusing: %v, want %v", got, cfg.ProbePeriod)
	}
}

// Lifeguard §IV-B: the first K independent suspicions are gossiped again, so
// that others shorten their timeouts too.
func TestPaperConfirmationsArePassedOn(t *testing.T) {
	r := with(t, 2, 12, func(c *swim.Config) { c.SuspicionMult = 100 })
	v := r.peer(2).value(model.StateSuspect)
	r.say(r.peer(3), said(2, v, 3))
	r.peer(2).mute = true
	r.run(2 * time.Second)
	r.forget()
	r.say(r.peer(4), said(2, v, 4))
	r.run(r.cfg.GossipInterval)
	if c := r.claims(2); len(c) == 0 || !c[0].Accusers.Has(3) || !c[0].Accusers.Has(4) {
		t.Fatalf("passed on: %+v", c)
	}
	r.forget()
	r.say(r.peer(4), said(2, v, 4))
	for _, q := range r.node.Inspect().Rumours {
		if q.Subject == 2 && q.Sends == 0 {
			t.Fatal("a known accuser is news again")
		}
	}
}

// Lifeguard §IV-A: the helper "sends a nack message" if it gets no ack from
// the target, at 80 % of the timeout of the asker.
//
// DESIGN §4: "helpers answer ack or nack *before* a deadline carried in the
// request".
func TestPaperNackBeforeTheDeadline(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond} {
		r := with(t, 2, 5)
		r.peer(3).mute = true
		start := r.now
		r.say(r.peer(2), pingReq(33, 3, wait))
		seq := r.to(r.peer(3), wire.Ping)[0].Seq
		r.run(wait)
		nacks := r.to(r.peer(2), wire.Nack)
		if len(nacks) != 1 || nacks[0].Seq != 33 || nacks[0].Reason != wire.NackNoAnswer {
			t.Fatalf("nacks %+v", nacks)
		}
		if after := nacks[0].at.Sub(start); after >= wait || after < wait/2 {
			t.Fatalf("nack after %v of %v", after, wait)
		}
		r.say(r.peer(3), ack(seq))
		if len(r.to(r.peer(2), wire.Ack)) > 0 {
			t.Fatal("an ack after the deadline is forwarded")
		}
	}
}

// A target that is only slow is vouched for even after the nack.
func TestPaperAckAfterTheNack(t *testing.T) {
	r := with(t, 2, 5)
	r.peer(3).mute = true
	r.say(r.peer(2), pingReq(33, 3, time.Second))
	r.run(900 * time.Millisecond)
	r.say(r.peer(3), ack(r.to(r.peer(3), wire.Ping)[0].Seq))
	if len(r.to(r.peer(2), wire.Nack)) != 1 || len(r.to(r.peer(2), wire.Ack)) != 1 {
		t.Fatal("want a nack, and then an ack")
	}
}

// DESIGN §4: the deadline is "carried in the request": it is what is left of
// the asker's period.
func TestPaperPingReqCarriesTheDeadline(t *testing.T) {
	r := with(t, 2, 6)
	r.peer(3).mute = true
	p := r.nextPing(r.peer(3))
	r.run(r.cfg.ProbeTimeout)
	q := r.of(wire.PingReq)[0]
	if got, want := q.at.Add(time.Duration(q.WaitMillis)*time.Millisecond), p.at.Add(r.cfg.ProbePeriod); got.After(want) || want.Sub(got) > 2*time.Millisecond {
		t.Fatalf("the request ends at %v, the period at %v", got, want)
	}
}

// A nack tells of an own ping without answer: who sends it is a witness, so the
// accusation names it. A helper that just does not know the target is none,
// nor is anybody who was not asked.
func TestPaperNackingHelpersAreAccusers(t *testing.T) {
	r := with(t, 2, 12)
	target := r.peer(5)
	target.mute = true
	r.nextPing(target)
	r.run(r.cfg.ProbeTimeout)
	reqs := r.of(wire.PingReq)
	var asked []*peer
	var other *peer
	for _, p := range r.peers {
		if slices.ContainsFunc(reqs, func(q sent) bool { return q.to == p.addr }) {
			asked = append(asked, p)
		} else if p != target {
			other = p
		}
	}
	seq := reqs[0].Seq
	r.say(asked[0], nack(seq, wire.NackNoAnswer))
	r.say(asked[0], nack(seq, wire.NackNoAnswer))
	r.say(asked[1], nack(seq, wire.NackUnknown))
	r.say(asked[2], nack(seq, wire.NackNoAnswer))
	r.say(other, nack(seq, wire.NackNoAnswer))
	r.say(other, nack(seq+100, wire.NackNoAnswer))
	r.run(r.cfg.ProbePeriod)
	s := r.node.Inspect().Suspicions
	if len(s) != 1 || !slices.Equal(s[0].Accusers, []model.NodeID{1, asked[0].id, asked[2].id}) {
		t.Fatalf("accusers %+v, want this node, %v and %v", s, asked[0].id, asked[2].id)
	}
}

// A helper answers for whom it does not know with a nack at once, so that the
// asker does not take its silence for anything.
func TestPaperHelperDoesNotKnowTheTarget(t *testing.T) {
	r := with(t, 2, 5)
	r.say(r.peer(2), pingReq(9, 77, time.Second))
	if n := r.to(r.peer(2), wire.Nack); len(n) != 1 || n[0].Seq != 9 || n[0].Reason != wire.NackUnknown || len(r.of(wire.Ping)) > 0 {
		t.Fatalf("nacks %+v", n)
	}
}

// Lifeguard §IV-C, Buddy System: "a member that pings a member that it
// suspects" prioritises telling it: the accusation is in the ping, and before
// it, so that the ack already refutes. Ours does so for relayed pings and in
// acks to a suspect as well.
func TestPaperSuspectIsToldInThePing(t *testing.T) {
	r := with(t, 2, 40, func(c *swim.Config) { c.MTU = 768 })
	suspect := r.peer(3)
	suspect.mute = true
	r.say(r.peer(2), said(3, suspect.value(model.StateSuspect), 2))
	r.run(2 * time.Second)
	for _, p := range r.peers { // other news that could crowd the packet
		if p != suspect {
			p.incarnation++
			r.say(r.peer(2), said(p.id, p.value(model.StateAlive)))
		}
	}
	told := func(what string, typ wire.Type) {
		t.Helper()
		s := r.to(suspect, typ)
		if len(s) == 0 {
			t.Fatalf("no %s", what)
		}
		last := s[len(s)-1].packet
		first := slices.IndexFunc(r.sent, func(s sent) bool { return s.packet == last })
		for _, m := range r.sent[first:min(first+2, len(r.sent))] {
			if m.Type == wire.Claim && m.Subject == 3 && m.Value == r.member(3).Value {
				return
			}
		}
		t.Fatalf("a %s does not tell the suspect first", what)
	}
	r.say(r.peer(2), pingReq(9, 3, time.Second))
	told("relayed ping", wire.Ping)
	r.say(suspect, ping(5, 1))
	told("ack", wire.Ack)
	r.forget()
	r.until(r.now.Add(2*time.Minute), func() bool { return len(r.to(suspect, wire.Ping)) > 0 })
	told("ping", wire.Ping)
}

// DESIGN §4: "else ping-req to k = 3 distinct members and a TCP ping in
// parallel". An ack over TCP ends the probe like any other.
func TestPaperTCPPingInParallel(t *testing.T) {
	r := with(t, 2, 6)
	target := r.peer(4)
	target.mute = true
	p := r.nextPing(target)
	r.run(r.cfg.ProbeTimeout)
	s := r.wantedStreams(swim.StreamPing)
	if len(s) != 1 || s[0].To != target.addr || s[0].Timeout > r.cfg.ProbePeriod || len(s[0].Frames) != 1 {
		t.Fatalf("streams %+v", s)
	}
	open, err := r.codec.Open(s[0].Frames[0])
	if err != nil || open.First() != wire.Ping {
		t.Fatalf("the frame is %v, %v", open.First(), err)
	}
	r.answer(s[0], target, ack(p.Seq))
	r.run(r.cfg.ProbePeriod)
	if r.state(4) != model.StateAlive {
		t.Fatal("the ack over TCP did not count")
	}
	// The other end: a TCP ping is answered with an ack that says who we are.
	frames, err := r.node.ServeFrame(r.pack(target, ping(808, 1)), r.now)
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	var m wire.Message
	open, err = r.codec.Open(frames[0])
	if reader := open.Reader(); err != nil || !reader.Next(&m) || m.Type != wire.Ack || m.Seq != 808 || open.Sender != 1 {
		t.Fatalf("answered %+v of %v, %v", m, open.Sender, err)
	}
}

// A refused TCP ping ends the wait: the host is there and nobody listens.
// Any other end of the stream says nothing.
func TestPaperRefusedTCPPing(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  swim.StreamEnd
		want model.State
	}{{"refused", swim.StreamRefused, model.StateSuspect}, {"failed", swim.StreamFailed, model.StateAlive}} {
		t.Run(tc.name, func(t *testing.T) {
			r := with(t, 2, 6)
			target := r.peer(4)
			target.mute = true
			r.nextPing(target)
			r.run(r.cfg.ProbeTimeout)
			r.node.StreamClosed(r.wantedStreams(swim.StreamPing)[0].Token, tc.end, r.now)
			r.drain()
			if got := r.state(4); got != tc.want {
				t.Fatalf("the target is %v, want %v", got, tc.want)
			}
			// The nacks still to come count as confirmations.
			q := r.of(wire.PingReq)[0]
			h := slices.IndexFunc(r.peers, func(p *peer) bool { return p.addr == q.to })
			r.say(r.peers[h], nack(q.Seq, wire.NackNoAnswer))
			if s := r.node.Inspect().Suspicions; tc.want == model.StateSuspect && len(s[0].Accusers) != 2 {
				t.Fatalf("accusers %+v", s)
			}
		})
	}
}

// Lifeguard §IV-C, "buddy system", on the other path of a probe: "… ping over
// TCP in parallel". A suspect that only streams reach hears of the accusation
// there, and its ack refutes it.
func TestPaperSuspectRefutesOverTCP(t *testing.T) {
	r := with(t, 2, 4)
	target := r.peer(3)
	target.mute = true
	r.say(r.peer(2), said(3, target.value(model.StateSuspect), 2))
	q := r.nextPing(target)
	r.run(r.cfg.ProbeTimeout)
	s := r.wantedStreams(swim.StreamPing)[0]
	p, err := r.codec.Open(s.Frames[0])
	if err != nil {
		t.Fatal(err)
	}
	var m wire.Message
	told := false
	for rd := p.Reader(); rd.Next(&m); {
		told = told || m.Type == wire.Claim && m.Subject == 3 && m.Value == target.value(model.StateSuspect)
	}
	if !told {
		t.Fatal("the ping over TCP does not carry the accusation")
	}
	target.incarnation++ // it refuted
	r.answer(s, target, ack(q.Seq))
	r.want(3, target.value(model.StateAlive))

	// The other side: accused over a stream, this node acks refuted.
	before := r.node.Self().Value
	frames, err := r.node.ServeFrame(r.pack(r.peer(2), ping(7, 1), said(1, model.Value{Epoch: before.Epoch, Incarnation: before.Incarnation, State: model.StateSuspect}, 2)), r.now)
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if p, err = r.codec.Open(frames[0]); err != nil || p.Incarnation != before.Incarnation+1 || p.First() != wire.Ack {
		t.Fatalf("answered %v at incarnation %d, %v: want an ack at %d", p.First(), p.Incarnation, err, before.Incarnation+1)
	}
}
