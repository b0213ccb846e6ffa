package sim

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Invariant05OneIdentityPerEpoch: who a member is, only its owner says, once
// per epoch.
func Invariant05OneIdentityPerEpoch(o *Observation) error {
	h := o.World.history
	for i := range o.Spoken {
		for j := range o.Spoken[i].messages {
			m := &o.Spoken[i].messages[j]
			owner := h.of(m.Subject)
			switch {
			case m.Type == wire.Claim && m.HasMeta && !owner.was(m.Value.Epoch, identity{string(m.Name), m.Addr}):
				return fmt.Errorf("it says that %v was %q at %v in epoch %d", m.Subject, m.Name, m.Addr, m.Value.Epoch)
			case m.Type == wire.RecordOf && !owner.said(m.Epoch, m.RecordSeq, m.Payload):
				return fmt.Errorf("it passes a record of %v on that was never published: %d.%d", m.Subject, m.Epoch, m.RecordSeq)
			}
		}
	}
	for i := range o.After {
		m := &o.After[i]
		if !h.of(m.ID).ever(m.Value.Epoch, identity{m.Name, m.Addr}) {
			return fmt.Errorf("it holds %v as %q at %v in epoch %d", m.ID, m.Name, m.Addr, m.Value.Epoch)
		}
	}
	self := o.Self()
	owner := h.of(self.ID)
	if all := owner.identities[self.Value.Epoch]; len(all) > 1 && !owner.reused {
		return fmt.Errorf("%v was two members in epoch %d: %v", self.ID, self.Value.Epoch, all)
	}
	return nil
}

// Invariant06NotDeadToItself: what a node says of itself.
func Invariant06NotDeadToItself(o *Observation) error {
	want := model.StateAlive
	if o.Process.leaving {
		want = model.StateLeft
	}
	if is := o.Self(); is.Value.State != want || is.ID != o.Process.Disk.ID {
		return fmt.Errorf("it lists itself as %v, want %v", is.Value, want)
	}
	return nil
}

// Invariant06SilenceHasCause: only somebody who uses the same id silences.
func Invariant06SilenceHasCause(o *Observation) error {
	s := &o.Process.shadow
	if s.silent || !o.Process.node.Silent() {
		return nil
	}
	s.silent = true
	if !o.World.history.of(o.Process.Disk.ID).reused {
		return fmt.Errorf("it fell silent at %v, its directory was never copied", o.Self().Value)
	}
	if len(o.Ready.Packets)+len(o.Ready.Streams) > 0 {
		return fmt.Errorf("it fell silent and wants to send %d packets", len(o.Ready.Packets))
	}
	return nil
}

// Invariant11PacketsFitTheMTU: sizes on the wire.
func Invariant11PacketsFitTheMTU(o *Observation) error {
	for i := range o.Spoken {
		s := &o.Spoken[i]
		limit := wire.MaxFrameBytes
		if s.to.IsValid() {
			limit = o.World.Cfg.MTU
		}
		if s.bytes > limit {
			return fmt.Errorf("%d bytes leave at once: at most %d", s.bytes, limit)
		}
	}
	return nil
}

// word is the state of the automaton of one member's events.
type word struct {
	known bool
	state model.State
}

// next takes one event, and reports whether it may come now.
func (x *word) next(e *swim.Event) bool {
	legal, is := false, e.Member.Value.State
	live := x.known && x.state.Live()
	switch e.Kind {
	case swim.EventJoined:
		legal = !x.known && is.Live()
	case swim.EventRevived:
		legal = x.known && !live && is.Live()
	case swim.EventUpdated, swim.EventRecord, swim.EventHeld:
		legal = live && is.Live()
	case swim.EventSuspected:
		legal = live && is == model.StateSuspect
	case swim.EventRefuted:
		legal = live && x.state == model.StateSuspect && is == model.StateAlive
	case swim.EventDied:
		legal = live && is == model.StateDead
	case swim.EventLeft:
		legal = live && is == model.StateLeft
	case swim.EventReaped:
		legal = x.known && !live
		*x = word{}
		return legal
	case swim.EventNameConflict, swim.EventAddressConflict:
		return true // of two members at once, at any time
	}
	x.known, x.state = true, is
	return legal
}

// Invariant16EventsFormAWord: a reader of the events alone sees a legal story,
// and the table.
func Invariant16EventsFormAWord(o *Observation) error {
	words := o.Process.shadow.words
	for i := range o.Ready.Events {
		e := &o.Ready.Events[i]
		if e.Member.Self {
			continue
		}
		x := words[e.Member.ID]
		if x == nil {
			x = &word{}
			words[e.Member.ID] = x
		}
		before := *x
		if !x.next(e) {
			return fmt.Errorf("%v of %s (%v, was %v) after %+v", e.Kind, e.Member.Name, e.Member.Value, e.Was, before)
		}
	}
	for i := range o.After {
		m := &o.After[i]
		if m.Self {
			continue
		}
		x := words[m.ID]
		if x == nil || !x.known || x.state.Live() != m.Value.State.Live() || x.state.Live() && x.state != m.Value.State {
			return fmt.Errorf("the events leave %s as %+v, the table says %v", m.Name, x, m.Value)
		}
	}
	return nil
}

// Invariant21BadInputChangesNothing: a refused packet is as if it never came.
func Invariant21BadInputChangesNothing(o *Observation) error {
	if o.Err == nil || o.Call != CallStep && o.Call != CallServe && o.Call != CallFrame && o.Call != CallPingFrame {
		return nil
	}
	if n := len(o.Ready.Packets) + len(o.Ready.Streams) + len(o.Ready.Events); n > 0 {
		return fmt.Errorf("it refused its input (%w) and wants %d things done", o.Err, n)
	}
	if len(o.Before) != len(o.After) {
		return fmt.Errorf("it refused its input (%w) and went from %d rows to %d", o.Err, len(o.Before), len(o.After))
	}
	for i := range o.After {
		was, is := o.Before[i], o.After[i]
		was.HeldUntil, is.HeldUntil = time.Time{}, time.Time{} // that ends by itself
		if was != is {
			return fmt.Errorf("it refused its input (%w) and changed %+v to %+v", o.Err, o.Before[i], o.After[i])
		}
	}
	return nil
}
