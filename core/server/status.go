package server

import (
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// Status is what a server is and knows of the others.
type Status struct {
	Identity Identity
	replica.State
	LeaderName string
	View       *store.View
	Members    []Member
	// Failure is why this server ended for good; nil if it did not.
	Failure error
}

// Status returns what this server is.
func (s *Server) Status() Status {
	st := s.State()
	out := Status{Identity: s.identity, State: st, View: s.View(), Members: s.roster.Load().members, Failure: s.Err()}
	if st.Leader != 0 {
		out.LeaderName = s.name(st.Leader)
	}
	return out
}
