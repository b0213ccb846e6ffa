package replica

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// Change is a change of who takes part: all of it comes into force, or nothing.
// If it changes more than one server or removes a voter, majorities of the old and of
// the new voters are needed until it has (Raft, §6 of the paper: joint consensus).
type Change struct {
	AddLearners []uint64 // servers that get the log and have no vote yet
	Promote     []uint64 // learners that get a vote
	Remove      []uint64 // voters and learners
}

// ChangeID tells a change from all others, so that it is known what became of it.
type ChangeID [16]byte

// Outcome is what became of a change that was proposed.
type Outcome int

// The outcomes.
const (
	// InForce: the change is in force on this server. Until Conf has no outgoing
	// voters any more, the old ones count as well.
	InForce Outcome = iota + 1
	// Superseded: another entry took the place of the change; it did not happen.
	Superseded
	// Unknown: this server was sent a snapshot, in which the change may be or not.
	Unknown
)

// Changed is the outcome of a change.
type Changed struct {
	ID      ChangeID
	Outcome Outcome
}

// Member is a server that takes part, as the leader knows it.
type Member struct {
	ID uint64
	// Learner has no vote. Leaving is one that has a vote until the change under
	// way is over.
	Learner, Leaving bool
	// Match is up to which entry its log is the leader's, Next what is sent next.
	Match, Next uint64
	// Active says that something was heard of it within an election timeout, and
	// Snapshot that it is being sent one, or waits for that.
	Active, Snapshot bool
	// CaughtUp learners may be promoted: they follow the log, and lack little.
	CaughtUp bool
}

// maxLag is how many committed entries a learner may lack that is promoted.
const maxLag = 256

// Why a change is not proposed. Nothing happened; what the remedy is not a matter
// of waiting for, comes again.
var (
	// ErrChangeOpen: changes are made one after the other.
	ErrChangeOpen = errors.New("replica: another change of the servers is under way, or this server began to lead just now: try again in a moment")
	// ErrNoVoters: a group of nobody decides nothing.
	ErrNoVoters = errors.New("replica: no voter would be left: promote another server first")
	// ErrNoQuorum: the group could not decide anything after the change.
	ErrNoQuorum = errors.New("replica: of the servers that would be voters too few are heard of: start them, or remove those that are gone and not those that work")
	// ErrBehind: a voter that lacks entries could hold up everybody.
	ErrBehind = errors.New("replica: a learner that is to be promoted does not follow the log yet: wait until it has caught up")
	// ErrMembers: the change is of servers that are not what it takes them for.
	ErrMembers = errors.New("replica: the change does not fit those who take part")
	// ErrLeaderLeaves: a leader that leaves would have nobody take over.
	ErrLeaderLeaves = errors.New("replica: the leader does not remove itself: transfer the leadership first")
)

// open is the change that this leader proposed last.
type openChange struct {
	id    ChangeID
	at    position // zero: it is not in the log yet
	asked bool     // somebody waits for the outcome
}

// ProposeChange asks to change the membership, if that is safe. Ready tells what
// became of it. Before an error nothing happened: it wraps ErrDropped, if this
// server does not lead, or one of the reasons above.
func (r *Replica) ProposeChange(id ChangeID, c Change) error {
	if err := r.CheckChange(c); err != nil {
		return err
	}
	v2 := &pb.ConfChangeV2{Transition: pb.ConfChangeTransitionAuto.Enum(), Context: id[:]}
	if slices.ContainsFunc(c.Remove, func(id uint64) bool { return slices.Contains(r.conf.GetVoters(), id) }) {
		v2.Transition = pb.ConfChangeTransitionJointImplicit.Enum() // see grants
	}
	for _, l := range []struct {
		ids  []uint64
		kind pb.ConfChangeType
	}{{c.AddLearners, pb.ConfChangeAddLearnerNode}, {c.Promote, pb.ConfChangeAddNode}, {c.Remove, pb.ConfChangeRemoveNode}} {
		for _, server := range l.ids {
			v2.Changes = append(v2.Changes, &pb.ConfChangeSingle{Type: l.kind.Enum(), NodeId: new(server)})
		}
	}
	if err := r.node.ProposeConfChange(v2); err != nil {
		return fmt.Errorf("%w: %w", ErrDropped, err)
	}
	r.open = openChange{id: id, asked: true}
	r.changing = true
	return nil
}

// CheckChange says why ProposeChange would refuse a change now; nil if it would
// not.
func (r *Replica) CheckChange(c Change) error {
	if !r.now().Leads() {
		return fmt.Errorf("%w: this server does not lead", ErrDropped)
	}
	if err := fits(r.conf, c); err != nil {
		return err
	}
	if slices.Contains(c.Remove, r.id) {
		return ErrLeaderLeaves
	}
	if r.changeOpen() {
		return ErrChangeOpen
	}
	members := map[uint64]Member{}
	for _, m := range r.members() {
		members[m.ID] = m
	}
	for _, id := range c.Promote {
		if !members[id].CaughtUp {
			return fmt.Errorf("%w: server %x has %d of %d entries", ErrBehind, id, members[id].Match, members[r.id].Match)
		}
	}
	after := votersAfter(r.conf, c)
	var silent []uint64
	for _, id := range after {
		if !members[id].Active {
			silent = append(silent, id)
		}
	}
	if len(after)-len(silent) < len(after)/2+1 {
		return fmt.Errorf("%w: %x of %x are silent", ErrNoQuorum, silent, after)
	}
	return nil
}

// fits reports whether a change is of servers that are what it takes them for.
func fits(conf *pb.ConfState, c Change) error {
	seen := map[uint64]bool{}
	for _, id := range slices.Concat(c.AddLearners, c.Promote, c.Remove) {
		if id == 0 || seen[id] {
			return fmt.Errorf("%w: server %x is named twice, or cannot be", ErrMembers, id)
		}
		seen[id] = true
	}
	if len(seen) == 0 {
		return fmt.Errorf("%w: it changes nothing", ErrMembers)
	}
	voter := func(id uint64) bool { return slices.Contains(conf.GetVoters(), id) }
	learner := func(id uint64) bool { return slices.Contains(conf.GetLearners(), id) }
	for _, id := range c.AddLearners {
		if voter(id) || learner(id) {
			return fmt.Errorf("%w: server %x takes part already", ErrMembers, id)
		}
	}
	for _, id := range c.Promote {
		if !learner(id) {
			return fmt.Errorf("%w: server %x is not a learner", ErrMembers, id)
		}
	}
	for _, id := range c.Remove {
		if !voter(id) && !learner(id) {
			return fmt.Errorf("%w: server %x does not take part", ErrMembers, id)
		}
	}
	if len(votersAfter(conf, c)) == 0 {
		return ErrNoVoters
	}
	return nil
}

func votersAfter(conf *pb.ConfState, c Change) []uint64 {
	all := slices.Concat(conf.GetVoters(), c.Promote)
	return slices.DeleteFunc(all, func(id uint64) bool { return slices.Contains(c.Remove, id) })
}

// joint reports whether a change is in force that is not over.
func (r *Replica) joint() bool { return len(r.conf.GetVotersOutgoing()) > 0 }

// changeOpen reports whether the library would make an empty entry of a change: it
// does that, and says nothing, while one is in the log that is not applied, as far
// as a new leader can tell, and in a joint state.
func (r *Replica) changeOpen() bool {
	return r.joint() || r.changing || r.changeAt > r.applied.index || r.applied.term != r.now().Term
}

// noteAppend looks for changes in what is appended.
func (r *Replica) noteAppend(entries []*pb.Entry) {
	for _, e := range entries {
		if e.GetType() != pb.EntryConfChangeV2 {
			continue
		}
		r.changeAt = e.GetIndex()
		if r.changing && changeIDOf(e) == r.open.id {
			r.open.at, r.changing = position{e.GetIndex(), e.GetTerm()}, false
		}
	}
}

func changeIDOf(e *pb.Entry) (id ChangeID) {
	c, err := changeOf(e)
	if err == nil {
		copy(id[:], c.GetContext())
	}
	return id
}

// noteApplied finds out whether an entry is the open change, or in its place.
func (r *Replica) noteApplied(e *pb.Entry) {
	if !r.open.asked || r.open.at.index == 0 || e.GetIndex() < r.open.at.index {
		return
	}
	out := Changed{r.open.id, Superseded}
	if e.GetType() == pb.EntryConfChangeV2 && (position{e.GetIndex(), e.GetTerm()}) == r.open.at {
		out.Outcome = InForce
	}
	r.decided = append(r.decided, out)
	r.open = openChange{}
}

// noteInstalled ends the wait for a change that a snapshot has, or not.
func (r *Replica) noteInstalled(index uint64) {
	if r.open.asked && (r.open.at.index == 0 || r.open.at.index <= index) {
		r.decided = append(r.decided, Changed{r.open.id, Unknown})
		r.open = openChange{}
	}
}

// noteState forgets what was of another term: what was appended in it may be gone.
func (r *Replica) noteState(now State) {
	if now.Term != r.state.Term || now.Role != r.state.Role {
		r.changeAt, r.changing = 0, false
		if r.open.asked && r.open.at.index == 0 {
			// It was appended when it was proposed, and lost before that was noted.
			r.decided = append(r.decided, Changed{r.open.id, Unknown})
			r.open = openChange{}
		}
	}
}

// leaveJoint has the library try again to end a joint state. It tries when an entry
// is applied, and not while the leadership is being transferred: in a group where
// nothing is written, that may have been the last time.
func (r *Replica) leaveJoint() {
	if r.joint() && r.ticks%uint64(r.electionTicks) == 0 && r.now().Leads() {
		_ = r.node.Propose(nil) // if it is not taken, then next time
	}
}

// noteMembers follows the members that are in force since an entry, or a snapshot.
func (r *Replica) noteMembers(at position) {
	members := slices.Concat(r.conf.GetVoters(), r.conf.GetLearners(), r.conf.GetVotersOutgoing())
	maps.DeleteFunc(r.heard, func(id, _ uint64) bool { return !slices.Contains(members, id) })
	switch {
	case len(members) == 0 || slices.Contains(members, r.id):
		r.removedAt = position{}
	case r.removedAt.index == 0:
		r.removedAt = at
	}
}

// grants returns the request of a vote as a server that was removed looks at it: it
// does not compare its log, only whether that of the candidate has the entry that
// removed this one. Without that a group could be stuck for good: a candidate that
// does not know yet that this entry is committed may need this vote, and this
// server may have entries after it that nobody else has.
//
// It is safe, as voters are removed by joint states only, and the entry is the one
// that ends such a state. What is committed after it, or was before it, is in the
// logs of a majority of those who stayed. The candidate needs their votes as well: it
// has the entry, and with that came the word that the joint state is in force.
func (r *Replica) grants(m *pb.Message) *pb.Message {
	if m.GetType() != pb.MsgVote && m.GetType() != pb.MsgPreVote || r.removedAt.index == 0 {
		return m
	}
	has := m.GetLogTerm() > r.removedAt.term || m.GetLogTerm() == r.removedAt.term && m.GetIndex() >= r.removedAt.index
	if !has {
		return m
	}
	m = proto.Clone(m).(*pb.Message)
	m.LogTerm, m.Index = new(m.GetTerm()), new(uint64(math.MaxUint64))
	return m
}

// Members returns what the leader knows of those who take part; nil if this server
// does not lead.
func (r *Replica) Members() []Member {
	if !r.now().Leads() {
		return nil
	}
	return r.members()
}

func (r *Replica) members() []Member {
	st := r.node.Status()
	var out []Member
	for id, p := range st.Progress {
		m := Member{ID: id, Match: p.Match, Next: p.Next, Learner: p.IsLearner, Snapshot: p.State == tracker.StateSnapshot}
		m.Leaving = slices.Contains(r.conf.GetVotersOutgoing(), id) && !slices.Contains(r.conf.GetVoters(), id)
		heard, ever := r.heard[id]
		m.Active = id == r.id || ever && r.ticks-heard < uint64(r.electionTicks)
		m.CaughtUp = m.Active && p.State == tracker.StateReplicate && p.Match+maxLag >= st.HardState.GetCommit()
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}
