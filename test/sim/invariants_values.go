package sim

import (
	"fmt"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// Invariant02ValuesNeverRegress: what one node holds of one member never falls.
func Invariant02ValuesNeverRegress(o *Observation) error {
	for i := range o.Before {
		was := &o.Before[i]
		is := row(o.After, was.ID)
		switch {
		case is == nil && !o.event(swim.EventReaped, was.ID):
			return fmt.Errorf("the row of %s (%v) vanished without being reaped", was.Name, was.Value)
		case is != nil && is.Value.Compare(was.Value) < 0 && !takenBack(was.Value, is) && !o.event(swim.EventReaped, was.ID):
			return fmt.Errorf("%s fell from %v to %v", was.Name, was.Value, is.Value)
		case is != nil && was.Record.Newer(is.Record):
			return fmt.Errorf("the record of %s fell from %+v to %+v", was.Name, was.Record, is.Record)
		}
	}
	return nil
}

// Invariant03GoneStayGone: dead or left returns only at a greater word.
func Invariant03GoneStayGone(o *Observation) error {
	for i := range o.Before {
		was := &o.Before[i]
		is := row(o.After, was.ID)
		if is == nil || was.Value.State.Live() || !is.Value.State.Live() {
			continue
		}
		if is.Value.CompareWord(was.Value) <= 0 && !takenBack(was.Value, is) && !o.event(swim.EventReaped, was.ID) {
			return fmt.Errorf("%s came back from %v as %v", was.Name, was.Value, is.Value)
		}
	}
	return nil
}

// Invariant03GoneAreNotLearned: tombstones are never learned for an unknown id.
func Invariant03GoneAreNotLearned(o *Observation) error {
	for i := range o.After {
		is := &o.After[i]
		if is.Self || row(o.Before, is.ID) != nil {
			continue
		}
		introduced := false
		for j := range o.Heard {
			c := &o.Heard[j]
			introduced = introduced || c.Subject == is.ID && c.Value.State.Live() && c.HasMeta
		}
		if !introduced {
			return fmt.Errorf("%s (%v) was learned as %v, nobody introduced it alive", is.Name, is.ID, is.Value)
		}
	}
	return nil
}

// Invariant04OnlyTheOwnerRaises: no value exceeds what the owner spoke.
func Invariant04OnlyTheOwnerRaises(o *Observation) error {
	for i := range o.After {
		m := &o.After[i]
		owner := o.World.history.of(m.ID)
		if m.Value.CompareWord(owner.spoken) > 0 {
			return fmt.Errorf("%s is held at %v, but never spoke above %d.%d", m.Name, m.Value, owner.spoken.Epoch, owner.spoken.Incarnation)
		}
		if m.Value.State == model.StateLeft && !owner.left[m.Value] {
			return fmt.Errorf("%s is held at %v, but never said so", m.Name, m.Value)
		}
	}
	return nil
}

// Invariant04OwnerSpeaksInOrder: how an owner moves its own value.
func Invariant04OwnerSpeaksInOrder(o *Observation) error {
	is := o.Self().Value
	floor := is
	if o.Call != CallNew {
		was := row(o.Before, o.Process.Disk.ID).Value
		floor = was
		switch {
		case is == was:
		case is.Epoch > was.Epoch:
			if is.Incarnation != 0 || is.State != model.StateAlive {
				return fmt.Errorf("a new epoch began as %v", is)
			}
		case o.Call == CallLeave:
			if want := (model.Value{Epoch: was.Epoch, Incarnation: was.Incarnation + 1, State: model.StateLeft}); is != want {
				return fmt.Errorf("it left from %v as %v, want %v", was, is, want)
			}
		case is.State != was.State || is.Incarnation <= was.Incarnation:
			return fmt.Errorf("its own value went from %v to %v", was, is)
		}
	}
	disk := max(o.Process.Disk.Epoch, o.Ready.PersistEpoch)
	for i := range o.Spoken {
		h := &o.Spoken[i].header
		word := model.Value{Epoch: h.Epoch, Incarnation: h.Incarnation}
		switch {
		case h.Sender != o.Process.Disk.ID || word.CompareWord(floor) < 0 || word.CompareWord(is) > 0:
			return fmt.Errorf("a packet says %v at %d.%d, its value went from %v to %v", h.Sender, h.Epoch, h.Incarnation, floor, is)
		case h.Epoch > disk:
			return fmt.Errorf("a packet says epoch %d, the disk %d", h.Epoch, disk)
		}
	}
	return nil
}

// Invariant04OwnerOvertakes: how an owner answers what is said of it.
func Invariant04OwnerOvertakes(o *Observation) error {
	if o.Call == CallNew || !o.Process.member() {
		return nil
	}
	is := o.Self().Value
	was := row(o.Before, o.Process.Disk.ID).Value
	for i := range o.Heard {
		c := &o.Heard[i]
		if c.Subject != o.Process.Disk.ID {
			continue
		}
		switch order := is.CompareWord(c.Value); {
		case order < 0, order == 0 && c.Value.State != model.StateAlive:
			return fmt.Errorf("it heard itself at %v and speaks %v", c.Value, is)
		case c.Value.CompareWord(was) > 0 && is.Epoch <= c.Value.Epoch:
			return fmt.Errorf("it had spoken %v, heard itself at %v, and speaks %v: want a later epoch", was, c.Value, is)
		}
	}
	return nil
}

// Invariant07MergeKeepsTheGreater: merging takes the maximum.
func Invariant07MergeKeepsTheGreater(o *Observation) error {
	for i := range o.Heard {
		c := &o.Heard[i]
		if c.Subject == o.Process.Disk.ID || row(o.Before, c.Subject) == nil || o.Process.node.Silent() {
			continue
		}
		is := row(o.After, c.Subject)
		if is != nil && is.Value.Compare(c.Value) < 0 && !takenBack(c.Value, is) && !o.event(swim.EventReaped, c.Subject) {
			return fmt.Errorf("it heard %s at %v and holds %v", is.Name, c.Value, is.Value)
		}
	}
	return nil
}
