package formation

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

const (
	// DefaultStable is how long a server has to be seen alive.
	DefaultStable = 2 * time.Second
	// DefaultRetry is the time between two questions to one server.
	DefaultRetry = 500 * time.Millisecond
	// remindEvery is the time between two reminders of a formed cluster.
	remindEvery = 5 * time.Second
)

// Config is what a Server is made of. Fields without "optional" are required.
type Config struct {
	ID   model.NodeID
	Name string
	// Expect is bootstrap_expect: 0 waits to be added.
	Expect int
	// Draw returns a random cluster id.
	Draw func() ClusterID
	// Record is what the disk holds; empty in a new data directory.
	Record Record
	// Stable and Retry are optional.
	Stable, Retry time.Duration
}

// Server is one server's part in the formation of a cluster. One goroutine owns
// it, and works off Ready after each call.
type Server struct {
	id     model.NodeID
	name   string
	expect int
	draw   func() ClusterID
	stable time.Duration
	retry  time.Duration

	rec      Record
	dirty    bool // rec is not on disk
	messages []Message
	decided  bool // a decision to hand out

	now     time.Time // of the call under way
	began   time.Time
	members map[model.NodeID]*member
	next    time.Time // to ask or query
	rest    time.Time // no proposal before, after one was withdrawn
	remind  time.Time

	// Of the own proposal: who agreed, and why others did not.
	yes map[model.NodeID]bool
	no  map[model.NodeID]Message
}

// member is a Member and the time since when it is alive without a break.
type member struct {
	Member
	since time.Time
}

// New returns the server as its record left it.
func New(cfg Config, now time.Time) (*Server, error) {
	switch {
	case cfg.ID == 0:
		return nil, fmt.Errorf("%w: no node id", ErrConfig)
	case cfg.Expect < 0 || cfg.Expect > MaxExpect:
		return nil, fmt.Errorf("%w: bootstrap_expect %d: set 0 to %d", ErrConfig, cfg.Expect, MaxExpect)
	case cfg.Draw == nil:
		return nil, fmt.Errorf("%w: no source of cluster ids", ErrConfig)
	}
	if err := cfg.Record.check(cfg.ID); err != nil {
		return nil, err
	}
	if cfg.Stable == 0 {
		cfg.Stable = DefaultStable
	}
	if cfg.Retry == 0 {
		cfg.Retry = DefaultRetry
	}
	s := &Server{
		id: cfg.ID, name: cfg.Name, expect: cfg.Expect, draw: cfg.Draw, stable: cfg.Stable, retry: cfg.Retry,
		rec: cfg.Record, now: now, began: now, next: now, remind: now, members: map[model.NodeID]*member{},
	}
	s.forgetAnswers()
	s.decided = s.decision() != nil
	return s, nil
}

// Ready returns what there is to do, once.
func (s *Server) Ready() Ready {
	var r Ready
	if s.dirty {
		rec := s.rec
		rec.Lost = slices.Clone(rec.Lost)
		r.Record = &rec
	}
	if s.decided {
		r.Decision = s.decision()
	}
	r.Messages = s.messages
	s.dirty, s.decided, s.messages = false, false, nil
	return r
}

// Cluster is the one that this server belongs to, or 0.
func (s *Server) Cluster() ClusterID {
	if s.rec.Formed == nil {
		return 0
	}
	return s.rec.Formed.Cluster
}

// Seen is the cluster of others that this server waits to be added to, or 0.
func (s *Server) Seen() ClusterID { return s.rec.Seen }

// Waits is the cluster that Recover may give up: the one that this server said yes
// to, or waits to be added to; 0 if there is none.
func (s *Server) Waits() ClusterID {
	switch {
	case s.rec.Formed != nil:
		return 0
	case s.rec.Yes != nil:
		return s.rec.Yes.Cluster
	}
	return s.rec.Seen
}

// Began notes that this server has state of its cluster.
func (s *Server) Began() {
	if s.rec.Formed != nil && !s.rec.Begun {
		s.rec.Begun, s.dirty = true, true
	}
}

// decision is nil unless this server is a voter of a formed cluster.
func (s *Server) decision() *Decision {
	if b := s.rec.Formed; b != nil && b.voter(s.id) {
		return &Decision{Cluster: b.Cluster, Voters: slices.Clone(b.Voters)}
	}
	return nil
}

// Tick lets time pass. Call it several times per Retry.
func (s *Server) Tick(now time.Time) {
	s.now = now
	s.act()
}

// Members replaces what is known of the others. What it says of this server
// itself does not count.
func (s *Server) Members(now time.Time, all []Member) {
	s.now = now
	next := make(map[model.NodeID]*member, len(all))
	for _, m := range all {
		if m.ID == s.id || m.ID == 0 {
			continue
		}
		since := now
		if old := s.members[m.ID]; old != nil && old.Alive {
			since = old.since
		}
		next[m.ID] = &member{Member: m, since: since}
	}
	s.members = next
	s.lookForClusters()
	s.act()
}

// lookForClusters notes the clusters that members belong to.
func (s *Server) lookForClusters() {
	for _, m := range s.others() {
		if m.Cluster != 0 {
			s.saw(m.Cluster, m.upholds())
		}
	}
}

// Added notes that an existing cluster took this server in.
func (s *Server) Added(now time.Time, cluster ClusterID) error {
	s.now = now
	switch {
	case s.Cluster() == cluster:
		return nil
	case s.rec.Formed != nil:
		return fmt.Errorf("%w: this server belongs to cluster %s: start it with an empty data directory to add it to another", ErrRefused, s.Cluster())
	case s.rec.Yes != nil && s.rec.Yes.Candidate == s.id:
		s.withdraw()
	case s.rec.Yes != nil && s.rec.Yes.Cluster != cluster:
		return fmt.Errorf("%w: this server said yes to cluster %s of %s, which may still form: %s",
			ErrRefused, s.rec.Yes.Cluster, s.called(s.rec.Yes.Candidate), s.Awaits())
	}
	s.rec.Formed = &Ballot{Cluster: cluster}
	s.rec.Yes, s.rec.Seen, s.dirty = nil, 0, true
	return nil
}

// Recover is an operator's word that a cluster is lost for good: the data
// directory of a candidate that this server said yes to, or all servers of a
// cluster that this server waits to be added to.
func (s *Server) Recover(now time.Time, lost ClusterID) error {
	s.now = now
	yes := s.rec.Yes
	bound := yes != nil && yes.Cluster == lost
	switch {
	case s.rec.Formed != nil:
		return fmt.Errorf("%w: this server belongs to cluster %s", ErrRefused, s.Cluster())
	case lost == 0 || !bound && s.rec.Seen != lost:
		return fmt.Errorf("%w: this server waits for no cluster %s", ErrRefused, lost)
	case bound && yes.Candidate == s.id:
		return fmt.Errorf("%w: cluster %s is this server's own proposal, which it takes back by itself when it has to", ErrRefused, lost)
	case bound && s.alive(yes.Candidate):
		return fmt.Errorf("%w: %s is alive, and knows what became of cluster %s", ErrRefused, s.called(yes.Candidate), lost)
	}
	for _, m := range s.others() {
		if m.Cluster == lost && m.upholds() {
			return fmt.Errorf("%w: %s is alive and belongs to cluster %s", ErrRefused, m.Name, lost)
		}
	}
	if bound {
		for _, id := range yes.Voters {
			if m := s.members[id]; m != nil && !m.Alive && id != yes.Candidate {
				return fmt.Errorf("%w: %s is not alive and may belong to cluster %s: start it, or `fairlead force-leave` it if it is lost too", ErrRefused, s.called(id), lost)
			}
		}
		s.rec.Yes = nil
	}
	if s.rec.Seen == lost {
		s.rec.Seen = 0
	}
	s.rec.Lost = append(slices.Clone(s.rec.Lost), lost)
	s.rec.Lost = s.rec.Lost[max(0, len(s.rec.Lost)-maxLost):]
	s.dirty = true
	s.lookForClusters() // that it gave up is not the only one
	s.act()
	return nil
}

// own is this server's proposal, or nil.
func (s *Server) own() *Ballot {
	if s.rec.Yes != nil && s.rec.Yes.Candidate == s.id {
		return s.rec.Yes
	}
	return nil
}

func (s *Server) forgetAnswers() {
	s.yes, s.no = map[model.NodeID]bool{s.id: true}, map[model.NodeID]Message{}
}

func (s *Server) send(kind Kind, to model.NodeID, b *Ballot) {
	m := Message{Kind: kind, From: s.id, To: to, Ballot: Ballot{Candidate: b.Candidate, Cluster: b.Cluster}}
	if kind == KindAsk || kind == KindFormed {
		m.Ballot = *b
	}
	s.messages = append(s.messages, m)
}
