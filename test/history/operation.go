package history

import "fmt"

// Kind is what a call does.
type Kind int

// The kinds of calls.
const (
	Get    Kind = iota + 1
	Put         // Value, which nobody writes twice
	Delete      // of one key
	Swap        // puts Value if the key was modified last at Expect, else gets
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Swap:
		return "swap"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Outcome is what a client knows when a call is over.
type Outcome int

// The outcomes of calls.
const (
	Unknown Outcome = iota // it happened or not, or still will
	Done                   // see Answer
	Refused                // it did not happen, and never will
)

// Operation is one call. Times are nanoseconds since any moment, the same for all.
type Operation struct {
	Client int
	// Server that was asked, and which of its lives: what one life has read never goes
	// back.
	Server string
	Kind   Kind
	Key    string
	// Also is a second key that a Put gives the same value at the same revision.
	// Optional.
	Also   string
	Value  string
	Expect int64 // 0: there is no such key
	// Stale is a Get that may answer by any state of the past.
	Stale        bool
	Call, Return int64
	Outcome      Outcome
	Answer       Answer
}

// Answer is what a server said.
type Answer struct {
	Revision int64 // of the store; that of the write, if there was one
	Done     bool  // it was written, deleted, swapped
	Item     Item  // of a Get, and of a Swap that was not Done
}

// Item is a key's value. One with Modified 0 says that there is none.
type Item struct {
	Value                      string
	Created, Modified, Version int64
}

// writes reports whether the call made a revision.
func (o Operation) writes() bool { return o.Outcome == Done && o.Answer.Done && o.Kind != Get }

func (o Operation) String() string {
	s := fmt.Sprintf("client %d: %v %s", o.Client, o.Kind, o.Key)
	if o.Also != "" {
		s += "+" + o.Also
	}
	if o.Value != "" {
		s += " = " + o.Value
	}
	if o.Kind == Swap {
		s += fmt.Sprintf(" if at %d", o.Expect)
	}
	if o.Stale {
		s += " (stale)"
	}
	s += fmt.Sprintf(" at %s, %.3f ms to %.3f ms: ", o.Server, float64(o.Call)/1e6, float64(o.Return)/1e6)
	switch {
	case o.Outcome == Unknown:
		return s + "unknown"
	case o.Outcome == Refused:
		return s + "refused"
	case o.writes():
		return s + fmt.Sprintf("done at %d", o.Answer.Revision)
	}
	return s + fmt.Sprintf("at %d %s", o.Answer.Revision, o.Answer.Item)
}

func (i Item) String() string {
	if i.Modified == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s (created %d, modified %d, version %d)", i.Value, i.Created, i.Modified, i.Version)
}
