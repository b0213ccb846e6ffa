package sim

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// held is the hold of one epoch, as one process saw it.
type held struct {
	epoch uint64
	since time.Time
}

// takenBack reports whether a hold at the same word took an accusation back,
// which is the one way down from one value to another.
func takenBack(was model.Value, is *swim.Member) bool {
	return !is.HeldUntil.IsZero() && is.Value.CompareWord(was) == 0 && was.State != model.StateLeft
}

// Invariant23HeldIsNotAccused: what an announced restart is for.
func Invariant23HeldIsNotAccused(o *Observation) error {
	for i := range o.Ready.Events {
		e := &o.Ready.Events[i]
		if e.Kind != swim.EventSuspected && (e.Kind != swim.EventDied || e.Detail != "") { // replaced: it is gone
			continue
		}
		was := row(o.Before, e.Member.ID)
		if was != nil && was.HeldUntil.After(o.Now()) && e.Member.Value.CompareWord(was.Value) == 0 {
			return fmt.Errorf("%v of %s, %v, which is held for %v more", e.Kind, e.Member.Name, e.Member.Value, was.HeldUntil.Sub(o.Now()))
		}
	}
	for i := range o.After {
		if m := &o.After[i]; !m.HeldUntil.IsZero() && m.Value.State != model.StateAlive {
			return fmt.Errorf("%s is held and %v", m.Name, m.Value)
		}
	}
	return nil
}

// Invariant23RestartIsNoFailure: what an announced restart is for, as all see it.
func Invariant23RestartIsNoFailure(o *Observation) error {
	p := o.World.restarts
	for i := range o.Ready.Events {
		e := &o.Ready.Events[i]
		if p != nil && e.Member.ID == p.Disk.ID && (e.Kind == swim.EventSuspected || e.Kind == swim.EventDied || e.Kind == swim.EventLeft) {
			return fmt.Errorf("%v of %s, %v, which announced that it restarts", e.Kind, e.Member.Name, e.Member.Value)
		}
	}
	return nil
}

// Invariant23HoldIsBounded: nobody escapes detection by asking for more time.
func Invariant23HoldIsBounded(o *Observation) error {
	s := &o.Process.shadow
	for i := range o.After {
		m := &o.After[i]
		if m.HeldUntil.IsZero() {
			continue
		}
		h := s.holds[m.ID]
		if h.epoch != m.Value.Epoch {
			h = held{m.Value.Epoch, o.Now()}
			s.holds[m.ID] = h
		}
		if last := h.since.Add(swim.MaxHold); m.HeldUntil.After(last) {
			return fmt.Errorf("%s is held for %v in epoch %d: at most %v", m.Name, m.HeldUntil.Sub(h.since), h.epoch, swim.MaxHold)
		}
	}
	for i := range o.Ready.Events {
		if e := &o.Ready.Events[i]; e.Kind == swim.EventReaped {
			delete(s.holds, e.Member.ID)
		}
	}
	return nil
}

// Invariant23OnlyTheOwnerHolds: a hold is the word of its owner.
func Invariant23OnlyTheOwnerHolds(o *Observation) error {
	for i := range o.After {
		m := &o.After[i]
		if !m.HeldUntil.IsZero() && !o.World.history.of(m.ID).held[m.Value] {
			return fmt.Errorf("%s is held at %v, but never asked for it", m.Name, m.Value)
		}
	}
	return nil
}
