package follow

import (
	"iter"
	"time"

	"github.com/fairlead/fairlead/core/store"
)

// Source is where the system keyspace is read. Its methods do not block, and may be
// called from any goroutine.
type Source interface {
	// State returns the newest state that is known. It is never nil: revision 0
	// means that nothing is known yet.
	State() State
	// Changed returns a channel that is closed when there is a newer state. Take it
	// before State, and nothing is missed.
	Changed() <-chan struct{}
	Status() Status
}

// State is the system keyspace after a revision. It is immutable and may be kept.
// What its values refer to is not to be altered.
type State interface {
	Cluster() uint64 // 0: not known
	Revision() int64
	Get(key string) (store.KeyValue, bool)
	// Range yields the keys that begin with a prefix, in order.
	Range(prefix string) iter.Seq[store.KeyValue]
}

// Status says what a source has, and how good it is.
type Status struct {
	Cluster  uint64 // 0: not known
	Revision int64
	Keys     int
	// Current is when the state was last known to be the newest there is; zero:
	// never.
	Current time.Time
	// Server is whom it comes from; empty: nobody at the moment.
	Server, Address string
	// Problem says why there is no server; empty: there is one.
	Problem string
}

// Age is for how long newer states may have been missed; known is false if it was
// never current.
func (s Status) Age(now time.Time) (age time.Duration, known bool) {
	if s.Current.IsZero() {
		return 0, false
	}
	return max(now.Sub(s.Current), 0), true
}
