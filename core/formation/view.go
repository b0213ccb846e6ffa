package formation

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/core/model"
)

// others lists what is known of others, by id.
func (s *Server) others() []*member {
	all := make([]*member, 0, len(s.members))
	for _, m := range s.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// takesPart reports whether a member could still form a cluster.
func (m *member) takesPart() bool { return m.Expect > 0 && m.Cluster == 0 }

// upholds reports whether a member is alive and keeps a cluster going.
func (m *member) upholds() bool { return m.Alive && m.Cluster != 0 && !m.Learner }

func (s *Server) alive(id model.NodeID) bool {
	m := s.members[id]
	return id == s.id || m != nil && m.Alive
}

// present lists the living that take part, this server too, by id.
func (s *Server) present() []model.NodeID {
	ids := []model.NodeID{s.id}
	for _, m := range s.members {
		if m.Alive && m.takesPart() {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// settled reports whether id is alive for long enough to be counted on.
func (s *Server) settled(id model.NodeID) bool {
	since := s.began
	if id != s.id {
		m := s.members[id]
		if m == nil || !m.Alive {
			return false
		}
		since = m.since
	}
	return s.now.Sub(since) >= s.stable
}

// settledOnes lists those of present that are settled.
func (s *Server) settledOnes() []model.NodeID {
	return slices.DeleteFunc(s.present(), func(id model.NodeID) bool { return !s.settled(id) })
}

// known counts the servers that take part, dead ones and this one too.
func (s *Server) known() int {
	n := 1
	for _, m := range s.members {
		if m.takesPart() {
			n++
		}
	}
	return n
}

// few reports whether a ballot of so many leaves out half of those who could
// form a cluster without them.
func (s *Server) few(size int) bool { return 2*size <= s.known() }

// odd is a living server that takes part and declares another number.
func (s *Server) odd() *member {
	for _, m := range s.others() {
		if m.Alive && m.takesPart() && m.Expect != s.expect {
			return m
		}
	}
	return nil
}

// called is the name of a server.
func (s *Server) called(id model.NodeID) string {
	switch m := s.members[id]; {
	case id == s.id:
		return s.name
	case m != nil && m.Name != "":
		return m.Name
	}
	return "server " + id.String()
}
