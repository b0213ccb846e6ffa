package model

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrState is wrapped when a text names no state.
var ErrState = errors.New("model: unknown member state")

// State is what is said of a member. The number is the rank in the order of
// Value and is on the wire: append only.
type State uint8

// The states of a member, in rising rank.
const (
	StateAlive   State = 0 // answers, or was vouched for
	StateSuspect State = 1 // did not answer a whole probe; may still refute
	StateDead    State = 2 // did not refute in time
	StateLeft    State = 3 // said good-bye itself
)

// Value is one statement about one member: who it is now (Epoch, raised with
// each start of the node), which of its own words it answers to (Incarnation,
// raised by the owner to refute) and what is said of it.
//
// Values of one member are totally ordered by (Epoch, Incarnation, State), so
// keeping the greater of two is commutative, associative and idempotent. This
// differs from SWIM §4.2, where dead overrides everything: a suspicion with a
// higher incarnation proves that its owner refuted the older death.
type Value struct {
	Epoch       uint64
	Incarnation uint64
	State       State
}

// String prints the name that users and scripts see.
func (s State) String() string {
	switch s {
	case StateAlive:
		return "alive"
	case StateSuspect:
		return "suspect"
	case StateDead:
		return "dead"
	case StateLeft:
		return "left"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Live reports whether a member in this state takes part: alive or suspect.
func (s State) Live() bool { return s == StateAlive || s == StateSuspect }

// ParseState reads the form that String prints.
func ParseState(text string) (State, error) {
	for s := StateAlive; s <= StateLeft; s++ {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w %q: want alive, suspect, dead or left", ErrState, text)
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	v, err := ParseState(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Compare orders values by epoch, then incarnation, then rank of the state.
func (v Value) Compare(w Value) int {
	return cmp.Or(v.CompareWord(w), cmp.Compare(v.State, w.State))
}

// CompareWord orders by epoch and incarnation alone: whose word is newer.
func (v Value) CompareWord(w Value) int {
	return cmp.Or(cmp.Compare(v.Epoch, w.Epoch), cmp.Compare(v.Incarnation, w.Incarnation))
}

// String prints "epoch.incarnation state", such as "3.1 suspect".
func (v Value) String() string { return fmt.Sprintf("%d.%d %s", v.Epoch, v.Incarnation, v.State) }
