package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Call names an input of a Node.
type Call string

// The inputs of a Node.
const (
	CallNew       Call = "new"
	CallStep      Call = "step"
	CallTick      Call = "tick"
	CallServe     Call = "serve"
	CallFrame     Call = "exchange frame"
	CallPingFrame Call = "ping frame"
	CallClosed    Call = "closed"
	CallJoin      Call = "join"
	CallLeave     Call = "leave"
	CallRejoin    Call = "rejoin"
	CallSetRecord Call = "record"
	CallHold      Call = "hold"
)

// Observation is one call into a Node: what it held before and after, what it
// was told, and what it wants done.
type Observation struct {
	World   *World
	Process *Process
	Call    Call
	Err     error         // of the call
	Before  []swim.Member // by id; empty at CallNew
	After   []swim.Member // by id
	Was, Is swim.Inspection
	Heard   []wire.Message // claims that came in; the header's word is the first
	Ready   swim.Ready
	Frames  [][]byte // answered by CallServe
	Spoken  []sent   // packets and frames that leave, opened
}

// sent is an opened packet, or frame of a stream, that leaves a node.
type sent struct {
	to       netip.AddrPort // zero for a frame
	bytes    int
	header   wire.Packet
	messages []wire.Message
}

// shadow is what the world remembers of a process between two calls.
type shadow struct {
	rows    []swim.Member
	inspect swim.Inspection
	words   map[model.NodeID]*word
	tokens  map[uint64]bool
	probed  time.Duration           // last time that a probe began or none could
	news    map[model.NodeID]uint64 // epoch up to which an identity was news
	limit   int                     // the greatest rumour limit so far
	least   time.Duration           // the shortest and longest that a suspicion
	longest time.Duration           // could live so far
	silent  bool
	holds   map[model.NodeID]held
}

// observe compares the node with its shadow, and moves the shadow on.
func (w *World) observe(p *Process, what Call, data []byte, err error) *Observation {
	s := &p.shadow
	if s.words == nil {
		*s = shadow{words: map[model.NodeID]*word{}, tokens: map[uint64]bool{}, holds: map[model.NodeID]held{}, news: map[model.NodeID]uint64{}, probed: w.now}
	}
	rows := p.node.Members()
	slices.SortFunc(rows, func(a, b swim.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	o := &Observation{
		World: w, Process: p, Call: what, Err: err,
		Before: s.rows, After: rows, Was: s.inspect, Is: p.node.Inspect(),
	}
	if err == nil && (what == CallStep || what == CallServe || what == CallFrame) {
		o.Heard = w.heard(data, what)
	}
	s.rows, s.inspect = rows, o.Is
	return o
}

// heard opens what came in. A frame that is no part of an exchange tells
// nothing of members.
func (w *World) heard(data []byte, what Call) []wire.Message {
	p, err := w.codec.Open(data)
	if err != nil || what != CallStep && p.First() != wire.Exchange {
		return nil
	}
	claims := []wire.Message{{Type: wire.Claim, Subject: p.Sender, Value: model.Value{Epoch: p.Epoch, Incarnation: p.Incarnation}}}
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) {
		if m.Type == wire.Claim {
			claims = append(claims, m)
		}
	}
	return claims
}

// check holds an observation against all invariants.
func (w *World) check(o *Observation) {
	if err := o.open(); err != nil {
		w.found("Invariant21DecoderIsTotal", "What a node sends, a node can read.", err.Error())
		return
	}
	self := o.Self()
	if self == nil {
		w.found("Invariant06NotDeadToItself", "A node lists itself, once.", "no row of its own")
		return
	}
	w.history.spoke(self)
	for _, s := range o.Spoken {
		for i := range s.messages {
			w.history.sends(o.Process, s.to, &s.messages[i])
		}
	}
	for _, s := range o.Ready.Streams {
		o.Process.shadow.tokens[s.Token] = true
	}
	w.tally(o)
	for i := range w.invariants {
		inv := &w.invariants[i]
		if err := inv.Check(o); err != nil {
			w.found(inv.Name, inv.Sentence, fmt.Sprintf("%v, %s: %v", o.Process, o.Call, err))
			return
		}
	}
}

// open decodes what leaves the node.
func (o *Observation) open() error {
	for _, p := range o.Ready.Packets {
		if err := o.openOne(p.To, p.Data); err != nil {
			return err
		}
	}
	for _, f := range o.Frames {
		if err := o.openOne(netip.AddrPort{}, f); err != nil {
			return err
		}
	}
	for _, s := range o.Ready.Streams {
		for _, f := range s.Frames {
			if err := o.openOne(netip.AddrPort{}, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Observation) openOne(to netip.AddrPort, data []byte) error {
	p, err := o.World.codec.Open(data)
	if err != nil {
		return err
	}
	s := sent{to: to, bytes: len(data), header: p}
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) {
		s.messages = append(s.messages, m)
	}
	o.Spoken = append(o.Spoken, s)
	return nil
}

// Now is the virtual time of the call.
func (o *Observation) Now() time.Time { return o.World.Now() }

// Self is the node's own row after the call; nil if it has none, or several.
func (o *Observation) Self() *swim.Member {
	var self *swim.Member
	for i := range o.After {
		if o.After[i].Self {
			if self != nil {
				return nil
			}
			self = &o.After[i]
		}
	}
	return self
}

// row returns the row of id, or nil.
func row(rows []swim.Member, id model.NodeID) *swim.Member {
	for i := range rows {
		if rows[i].ID == id {
			return &rows[i]
		}
	}
	return nil
}

// event reports whether an event of this kind about id is among the call's.
func (o *Observation) event(kind swim.EventKind, id model.NodeID) bool {
	return slices.ContainsFunc(o.Ready.Events, func(e swim.Event) bool { return e.Kind == kind && e.Member.ID == id })
}

// suspicion returns the clock of id, or nil.
func suspicion(in *swim.Inspection, id model.NodeID) *swim.Suspicion {
	for i := range in.Suspicions {
		if in.Suspicions[i].Subject == id {
			return &in.Suspicions[i]
		}
	}
	return nil
}

// tally counts what the call shows of the node's doings.
func (w *World) tally(o *Observation) {
	if o.Is.Counters.IndirectProbes > o.Was.Counters.IndirectProbes {
		w.Tally.Count(EffectIndirect)
	}
	if o.Is.Counters.Pauses > o.Was.Counters.Pauses {
		w.Tally.Count(EffectPauseSeen)
	}
	for i := range o.Is.Suspicions {
		if len(o.Is.Suspicions[i].Accusers) > 1 {
			w.Tally.Count(EffectAccusers)
		}
	}
	for _, e := range o.Ready.Events {
		if e.Kind == swim.EventDied && e.Detail != "" {
			w.Tally.Count(EffectReplaced)
		}
	}
	for _, s := range o.Spoken {
		if s.to.IsValid() && s.bytes > w.Cfg.MTU-30 {
			w.Tally.Count(EffectFullPacket)
		}
		for i := range s.messages {
			if s.messages[i].Type == wire.Nack {
				w.Tally.Count(EffectNack)
			}
		}
	}
}
