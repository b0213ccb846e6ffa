package formation

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Step takes a message. One that makes no sense is dropped with an error that
// wraps ErrDamaged.
func (s *Server) Step(now time.Time, m Message) error {
	s.now = now
	if m.To != s.id || m.From == 0 || m.From == s.id {
		return fmt.Errorf("%w: a message from %s to %s", ErrDamaged, m.From, m.To)
	}
	switch m.Kind {
	case KindAsk:
		if err := m.Ballot.check(); err != nil {
			return err
		}
		if m.From != m.Ballot.Candidate || !m.Ballot.has(s.id) {
			return fmt.Errorf("%w: %s asks for a ballot of others", ErrDamaged, m.From)
		}
		s.asked(&m.Ballot)
	case KindYes, KindNo:
		s.answered(m)
	case KindWithdrawn:
		if b := s.rec.Yes; b != nil && b.Cluster == m.Ballot.Cluster && b.Candidate == m.From {
			s.rec.Yes, s.dirty = nil, true
		}
	case KindQuery:
		s.queried(m)
	case KindFormed:
		if m.Ballot.Cluster == 0 {
			return fmt.Errorf("%w: a cluster without id has formed", ErrDamaged)
		}
		s.heardFormed(m.Ballot)
	default:
		return fmt.Errorf("%w: a message of kind %d", ErrDamaged, m.Kind)
	}
	s.act()
	return nil
}

// asked answers a candidate.
func (s *Server) asked(b *Ballot) {
	bound := s.rec.Yes
	switch {
	case s.rec.Formed != nil:
		s.send(KindFormed, b.Candidate, s.rec.Formed)
		return
	case bound != nil && bound.Cluster == b.Cluster:
		s.send(KindYes, b.Candidate, b)
		return
	case bound != nil && (bound.Candidate != s.id || b.Candidate > s.id):
		s.refuse(b, Message{Why: WhyBound, Node: bound.Candidate, Cluster: bound.Cluster})
		return
	}
	if no := s.objection(b); no.Why != 0 {
		s.refuse(b, no)
		return
	}
	if bound != nil {
		s.withdraw()
	}
	s.rec.Yes, s.dirty = b, true
	s.next = s.now.Add(s.retry)
	s.send(KindYes, b.Candidate, b)
}

// objection says why a server that is not bound does not agree to a ballot.
func (s *Server) objection(b *Ballot) (no Message) {
	switch odd := s.odd(); {
	case slices.Contains(s.rec.Lost, b.Cluster):
		return Message{Why: WhyLost}
	case s.rec.Seen != 0:
		return Message{Why: WhyCluster, Cluster: s.rec.Seen}
	case len(b.Voters) != s.expect:
		return Message{Why: WhyExpect, Node: s.id, Expect: s.expect}
	case odd != nil:
		return Message{Why: WhyExpect, Node: odd.ID, Expect: odd.Expect}
	case s.few(b.size()):
		return Message{Why: WhyFew, Expect: s.known()}
	}
	for _, id := range s.settledOnes() {
		if !b.has(id) {
			return Message{Why: WhyUnseen, Node: id}
		}
	}
	return Message{}
}

func (s *Server) refuse(b *Ballot, no Message) {
	no.Kind, no.From, no.To = KindNo, s.id, b.Candidate
	no.Ballot = Ballot{Candidate: b.Candidate, Cluster: b.Cluster}
	s.messages = append(s.messages, no)
}

// answered takes the answer to this server's own proposal.
func (s *Server) answered(m Message) {
	own := s.own()
	if own == nil || own.Cluster != m.Ballot.Cluster || !own.has(m.From) {
		return
	}
	if m.Kind == KindYes {
		s.yes[m.From] = true
		delete(s.no, m.From)
		return
	}
	if s.yes[m.From] && m.Why != WhyLost {
		return // a no from before the yes
	}
	s.no[m.From] = m
	switch m.Why {
	case WhyBound:
		switch {
		case m.Node == s.id && m.Cluster != own.Cluster:
			s.send(KindWithdrawn, m.From, &Ballot{Candidate: s.id, Cluster: m.Cluster})
		case m.Node < s.id && s.alive(m.Node):
			s.withdraw()
		}
	case WhyCluster:
		s.saw(m.Cluster, false)
	case WhyLost:
		s.withdraw()
	}
}

// queried tells a server what became of a ballot that it agreed to. A ballot of
// this server that is not in its record was withdrawn: it was there before
// anybody was asked.
func (s *Server) queried(m Message) {
	b := m.Ballot
	if s.rec.Formed != nil {
		s.send(KindFormed, m.From, s.rec.Formed)
	}
	held := s.Cluster() == b.Cluster || s.rec.Yes != nil && s.rec.Yes.Cluster == b.Cluster
	if b.Candidate == s.id && !held {
		s.send(KindWithdrawn, m.From, &b)
	}
}

// heardFormed takes the news of a formed cluster.
func (s *Server) heardFormed(b Ballot) {
	bound := s.rec.Yes
	switch {
	case s.rec.Formed != nil:
	case bound != nil && bound.Cluster == b.Cluster:
		s.form(bound)
	case bound == nil && b.check() == nil && b.voter(s.id) && (s.rec.Seen == 0 || s.rec.Seen == b.Cluster):
		s.form(&b) // an operator ended its yes, and was mistaken
	default:
		s.saw(b.Cluster, true)
	}
}

// saw notes that a cluster of others exists. One that was given up counts again
// once a voter of it is alive.
func (s *Server) saw(cluster ClusterID, alive bool) {
	switch {
	case s.rec.Formed != nil:
		return
	case s.rec.Yes != nil && s.rec.Yes.Cluster == cluster:
		s.form(s.rec.Yes)
		return
	case s.rec.Seen != 0, !alive && slices.Contains(s.rec.Lost, cluster):
		return
	}
	s.rec.Seen, s.dirty = cluster, true
	if s.own() != nil {
		s.withdraw()
	}
}

// form makes a ballot this server's cluster, or that which it waits for if it is
// a witness.
func (s *Server) form(b *Ballot) {
	s.rec.Yes, s.dirty = nil, true
	if !b.voter(s.id) {
		s.rec.Seen = b.Cluster
		return
	}
	s.rec.Formed, s.rec.Seen = b, 0
	s.decided = true
}

// withdraw takes the own proposal back.
func (s *Server) withdraw() {
	b := s.rec.Yes
	s.rec.Yes, s.dirty = nil, true
	for _, id := range b.all() {
		if id != s.id {
			s.send(KindWithdrawn, id, b)
		}
	}
	s.rest = s.now.Add(2 * s.retry)
	s.forgetAnswers()
}

// act does what is due: it takes back, proposes, forms, asks and queries.
func (s *Server) act() {
	if s.rec.Formed != nil {
		s.remindOthers()
		return
	}
	if own := s.own(); own != nil && s.settled(s.id) && s.outdated(own) {
		s.withdraw()
	}
	if s.rec.Yes == nil {
		s.propose()
	}
	if own := s.own(); own != nil && s.settled(s.id) && len(s.yes) == own.size() {
		s.form(own)
		s.remindOthers()
		return
	}
	if s.rec.Yes != nil && !s.now.Before(s.next) {
		s.next = s.now.Add(s.retry)
		s.ask(s.rec.Yes)
	}
}

// outdated reports whether the own proposal does not fit any more what is seen.
func (s *Server) outdated(b *Ballot) bool {
	if len(b.Voters) != s.expect || s.odd() != nil || s.few(b.size()) {
		return true
	}
	for _, id := range b.all() {
		if m := s.members[id]; id != s.id && (m == nil || !m.Alive || !m.takesPart()) {
			return true
		}
	}
	return slices.ContainsFunc(s.settledOnes(), func(id model.NodeID) bool { return !b.has(id) })
}

// propose makes this server the candidate if it is the one.
func (s *Server) propose() {
	if s.expect == 0 || s.rec.Seen != 0 || s.now.Before(s.rest) || s.odd() != nil {
		return
	}
	settled, present := s.settledOnes(), s.present()
	if len(settled) < s.expect || settled[0] != s.id || s.few(len(present)) || len(present) > MaxServers {
		return
	}
	cluster := s.draw()
	if cluster == 0 {
		return
	}
	b := &Ballot{Candidate: s.id, Cluster: cluster, Voters: settled[:s.expect:s.expect]}
	b.Witnesses = slices.DeleteFunc(present, b.voter)
	s.rec.Yes, s.dirty = b, true
	s.forgetAnswers()
	s.next = s.now
}

// ask sends the question that is due: the candidate's to those who did not agree
// yet, anybody else's to those who know what became of its yes.
func (s *Server) ask(b *Ballot) {
	if b.Candidate != s.id {
		for _, id := range b.Voters {
			if id != s.id {
				s.send(KindQuery, id, b)
			}
		}
		return
	}
	for _, id := range b.all() {
		if !s.yes[id] {
			s.send(KindAsk, id, b)
		}
	}
}

// remindOthers tells those who agreed that the cluster has formed, the first time
// at once. Those who do not hear it ask.
func (s *Server) remindOthers() {
	b := s.rec.Formed
	if b.Candidate != s.id || s.now.Before(s.remind) {
		return
	}
	s.remind = s.now.Add(remindEvery)
	for _, id := range b.all() {
		if m := s.members[id]; m != nil && m.Alive && m.Cluster == 0 {
			s.send(KindFormed, id, b)
		}
	}
}
