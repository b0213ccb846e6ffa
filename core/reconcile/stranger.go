package reconcile

import "time"

const (
	// strangerWait is how long a node that knows of no other waits to be found,
	// before it takes away what another agent had a provider program. Members of
	// a cluster find a node that lost its data directory by probing its address,
	// within a few periods.
	strangerWait = 5 * time.Second
	// strangerMost bounds the wait, however many nodes come meanwhile.
	strangerMost = 15 * time.Second
)

// stranger is the patience with a provider that holds what another agent told
// it. An agent that lost its data directory looks like a new one, alone in the
// world, to itself too: what it does not know of yet may well exist. It is a
// value: time is an argument.
type stranger struct {
	began, until time.Time
	nodes        int
}

// met begins the wait.
func met(now time.Time) *stranger { return &stranger{began: now, until: now.Add(strangerWait)} }

// over reports whether the wait is over. Each node that shows up prolongs it, as
// what that one tells of others takes a moment.
func (s *stranger) over(now time.Time, nodes int) bool {
	if s.nodes != 0 && nodes > s.nodes {
		s.until = now.Add(strangerWait)
	}
	s.nodes = nodes
	return !now.Before(s.until) || now.Sub(s.began) >= strangerMost
}
