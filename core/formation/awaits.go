package formation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/model"
)

// Awaits says in a sentence what this server waits for, and what to do if that
// never comes; of a server whose cluster has formed it says "" as long as there
// is one cluster.
func (s *Server) Awaits() string {
	if s.rec.Formed != nil {
		return s.awaitsFormed()
	}
	if b := s.rec.Yes; b != nil {
		if b.Candidate == s.id {
			return s.awaitsAnswers(b)
		}
		return s.awaitsCandidate(b)
	}
	if s.rec.Seen != 0 {
		return s.awaitsCluster()
	}
	return s.awaitsServers()
}

// awaitsFormed tells of another cluster beside this server's own.
func (s *Server) awaitsFormed() string {
	for _, m := range s.others() {
		if m.Cluster != s.Cluster() && s.counts(m) {
			return fmt.Sprintf("two clusters exist, %s (%s) and %s (%s): formed clusters never merge; keep one, and start the servers of the other with empty data directories",
				s.Cluster(), s.name, m.Cluster, m.Name)
		}
	}
	return ""
}

// awaitsCluster is of a server that others have to add.
func (s *Server) awaitsCluster() string {
	var up, down, others []string
	for _, m := range s.others() {
		switch {
		case !s.counts(m):
		case m.Cluster != s.rec.Seen:
			others = append(others, fmt.Sprintf("%s (%s)", m.Cluster, m.Name))
		case m.upholds():
			up = append(up, m.Name)
		case !m.Alive:
			down = append(down, m.Name)
		}
	}
	beside := ""
	if len(others) > 0 {
		beside = "; two clusters exist, this one and " + others[0] + ": formed clusters never merge"
	}
	if len(up) > 0 {
		return fmt.Sprintf("cluster %s exists already (%s): waiting to be added%s", s.rec.Seen, list(up), beside)
	}
	which := ""
	if len(down) > 0 {
		which = " (" + list(down) + ")"
	}
	return fmt.Sprintf("cluster %s exists already, and none of its servers%s is alive: start them; if they are lost for good, `fairlead raft recover` on this server gives that cluster up%s",
		s.rec.Seen, which, beside)
}

// counts reports whether a member shows that its cluster exists.
func (s *Server) counts(m *member) bool {
	return m.Cluster != 0 && (m.upholds() || !slices.Contains(s.rec.Lost, m.Cluster))
}

// awaitsCandidate is of a server that said yes to another.
func (s *Server) awaitsCandidate(b *Ballot) string {
	name := s.called(b.Candidate)
	if s.alive(b.Candidate) {
		return fmt.Sprintf("said yes to cluster %s: waiting for %s, which collects the answers of %s", b.Cluster, name, s.names(b.all()))
	}
	again := ""
	for _, m := range s.others() {
		if m.Alive && m.Name == name && m.ID != b.Candidate {
			again = fmt.Sprintf(" (a server of that name is alive with another data directory, id %s)", m.ID)
		}
	}
	return fmt.Sprintf("said yes to cluster %s of %s (id %s), which is not alive%s: start it again; if its data directory is lost for good, `fairlead raft recover` on this server takes the yes back",
		b.Cluster, name, b.Candidate, again)
}

// awaitsAnswers is of a candidate.
func (s *Server) awaitsAnswers(b *Ballot) string {
	var open []string
	for _, id := range b.all() {
		if !s.yes[id] {
			open = append(open, s.called(id)+" ("+s.answer(id)+")")
		}
	}
	if len(open) == 0 {
		return fmt.Sprintf("has all answers for cluster %s: looking for %s who is alive", b.Cluster, s.stable)
	}
	return fmt.Sprintf("proposed cluster %s: waiting for the yes of %s", b.Cluster, list(open))
}

// answer says what a server answered to the own proposal.
func (s *Server) answer(id model.NodeID) string {
	no := s.no[id]
	switch no.Why {
	case WhyBound:
		if s.alive(no.Node) {
			return "said yes to " + s.called(no.Node)
		}
		return fmt.Sprintf("said yes to %s, which is not alive: start it again, or `fairlead raft recover` on %s if its data directory is lost for good",
			s.called(no.Node), s.called(id))
	case WhyCluster:
		return "knows cluster " + no.Cluster.String() + ", which was given up here: `fairlead raft recover` gives it up there"
	case WhyExpect:
		return fmt.Sprintf("%s says bootstrap_expect %d: make them equal", s.called(no.Node), no.Expect)
	case WhyUnseen:
		return "sees " + s.called(no.Node) + " alive, which was not asked"
	case WhyFew:
		return fmt.Sprintf("knows %d servers with a bootstrap_expect, of which more than half must be alive", no.Expect)
	}
	return "no answer yet"
}

// awaitsServers is of a server that neither said yes nor knows a cluster.
func (s *Server) awaitsServers() string {
	present, settled := s.present(), s.settledOnes()
	switch odd := s.odd(); {
	case s.expect == 0:
		return "bootstrap_expect is 0: waiting to be added to a cluster"
	case odd != nil:
		return fmt.Sprintf("%s says bootstrap_expect %d, here it is %d: make them equal", odd.Name, odd.Expect, s.expect)
	case len(present) < s.expect:
		n := s.expect - len(present)
		return fmt.Sprintf("waiting for %d more %s: %d of bootstrap_expect %d are alive (%s)%s", n, plural(n, "server"), len(present), s.expect, s.names(present), s.waitOn())
	case s.few(len(present)):
		return s.awaitsMore(len(present))
	case len(present) > MaxServers:
		return fmt.Sprintf("%d servers set bootstrap_expect, at most %d can form a cluster: set it on fewer of them", len(present), MaxServers)
	case len(settled) < s.expect:
		return fmt.Sprintf("waiting until %d servers have been alive for %s (%s)", s.expect, s.stable, s.names(present))
	case settled[0] == s.id:
		return fmt.Sprintf("about to propose a cluster to %s", s.names(present))
	}
	return fmt.Sprintf("waiting for %s, which has the lowest id, to propose a cluster to %s: what holds it up it says itself", s.called(settled[0]), s.names(present))
}

// waitOn names the living that wait for a cluster which was given up here.
func (s *Server) waitOn() string {
	var names []string
	for _, m := range s.others() {
		if m.Alive && m.Learner && slices.Contains(s.rec.Lost, m.Cluster) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; a cluster that was given up here is still waited for by %s: `fairlead raft recover` gives it up there", list(names))
}

// awaitsMore is of a side that is not more than half of those it knows.
func (s *Server) awaitsMore(alive int) string {
	var dead []string
	for _, m := range s.others() {
		if !m.Alive && m.takesPart() {
			dead = append(dead, m.Name)
		}
	}
	n := s.known()/2 + 1 - alive
	return fmt.Sprintf("waiting for %d more %s: only %d of the %d servers known to set bootstrap_expect are alive, and the others could form a cluster of their own; start some of %s, or `fairlead force-leave` those that are gone for good",
		n, plural(n, "server"), alive, s.known(), list(dead))
}

func (s *Server) names(ids []model.NodeID) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		names = append(names, s.called(id))
	}
	slices.Sort(names)
	return list(names)
}

// list joins a few names, and counts the rest.
func list(names []string) string {
	const most = 12
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}
