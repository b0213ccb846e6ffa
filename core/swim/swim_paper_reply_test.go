package swim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// DESIGN §4: "Replies go only to the packet's source or a known member." A
// member's id does not make an address a member's: who moved, or lies, gets
// the ack at the source, and what is held of the id, but no news.
func TestPaperRepliesGoToTheSource(t *testing.T) {
	r := with(t, 2, 5)
	r.run(2 * time.Second)
	r.forget()
	r.add(9) // news, which an ack to a member would carry
	r.sent = nil
	stranger := &peer{id: 70, name: "n70", addr: addr(70), epoch: 1}
	r.say(stranger, ping(1, 1))
	r.sayFrom(addr(71), r.peer(2), ping(2, 1))
	if len(r.to(stranger, wire.Ack)) != 1 || len(r.of(wire.Ack)) != 2 {
		t.Fatalf("sent %+v, want two acks", r.sent)
	}
	for _, s := range r.sent {
		if s.to != addr(70) && s.to != addr(71) || s.Type == wire.Claim && s.Subject != 2 {
			t.Fatalf("sent %v about %v to %v", s.Type, s.Subject, s.to)
		}
	}
}

// A stranger's packet is no lever: what it causes goes back to it in fewer
// bytes than it sent, whatever it holds.
func TestPaperNoAmplification(t *testing.T) {
	r := with(t, 2, 30)
	for _, p := range r.peers { // plenty to say
		p.incarnation++
		r.say(r.peer(2), said(p.id, p.value(model.StateAlive)))
	}
	stranger := &peer{id: 70, name: "n70", addr: addr(70), epoch: 1}
	for name, parts := range map[string][]part{
		"ping":             {ping(1, 1)},
		"ping for another": {ping(1, 5)},
		"ping-req":         {pingReq(1, 5, time.Second)},
		"ack":              {ack(1)},
		"nack":             {nack(1, wire.NackNoAnswer)},
		"record":           {record(5, 1, 1, "x")},
		"all of them":      {ping(1, 1), pingReq(1, 5, time.Second), pingReq(2, 77, time.Second), ack(1), nack(1, wire.NackNoAnswer)},
	} {
		r.sent = nil
		asked := len(r.pack(stranger, parts...))
		r.say(stranger, parts...)
		got, packet := 0, 0
		for _, s := range r.sent {
			if s.to != stranger.addr {
				t.Errorf("%s: %v to %v", name, s.Type, s.to)
			}
			if s.packet != packet {
				got, packet = got+s.size, s.packet
			}
		}
		if got > asked {
			t.Errorf("%s: %d bytes for %d", name, got, asked)
		}
	}
}

// Only a member, from its own address, gets help, and help goes to the address
// that we know: nobody directs our packets.
func TestPaperHelpIsForMembers(t *testing.T) {
	r := with(t, 2, 5)
	r.say(&peer{id: 70, epoch: 1, addr: addr(70)}, pingReq(1, 3, time.Second))
	r.sayFrom(addr(71), r.peer(2), pingReq(1, 3, time.Second))
	if len(r.sent) > 0 || r.node.Inspect().Relays > 0 {
		t.Fatalf("helped: %+v", r.sent)
	}
	r.say(r.peer(2), pingReq(1, 3, time.Second))
	if p := r.of(wire.Ping); len(p) != 1 || p[0].to != addr(3) {
		t.Fatalf("pinged %+v", p)
	}
	// Asked about itself a helper just answers.
	r.say(r.peer(2), pingReq(8, 1, time.Second))
	if a := r.to(r.peer(2), wire.Ack); len(a) != 2 || a[1].Seq != 8 {
		t.Fatalf("answers %+v", a)
	}
	// And it helps only so many at a time.
	r.peer(3).mute = true
	for i := range uint32(1000) {
		r.say(r.peer(2), pingReq(2*i+1, 3, time.Second))
	}
	if in := r.node.Inspect(); in.Relays > r.cfg.RelayMax || in.Counters.RelaysRefused < 700 {
		t.Fatalf("%d pings for others are under way", in.Relays)
	}
	r.run(time.Second)
	if in := r.node.Inspect(); in.Relays != 0 {
		t.Fatalf("%d of them never end", in.Relays)
	}
}

// However much is stale in what others say, the answers are bounded.
func TestPaperAnswersAreBounded(t *testing.T) {
	r := with(t, 2, 80)
	for i := 3; i <= 80; i++ {
		r.peer(i).mute = true
		r.say(r.peer(2), said(r.peer(i).id, r.peer(i).value(model.StateLeft)))
	}
	r.run(rumours)
	r.forget()
	for i := 3; i <= 80; i++ {
		r.say(r.peer(2), said(r.peer(i).id, r.peer(i).value(model.StateAlive)))
	}
	if n := len(r.sent); n == 0 || n > 32 {
		t.Fatalf("%d answers at once", n)
	}
	if r.node.Counters().TellsDropped == 0 {
		t.Fatal("the rest is not counted")
	}
}

// DESIGN §4: "until AEAD exists each packet ends in a 64-bit checksum keyed by
// the cluster name": damage and other clusters are noise, without a trace.
func TestPaperChecksum(t *testing.T) {
	r := with(t, 2, 5)
	before := fmt.Sprint(r.node.Members())
	good := r.pack(r.peer(3), said(4, r.peer(4).value(model.StateDead)), ping(1, 1))
	drop := func(what string, packet []byte, want error) {
		t.Helper()
		if err := r.node.Step(addr(3), packet, r.now); err == nil || want != nil && !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
		if _, err := r.node.ServeFrame(packet, r.now); err == nil {
			t.Fatalf("%s is served on a stream", what)
		}
		if err := r.node.StreamFrame(1, packet, r.now); err == nil {
			t.Fatalf("%s is taken from a stream", what)
		}
		r.drain()
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			drop(fmt.Sprintf("bit %d of byte %d", bit, i), bad, nil)
		}
		drop("a prefix", good[:i], nil)
	}
	drop("another cluster's", wire.NewCodec("other").Seal(append([]byte(nil), good[:len(good)-8]...)), wire.ErrChecksum)
	if after := fmt.Sprint(r.node.Members()); after != before || len(r.sent) > 0 || len(r.events) > 0 {
		t.Fatalf("a bad packet left a trace: %s\nbefore: %s\nsent %v", after, before, r.sent)
	}
}

// DESIGN §4: "Packets ≤ 1,400 B including encryption." The rig checks each
// packet of each test; here they are as full as they get.
func TestPaperPacketsFitTheMTU(t *testing.T) {
	for _, mtu := range []int{768, 1400, 9000} {
		r := newRig(t, func(c *swim.Config) { c.MTU = mtu })
		rng := rand.New(rand.NewPCG(3, uint64(mtu)))
		for i := 2; i < 120; i++ {
			p := &peer{id: model.NodeID(i) << 30, name: strings.Repeat("x", 1+rng.IntN(60)) + fmt.Sprint(i), addr: addr(i), epoch: 1 << 19, incarnation: 1 << 18, mute: i%3 == 0}
			r.peers = append(r.peers, p)
			r.say(p, p.intro(), record(p.id, p.epoch, 1, strings.Repeat("r", rng.IntN(wire.MaxRecordBytes+1))), ping(1, 1))
		}
		if err := r.node.SetRecord(make([]byte, wire.MaxRecordBytes), r.now); err != nil {
			t.Fatal(err)
		}
		r.run(time.Minute)
		fullest := 0
		for _, s := range r.sent {
			fullest = max(fullest, s.size)
		}
		if fullest < mtu*9/10 || fullest > mtu {
			t.Errorf("the fullest packet has %d of %d bytes", fullest, mtu)
		}
		for _, o := range r.node.Members() {
			if o.Value.State == model.StateAlive && o.Record != nil && len(r.find(func(s sent) bool { return s.Type == wire.RecordOf && s.Subject == o.ID })) == 0 {
				t.Errorf("the record of %s, %d bytes, was never sent at MTU %d", o.Name, len(o.Record.Payload), mtu)
			}
		}
	}
}

// A frame that makes no sense on its stream is refused; one for a stream that
// is over is ignored.
func TestPaperStreams(t *testing.T) {
	r := with(t, 2, 5)
	if _, err := r.node.ServeFrame(r.pack(r.peer(2), ack(1)), r.now); !errors.Is(err, swim.ErrUnexpected) {
		t.Fatalf("served an ack: %v", err)
	}
	r.run(40 * time.Second)
	s := r.wantedStreams(swim.StreamExchange)[0]
	if err := r.node.StreamFrame(s.Token, r.pack(r.peer(2), ack(1)), r.now); !errors.Is(err, swim.ErrUnexpected) {
		t.Fatalf("an ack answered an exchange: %v", err)
	}
	r.node.StreamClosed(s.Token, swim.StreamOK, r.now)
	late := said(3, model.Value{Epoch: 1, Incarnation: 5})
	if err := r.node.StreamFrame(s.Token, r.pack(r.peer(2), exchange(true, true), late), r.now); err != nil {
		t.Fatal(err)
	}
	r.want(3, r.peer(3).value(model.StateAlive))
}
