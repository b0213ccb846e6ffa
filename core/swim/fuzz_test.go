package swim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/scale"
)

// script reads decisions from fuzz input; at its end all are 0.
type script struct{ b []byte }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	b := s.b[0]
	s.b = s.b[1:]
	return b
}

func (s *script) bytes(n int) []byte {
	n = min(n, len(s.b))
	b := s.b[:n]
	s.b = s.b[n:]
	return b
}

// id is one of few, so that things meet; rarely our own, since whoever uses
// that too often silences the node.
func (s *script) id() model.NodeID {
	if b := s.byte(); b >= 12 {
		return model.NodeID(2 + b%8)
	}
	return 1
}

func (s *script) addr() netip.AddrPort { return addr(int(1 + s.byte()%9)) }

// word is mostly small, and sometimes as large as it gets.
func (s *script) word() uint64 {
	switch b := s.byte(); {
	case b < 0xf0:
		return uint64(b % 8)
	case b < 0xf8:
		return 1 << (b % 8 * 6)
	default:
		return wire.MaxWord - uint64(b%2)
	}
}

// seq is that of a packet the node sent, or any.
func (s *script) seq(sent []uint32) uint32 {
	b := s.byte()
	if len(sent) > 0 && b < 0xe0 {
		return sent[len(sent)-1-int(b)%len(sent)] ^ uint32(b>>7)
	}
	return uint32(b)
}

func (s *script) message(buf []byte, sent []uint32) []byte {
	switch s.byte() % 10 {
	case 0:
		return wire.AppendPing(buf, s.seq(sent), s.id())
	case 1:
		return wire.AppendAck(buf, s.seq(sent))
	case 2:
		return wire.AppendPingReq(buf, s.seq(sent), s.id(), uint32(s.byte())*8)
	case 3:
		return wire.AppendNack(buf, s.seq(sent), wire.NackReason(s.byte()%3))
	case 4:
		return wire.AppendRecord(buf, s.id(), s.word(), s.word(), s.bytes(int(s.byte())))
	case 5:
		return wire.AppendExchange(buf, s.byte()%2 == 0, s.byte()%2 == 0)
	case 6: // anything
		n := s.byte() % 40
		return append(append(buf, s.byte()%12, n), s.bytes(int(n))...)
	}
	c := wire.Claimed{Subject: s.id(), Value: model.Value{Epoch: s.word(), Incarnation: s.word(), State: model.State(s.byte() % 4)}}
	for range s.byte() % 5 {
		c.Accusers.Add(s.id())
	}
	if s.byte()%3 > 0 {
		c.Name, c.Addr = fmt.Sprintf("n%d", s.byte()%9), s.addr()
	}
	if s.byte()%3 == 0 {
		c.HoldMillis = uint32(s.byte()) * 400 // beyond MaxHold too
	}
	return wire.AppendClaim(buf, &c)
}

// watch holds what the fuzzer has seen of the node, to compare with.
type watch struct {
	t      *testing.T
	node   *swim.Node
	codec  wire.Codec
	cfg    swim.Config
	now    time.Time
	values map[model.NodeID]model.Value
	seqs   []uint32
	open   []uint64 // tokens of streams
	kinds  map[swim.EventKind]bool
}

// check asserts the invariants after a call.
func (w *watch) check() {
	w.t.Helper()
	ready := w.node.Ready()
	for _, e := range ready.Events {
		w.kinds[e.Kind] = true
		if e.Kind == swim.EventReaped {
			delete(w.values, e.Member.ID)
		}
	}
	if w.node.Silent() && len(ready.Packets)+len(ready.Streams) > 0 {
		w.t.Fatal("a silent node speaks")
	}
	for _, p := range ready.Packets {
		if len(p.Data) > w.cfg.MTU || !p.To.IsValid() {
			w.t.Fatalf("a packet of %d bytes to %v", len(p.Data), p.To)
		}
		w.opened(p.Data)
	}
	for _, s := range ready.Streams {
		for _, f := range s.Frames {
			w.opened(f)
		}
		w.open = append(w.open, s.Token)
	}
	for _, m := range w.node.Members() {
		was := w.values[m.ID]
		lifted := m.Value.CompareWord(was) == 0 && was.State != model.StateLeft && !m.HeldUntil.IsZero()
		if m.Value.Compare(was) < 0 && !lifted {
			w.t.Fatalf("%v fell from %v to %v", m.ID, was, m.Value)
		}
		if !m.HeldUntil.IsZero() && (m.Value.State != model.StateAlive || m.HeldUntil.Sub(w.now) > swim.MaxHold) {
			w.t.Fatalf("%v is held until %v as %v", m.ID, m.HeldUntil, m.Value)
		}
		w.values[m.ID] = m.Value
		if m.Self && (m.Value.State == model.StateSuspect || m.Value.State == model.StateDead) {
			w.t.Fatalf("the node holds itself for %v", m.Value)
		}
	}
	in := w.node.Inspect()
	type subject struct {
		id     model.NodeID
		record bool
	}
	once := map[subject]bool{}
	for _, r := range in.Rumours {
		if s := (subject{r.Subject, r.Record}); once[s] {
			w.t.Fatalf("two rumours about %v", r.Subject)
		} else {
			once[s] = true
		}
	}
	for _, s := range in.Suspicions {
		if s.Deadline.Before(s.Since) || len(s.Accusers) > wire.MaxAccusers {
			w.t.Fatalf("suspicion %+v", s)
		}
	}
	if in.RumourBytes < 0 || in.RumourBytes > w.cfg.QueueBytes || in.Relays > w.cfg.RelayMax || in.Graves > max(w.cfg.TombstonesMin, 4*(in.Live+1)) {
		w.t.Fatalf("beyond a bound: %+v", in)
	}
}

func (w *watch) opened(data []byte) {
	w.t.Helper()
	p, err := w.codec.Open(append([]byte(nil), data...))
	if err != nil {
		w.t.Fatalf("the node sends what nobody can read: %v", err)
	}
	var m wire.Message
	for r := p.Reader(); r.Next(&m); {
		if m.Type == wire.Ping || m.Type == wire.PingReq {
			w.seqs = append(w.seqs, m.Seq)
		}
	}
}

// play does what the script says to a new node.
func play(t *testing.T, input []byte) *watch {
	s := &script{input}
	cfg := lan()
	cfg.QueueBytes, cfg.MTU, cfg.TombstonesMin, cfg.RelayMax = 4096, 768, 4, 4
	now := time.Unix(1_000_000, 0)
	node, err := swim.New(cfg, swim.Self{ID: 1, Name: "n1", Addr: addr(1)}, 3, rand.New(rand.NewPCG(1, uint64(len(input)))), now)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, node: node, codec: wire.NewCodec(cfg.Cluster), cfg: cfg, values: map[model.NodeID]model.Value{}, kinds: map[swim.EventKind]bool{}}
	for len(s.b) > 0 {
		op := s.byte()
		switch {
		case op < 150: // a packet, or a frame
			buf := w.codec.Begin(nil, s.id(), s.word(), s.word())
			for range 1 + s.byte()%4 {
				buf = s.message(buf, w.seqs)
			}
			packet := w.codec.Seal(buf)
			switch {
			case op < 120:
				err = node.Step(s.addr(), packet, now)
			case op < 135:
				_, err = node.ServeFrame(packet, now)
			case len(w.open) > 0:
				err = node.StreamFrame(w.open[int(s.byte())%len(w.open)], packet, now)
			}
			if err != nil && !errors.Is(err, swim.ErrSilent) && !errors.Is(err, swim.ErrUnexpected) && !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrTooLarge) {
				t.Fatal(err)
			}
		case op < 220: // what is due
			for range 1 + s.byte()%8 {
				if next := node.NextDeadline(); next.After(now) {
					now = next
				}
				node.Tick(now)
				w.now = now
				if !node.NextDeadline().After(now) {
					t.Fatalf("still due at %v after a tick", now)
				}
				w.check()
			}
		case op < 240: // a pause, or a call out of turn
			now = now.Add(time.Duration(binary.BigEndian.Uint16([]byte{s.byte(), s.byte()})) * 10 * time.Millisecond)
			node.Tick(now)
		case op < 244:
			node.Join([]netip.AddrPort{s.addr(), s.addr()}, now)
		case op < 246:
			node.Leave(now)
			node.LeaveDone()
		case op < 247:
			node.Rejoin(now)
		case op < 248:
			if err := node.Hold(time.Duration(s.byte())*200*time.Millisecond, now); err != nil && !errors.Is(err, swim.ErrHold) && !errors.Is(err, swim.ErrSilent) {
				t.Fatal(err)
			}
			node.HoldDone()
		case op < 250:
			if err := node.SetRecord(s.bytes(int(s.byte())), now); err != nil {
				t.Fatal(err)
			}
		case op == 250: // another node speaks under this one's id
			for range s.byte() % 6 {
				c := wire.Claimed{Subject: 1, Value: model.Value{Epoch: node.Self().Value.Epoch + 1}}
				if err := node.Step(addr(2), w.codec.Seal(wire.AppendClaim(w.codec.Begin(nil, 2, 1, 0), &c)), now); err != nil && !errors.Is(err, swim.ErrSilent) {
					t.Fatal(err)
				}
			}
		case len(w.open) > 0:
			i := int(s.byte()) % len(w.open)
			node.StreamClosed(w.open[i], swim.StreamEnd(s.byte()%3), now)
		}
		w.now = now
		w.check()
	}
	return w
}

// FuzzStep plays arbitrary packets that pass the checksum, frames, ticks,
// pauses and calls, and checks the invariants after each.
func FuzzStep(f *testing.F) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, size := range []int{10, 100, 300, 600} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, input []byte) { play(t, input) })
}

// TestRandomScripts does so with longer scripts than the corpus has, and checks
// that they reach what they are to test.
func TestRandomScripts(t *testing.T) {
	seeds := scale.N(2000)
	silent, reached := 0, map[swim.EventKind]bool{}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := make([]byte, 3000)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			w := play(t, b)
			if w.node.Silent() {
				silent++
			}
			for k := range w.kinds {
				reached[k] = true
			}
		})
	}
	for k := swim.EventJoined; k <= swim.EventHeld; k++ {
		if !reached[k] && k != swim.EventAddressConflict { // too well-aimed for chance
			t.Errorf("no script led to %v", k)
		}
	}
	if silent == 0 || silent > seeds*3/4 {
		t.Errorf("%d of %d scripts silenced the node", silent, seeds)
	}
}
