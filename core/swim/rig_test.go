package swim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// rig is one node under test in virtual time; the test plays all others. It
// steps packets in their names and reads what the node sends. Peers answer
// pings by themselves, at once, unless they are mute.
type rig struct {
	t       *testing.T
	cfg     swim.Config
	codec   wire.Codec
	node    *swim.Node
	now     time.Time
	peers   []*peer
	sent    []sent
	streams []swim.Stream
	events  []swim.Event
	persist []uint64 // epochs to persist
	packets int
}

// peer is a member that the test plays.
type peer struct {
	id                 model.NodeID
	name               string
	addr               netip.AddrPort
	epoch, incarnation uint64
	mute               bool // answers no ping
}

// sent is one message in a packet of the node under test.
type sent struct {
	wire.Message
	to     netip.AddrPort
	at     time.Time
	word   model.Value // of the header
	packet int         // messages of one packet share the number
	size   int         // of the packet
}

// part appends one message to a packet.
type part func(buf []byte) []byte

const (
	selfEpoch = 5
	rumours   = 30 * time.Second // enough to send any rumour out
)

// newRig returns a node with id 1 at selfEpoch that knows nobody yet.
func newRig(t *testing.T, change ...func(*swim.Config)) *rig {
	t.Helper()
	cfg := lan()
	for _, f := range change {
		f(&cfg)
	}
	r := &rig{t: t, cfg: cfg, codec: wire.NewCodec(cfg.Cluster), now: time.Unix(1_000_000, 0)}
	n, err := swim.New(cfg, swim.Self{ID: 1, Name: "n1", Addr: addr(1)}, selfEpoch, rand.New(rand.NewPCG(7, 7)), r.now)
	if err != nil {
		t.Fatal(err)
	}
	r.node = n
	return r
}

// with introduces peers from to to, spreads what there is to spread and
// forgets what was sent until then.
func with(t *testing.T, from, to int, change ...func(*swim.Config)) *rig {
	t.Helper()
	r := newRig(t, change...)
	for i := from; i <= to; i++ {
		r.add(i)
	}
	r.run(rumours)
	if left := r.node.Inspect().Rumours; len(left) > 0 {
		t.Fatalf("%d rumours are left after %v", len(left), rumours)
	}
	r.forget()
	return r
}

// add introduces peer i by a packet of its own.
func (r *rig) add(i int) *peer {
	r.t.Helper()
	p := &peer{id: model.NodeID(i), name: fmt.Sprintf("n%d", i), addr: addr(i), epoch: 1}
	r.peers = append(r.peers, p)
	r.say(p, p.intro())
	if !r.has(p.id) {
		r.t.Fatalf("%s was not learned from its own claim", p.name)
	}
	return p
}

func (r *rig) peer(i int) *peer {
	for _, p := range r.peers {
		if p.id == model.NodeID(i) {
			return p
		}
	}
	r.t.Fatalf("no peer %d", i)
	return nil
}

func (p *peer) value(s model.State) model.Value {
	return model.Value{Epoch: p.epoch, Incarnation: p.incarnation, State: s}
}

// intro is p's claim that it is alive, with its identity.
func (p *peer) intro() part { return p.as(model.StateAlive) }

// as is a claim about p in state s, with its identity.
func (p *peer) as(s model.State, accusers ...model.NodeID) part {
	return claim(wire.Claimed{Subject: p.id, Value: p.value(s), Name: p.name, Addr: p.addr}, accusers...)
}

// said is a claim about somebody at a value, without identity.
func said(id model.NodeID, v model.Value, accusers ...model.NodeID) part {
	return claim(wire.Claimed{Subject: id, Value: v}, accusers...)
}

func claim(c wire.Claimed, accusers ...model.NodeID) part {
	for _, a := range accusers {
		c.Accusers.Add(a)
	}
	return func(buf []byte) []byte { return wire.AppendClaim(buf, &c) }
}

func ping(seq uint32, target model.NodeID) part {
	return func(buf []byte) []byte { return wire.AppendPing(buf, seq, target) }
}

func ack(seq uint32) part { return func(buf []byte) []byte { return wire.AppendAck(buf, seq) } }

func nack(seq uint32, why wire.NackReason) part {
	return func(buf []byte) []byte { return wire.AppendNack(buf, seq, why) }
}

func pingReq(seq uint32, target model.NodeID, wait time.Duration) part {
	return func(buf []byte) []byte { return wire.AppendPingReq(buf, seq, target, uint32(wait.Milliseconds())) }
}

func record(owner model.NodeID, epoch, seq uint64, payload string) part {
	return func(buf []byte) []byte { return wire.AppendRecord(buf, owner, epoch, seq, []byte(payload)) }
}

func exchange(answer, last bool) part {
	return func(buf []byte) []byte { return wire.AppendExchange(buf, answer, last) }
}

// pack seals a packet in p's name.
func (r *rig) pack(p *peer, parts ...part) []byte {
	buf := r.codec.Begin(nil, p.id, p.epoch, p.incarnation)
	for _, add := range parts {
		buf = add(buf)
	}
	return r.codec.Seal(buf)
}

// say steps a packet of p from p's address.
func (r *rig) say(p *peer, parts ...part) {
	r.t.Helper()
	r.sayFrom(p.addr, p, parts...)
}

func (r *rig) sayFrom(from netip.AddrPort, p *peer, parts ...part) {
	r.t.Helper()
	if err := r.node.Step(from, r.pack(p, parts...), r.now); err != nil && !errors.Is(err, swim.ErrSilent) {
		r.t.Fatal(err)
	}
	r.drain()
}

// answer answers a stream of the node with a frame of p.
func (r *rig) answer(s swim.Stream, p *peer, parts ...part) {
	r.t.Helper()
	if err := r.node.StreamFrame(s.Token, r.pack(p, parts...), r.now); err != nil {
		r.t.Fatal(err)
	}
	r.node.StreamClosed(s.Token, swim.StreamOK, r.now)
	r.drain()
}

// drain works off Ready, and lets the peers answer.
func (r *rig) drain() {
	r.t.Helper()
	for {
		ready := r.node.Ready()
		if ready.PersistEpoch != 0 {
			r.persist = append(r.persist, ready.PersistEpoch)
		}
		r.events = append(r.events, ready.Events...)
		r.streams = append(r.streams, ready.Streams...)
		type reply struct {
			p   *peer
			seq uint32
		}
		var replies []reply
		for _, p := range ready.Packets {
			for _, m := range r.read(p) {
				to := slices.IndexFunc(r.peers, func(o *peer) bool { return o.addr == p.To && !o.mute })
				if m.Type == wire.Ping && to >= 0 {
					replies = append(replies, reply{r.peers[to], m.Seq})
				}
			}
		}
		if len(replies) == 0 {
			return
		}
		for _, a := range replies {
			if err := r.node.Step(a.p.addr, r.pack(a.p, ack(a.seq)), r.now); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// read opens a packet of the node and notes its messages.
func (r *rig) read(p swim.Packet) []sent {
	r.t.Helper()
	if len(p.Data) > r.cfg.MTU {
		r.t.Fatalf("a packet of %d bytes exceeds the MTU of %d", len(p.Data), r.cfg.MTU)
	}
	open, err := r.codec.Open(slices.Clone(p.Data))
	if err != nil {
		r.t.Fatalf("the node sent what nobody can read: %v", err)
	}
	if open.Sender != 1 {
		r.t.Fatalf("the node speaks as %v", open.Sender)
	}
	r.packets++
	first := len(r.sent)
	reader := open.Reader()
	var m wire.Message
	for reader.Next(&m) {
		r.sent = append(r.sent, sent{
			Message: m, to: p.To, at: r.now, packet: r.packets, size: len(p.Data),
			word: model.Value{Epoch: open.Epoch, Incarnation: open.Incarnation},
		})
	}
	return r.sent[first:]
}

// run moves time on by d.
func (r *rig) run(d time.Duration) {
	r.t.Helper()
	r.until(r.now.Add(d), func() bool { return false })
}

// until moves time on to end, or until stop holds, and reports whether it did.
func (r *rig) until(end time.Time, stop func() bool) bool {
	r.t.Helper()
	for idle := 0; ; idle++ {
		if idle > 1_000_000 {
			r.t.Fatal("the node never sleeps")
		}
		if stop() {
			return true
		}
		next := r.node.NextDeadline()
		if next.IsZero() {
			r.t.Fatal("NextDeadline is zero")
		}
		if next.After(end) {
			r.now = end
			r.node.Tick(r.now)
			r.drain()
			return stop()
		}
		if next.After(r.now) {
			r.now, idle = next, 0
		}
		r.node.Tick(r.now)
		r.drain()
	}
}

// forget drops what was noted so far.
func (r *rig) forget() { r.sent, r.streams, r.events, r.persist = nil, nil, nil, nil }

// of returns the messages of a type, to anybody.
func (r *rig) of(t wire.Type) []sent { return r.find(func(s sent) bool { return s.Type == t }) }

// to returns the messages of a type to p.
func (r *rig) to(p *peer, t wire.Type) []sent {
	return r.find(func(s sent) bool { return s.Type == t && s.to == p.addr })
}

// claims returns the claims about id, to anybody.
func (r *rig) claims(id model.NodeID) []sent {
	return r.find(func(s sent) bool { return s.Type == wire.Claim && s.Subject == id })
}

func (r *rig) find(ok func(sent) bool) []sent {
	var found []sent
	for _, s := range r.sent {
		if ok(s) {
			found = append(found, s)
		}
	}
	return found
}

func (r *rig) member(id model.NodeID) swim.Member {
	r.t.Helper()
	for _, m := range r.node.Members() {
		if m.ID == id {
			return m
		}
	}
	r.t.Fatalf("no member %v", id)
	return swim.Member{}
}

func (r *rig) has(id model.NodeID) bool {
	return slices.ContainsFunc(r.node.Members(), func(m swim.Member) bool { return m.ID == id })
}

func (r *rig) state(id model.NodeID) model.State { r.t.Helper(); return r.member(id).Value.State }

// want fails unless the node believes v of id.
func (r *rig) want(id model.NodeID, v model.Value) {
	r.t.Helper()
	if got := r.member(id).Value; got != v {
		r.t.Fatalf("%v is held for %v, want %v", id, got, v)
	}
}

// kinds lists the kinds of the events about id.
func (r *rig) kinds(id model.NodeID) []swim.EventKind {
	var all []swim.EventKind
	for _, e := range r.events {
		if e.Member.ID == id {
			all = append(all, e.Kind)
		}
	}
	return all
}

func (r *rig) event(k swim.EventKind) *swim.Event {
	for i := range r.events {
		if r.events[i].Kind == k {
			return &r.events[i]
		}
	}
	return nil
}

// wantedStreams returns the streams of a kind.
func (r *rig) wantedStreams(k swim.StreamKind) []swim.Stream {
	var all []swim.Stream
	for _, s := range r.streams {
		if s.Kind == k {
			all = append(all, s)
		}
	}
	return all
}

// nextPing moves on to the next ping to p and returns it.
func (r *rig) nextPing(p *peer) sent {
	r.t.Helper()
	seen := len(r.to(p, wire.Ping))
	if !r.until(r.now.Add(time.Minute+2*time.Duration(len(r.peers))*r.cfg.ProbePeriod), func() bool { return len(r.to(p, wire.Ping)) > seen }) {
		r.t.Fatalf("%s is never pinged", p.name)
	}
	return r.to(p, wire.Ping)[seen]
}
