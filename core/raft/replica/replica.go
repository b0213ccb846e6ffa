package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft/wal"
)

// Config is what a Replica is made of.
type Config struct {
	ID uint64 // of this server, for all time
	// ElectionTicks without a word of the leader begin an election, up to twice as
	// many as drawn; HeartbeatTicks is the leader's interval.
	ElectionTicks, HeartbeatTicks int
	Logger                        raft.Logger
}

// Sizes that bound what is on the way. A follower that is slow holds back at most
// maxInflightBytes, proposals that nobody commits at most maxUncommittedBytes.
const (
	maxMessageBytes     = 1 << 20
	maxInflightMessages = 256
	maxInflightBytes    = 32 << 20
	maxUncommittedBytes = 128 << 20
	maxApplyBytes       = 8 << 20
)

// Initial is what was found on disk.
type Initial struct {
	Hard *pb.HardState
	// Snapshot that the state machine was made from; never nil. One of index 0 and
	// without members is that of a server that joins: it waits for a leader to add it
	// and to send a snapshot, as the entries from 1 on are not all of a group's state.
	Snapshot *pb.SnapshotMetadata
	Entries  []*pb.Entry // after it
}

// Replica is one server of a group. One goroutine uses it.
type Replica struct {
	id       uint64
	node     *raft.RawNode
	log      *log
	conf     *pb.ConfState
	applied  position
	held     []*pb.Message // to be sent, that an append had held back
	tries    uint64        // contexts given out
	appended uint64        // bytes of entries written since the last snapshot
	reads    map[string]uint64
	// postponed are contexts of reads that came before this server could answer.
	postponed [][]byte
	arrived   *pb.Message // a snapshot that waits for what is being applied
	state     State
	// applying are the appends and applies that Ready gave out and nobody
	// reported yet, in their order.
	appending []*Append
	applying  []*Apply

	electionTicks int
	ticks         uint64
	heard         map[uint64]uint64 // by server: in which tick a message of it came
	// changeAt is the last change of the membership that was appended since this
	// server became what it is, and changing says that one may be that was not seen.
	changeAt  uint64
	changing  bool
	acked     ack      // the last that was sent
	needless  []ack    // that will be made, and say nothing new
	removedAt position // the entry by which this server is no member; zero: it is one
	open      openChange
	decided   []Changed // to be told
}

// Ready is what is to be done.
type Ready struct {
	Append *Append
	Apply  *Apply
	Send   []*pb.Message
	Reads  []Confirmed
	State  *State    // if it changed
	Done   []Changed // changes of the membership of which the outcome is known
}

// Append is one write to the log.
type Append struct {
	Batch wal.Batch
	// Snapshot, unless nil, replaces the state machine and all of the log before
	// it: its file is here already. Batch has the mark for it. It waits until all
	// applies that were given out before are done: they are of what it replaces.
	Snapshot *pb.SnapshotMetadata

	message *pb.Message
	asks    []*pb.Message // for votes, which wait for it
}

// Apply is a run of committed entries for the state machine, in order.
type Apply struct {
	Entries []*pb.Entry

	message *pb.Message
}

// Confirmed is a read that may be answered when Index is applied.
type Confirmed struct {
	Read  uint64 // as Read returned it
	Index uint64
}

// State is what this server is.
type State struct {
	Term   uint64
	Leader uint64 // 0: unknown
	Role   raft.StateType
}

// Leads reports whether this server leads.
func (s State) Leads() bool { return s.Role == raft.StateLeader }

// ErrDropped says that a proposal was not taken: this server does not lead, or
// too much is on the way. Nothing happened; it may be tried again.
var ErrDropped = errors.New("replica: the proposal was not taken: there is no leader here, or too much is on the way")

// ErrForgot says that the leader knows of entries here that are not here: the disk
// was emptied, or an old copy put back. This server may have voted as well and not
// know it; it must not take part any more.
var ErrForgot = errors.New("replica: the disk of this server has lost entries that it had confirmed: take the server out of the group, empty its state, and let it join under a new id")

// New returns a replica that goes on from what was found on disk.
func New(c Config, found Initial) (*Replica, error) {
	if (found.Snapshot.GetIndex() == 0) != (len(found.Snapshot.GetConfState().GetVoters()) == 0) {
		return nil, errors.New("replica: without a snapshot that has voters there is no group to be part of")
	}
	l := &log{hard: found.Hard}
	l.install(found.Snapshot)
	l.append(found.Entries)
	l.members = found.Snapshot.GetConfState()
	r := &Replica{id: c.ID, log: l, conf: found.Snapshot.GetConfState(), applied: l.start, reads: map[string]uint64{}, appended: l.bytes, electionTicks: c.ElectionTicks, heard: map[uint64]uint64{}}
	node, err := raft.NewRawNode(&raft.Config{
		ID: c.ID, ElectionTick: c.ElectionTicks, HeartbeatTick: c.HeartbeatTicks, Storage: l, Applied: l.start.index,
		AsyncStorageWrites: true, MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: maxApplyBytes,
		MaxUncommittedEntriesSize: maxUncommittedBytes, MaxInflightMsgs: maxInflightMessages, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, StepDownOnRemoval: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, Logger: c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	r.node = node
	r.noteMembers(r.applied)
	return r, nil
}

// Tick is called once per tick.
func (r *Replica) Tick() {
	r.ticks++
	r.node.Tick()
	r.leaveJoint()
	r.forgetSilent()
}

// Rests reports whether ticks do nothing, however many: this server is all of its group
// and leads it, so that it owes nobody a heartbeat, and nothing is under way. That ends
// with the next call that brings something.
func (r *Replica) Rests() bool {
	c := r.conf
	alone := len(c.GetVoters()) == 1 && c.GetVoters()[0] == r.id && len(c.GetLearners()) == 0 && len(c.GetLearnersNext()) == 0 && !r.joint()
	return alone && r.now().Leads() && !r.node.HasReady() && r.applied.index == r.log.last() && len(r.appending) == 0 && len(r.applying) == 0 &&
		len(r.held) == 0 && len(r.reads) == 0 && r.arrived == nil && !r.changeOpen() && !r.open.asked && len(r.decided) == 0
}

// silentElections is how long a leader may be silent, in elections: at the end of
// that each voter has stood for election.
const silentElections = 2

// forgetSilent forgets a leader that is silent if this server has no vote. It never
// stands for election, so that it would believe in its last leader for ever, though it
// was cut off, or removed without a word.
func (r *Replica) forgetSilent() {
	now := r.now()
	if now.Leader == 0 || now.Role != raft.StateFollower || r.ticks-r.heard[now.Leader] < silentElections*uint64(r.electionTicks) {
		return
	}
	if !slices.Contains(r.conf.GetVoters(), r.id) && !slices.Contains(r.conf.GetVotersOutgoing(), r.id) {
		_ = r.node.ForgetLeader() // a follower takes it
	}
}

// Campaign begins an election; without a quorum that has lost its leader as well
// it changes nothing.
func (r *Replica) Campaign() error { return r.node.Campaign() }

// ForgetLeader makes this follower ready to vote before its leader is silent for
// an election's time. It needs hard evidence that the leader is gone.
func (r *Replica) ForgetLeader() error { return r.node.ForgetLeader() }

// Transfer hands the leadership to another voter, if this server leads.
func (r *Replica) Transfer(to uint64) { r.node.TransferLeader(to) }

// Step takes a message of another server.
func (r *Replica) Step(m *pb.Message) error {
	if raft.IsLocalMsgTarget(m.GetFrom()) {
		return errors.New("replica: a message of a server that cannot be")
	}
	switch {
	case r.forgot(m):
		return ErrForgot
	case m.GetType() == pb.MsgReadIndex && r.early():
		return nil // it is asked again
	case m.GetType() == pb.MsgSnap && len(r.applying) > 0:
		// The library takes the members of the snapshot at once, and would change them
		// by entries before it, which are being applied.
		r.arrived = m
		return nil
	}
	if news, is := r.onlyNews(m); is {
		r.needless = append(r.needless, news)
	}
	err := r.node.Step(r.grants(m))
	if err == nil {
		r.heard[m.GetFrom()] = r.ticks
	}
	if errors.Is(err, raft.ErrProposalDropped) {
		return ErrDropped
	}
	return err
}

// forgot reports whether a message is about entries that this server said it has,
// and has not.
func (r *Replica) forgot(m *pb.Message) bool {
	return m.GetType() == pb.MsgHeartbeat && m.GetTerm() >= r.now().Term && m.GetCommit() > r.log.last()
}

// Unreachable says that messages to a server are lost.
func (r *Replica) Unreachable(id uint64) { r.node.ReportUnreachable(id) }

// SnapshotSent says how the transport of a snapshot ended.
func (r *Replica) SnapshotSent(id uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	r.node.ReportSnapshot(id, status)
}

// Propose asks to commit an entry; it wraps ErrDropped if it is not taken.
func (r *Replica) Propose(data []byte) error {
	if err := r.node.Propose(data); err != nil {
		return fmt.Errorf("%w: %w", ErrDropped, err)
	}
	return nil
}

// Read asks for the index of a linearizable read and returns what Confirmed will
// name it by. It may stay without an answer: then it is asked again, and the old
// one is forgotten.
func (r *Replica) Read() uint64 {
	r.tries++
	ctx := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.id), r.tries)
	r.reads[string(ctx)] = r.tries
	if r.early() {
		r.postponed = append(r.postponed, ctx)
	} else {
		r.node.ReadIndex(ctx)
	}
	return r.tries
}

// early reports whether this server is the only voter and has not applied an entry
// of its term yet. Until then it does not know all that is committed: how far that
// goes is not always on disk. Of a leader of many the library knows that, and lets
// reads wait; to the only voter it gives an answer.
func (r *Replica) early() bool {
	return len(r.conf.GetVoters()) == 1 && r.now().Leads() && r.applied.term != r.now().Term
}

// askPostponed asks for the reads that came too early.
func (r *Replica) askPostponed() {
	if len(r.postponed) == 0 || r.early() {
		return
	}
	for _, ctx := range r.postponed {
		if _, waits := r.reads[string(ctx)]; waits {
			r.node.ReadIndex(ctx)
		}
	}
	r.postponed = nil
}

// ForgetRead says that nobody waits for a read any more.
func (r *Replica) ForgetRead(read uint64) {
	delete(r.reads, string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.id), read)))
}

// Ready returns what is to be done; false if nothing is.
func (r *Replica) Ready() (Ready, bool) {
	var out Ready
	out.Send, r.held = r.held, nil
	if r.node.HasReady() {
		r.take(&out, r.node.Ready())
	}
	if now := r.now(); now != r.state {
		r.noteState(now)
		r.state = now
		out.State = &now
	}
	out.Done, r.decided = r.decided, nil
	return out, out.Append != nil || out.Apply != nil || len(out.Send) > 0 || len(out.Reads) > 0 || out.State != nil || len(out.Done) > 0
}

func (r *Replica) take(out *Ready, rd raft.Ready) {
	var asks []*pb.Message
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			out.Append = &Append{Batch: batch(m), message: m}
			if !raft.IsEmptySnap(m.GetSnapshot()) {
				out.Append.Snapshot = m.GetSnapshot().GetMetadata()
			}
			r.noteAppend(m.GetEntries())
			r.appending = append(r.appending, out.Append)
		case m.GetTo() == raft.LocalApplyThread:
			out.Apply = &Apply{Entries: m.GetEntries(), message: m}
			r.applying = append(r.applying, out.Apply)
		case m.GetType() == pb.MsgVote:
			asks = append(asks, m)
		default:
			out.Send = append(out.Send, m)
		}
	}
	r.hold(out, asks)
	for _, s := range rd.ReadStates {
		if read, waits := r.reads[string(s.RequestCtx)]; waits {
			delete(r.reads, string(s.RequestCtx))
			out.Reads = append(out.Reads, Confirmed{Read: read, Index: s.Index})
		}
	}
}

// hold keeps requests for votes until this server's own vote is on disk, with the term
// that it is for.
//
// Invariant: a server that leads never forgets the term. The library lets others elect
// it before that: after a crash it could be elected in the same term again, by the
// same votes, and write other entries under the indices that it had given out already.
func (r *Replica) hold(out *Ready, asks []*pb.Message) {
	if n := len(r.appending); n > 0 {
		last := r.appending[n-1]
		last.asks = append(last.asks, asks...)
		return
	}
	out.Send = append(out.Send, asks...)
}

func (r *Replica) now() State {
	s := r.node.BasicStatus()
	return State{Term: s.HardState.GetTerm(), Leader: s.Lead, Role: s.RaftState}
}

// batch is what an append message writes.
func batch(m *pb.Message) wal.Batch {
	var b wal.Batch
	if s := m.GetSnapshot().GetMetadata(); s.GetIndex() > 0 {
		b.Mark = &wal.Mark{Index: s.GetIndex(), Term: s.GetTerm(), Reset: true}
	}
	if m.Term != nil && m.Vote != nil {
		b.Hard = &wal.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
	}
	for _, e := range m.GetEntries() {
		b.Entries = append(b.Entries, wal.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: uint8(e.GetType()), Data: e.GetData()})
	}
	return b
}

// Entry is the entry of the group that one of the log on disk was written for.
func Entry(e wal.Entry) *pb.Entry {
	return &pb.Entry{Index: new(e.Index), Term: new(e.Term), Type: pb.EntryType(e.Kind).Enum(), Data: e.Data}
}

// Appended says that the append given out first, of those not reported, is on
// disk.
func (r *Replica) Appended(a *Append) error {
	if len(r.appending) == 0 || r.appending[0] != a {
		return errors.New("replica: appends were carried out in another order")
	}
	r.appending = r.appending[1:]
	if a.Snapshot != nil {
		if len(r.applying) > 0 {
			return errors.New("replica: a snapshot was put in force while entries before it were applied")
		}
		r.log.install(a.Snapshot)
		r.conf = a.Snapshot.GetConfState()
		r.log.members = r.conf
		r.applied = r.log.start
		r.noteMembers(r.applied)
		r.appended = 0
		r.noteInstalled(r.applied.index)
	}
	for _, e := range a.message.GetEntries() {
		r.appended += uint64(len(e.GetData()))
	}
	r.log.append(a.message.GetEntries())
	r.held = append(r.held, a.asks...)
	return r.respond(a.message)
}

// Applied says that the apply given out first, of those not reported, is done.
func (r *Replica) Applied(a *Apply) error {
	if len(r.applying) == 0 || r.applying[0] != a {
		return errors.New("replica: applies were carried out in another order")
	}
	r.applying = r.applying[1:]
	for _, e := range a.Entries {
		if err := r.change(e); err != nil {
			return err
		}
		r.applied = position{e.GetIndex(), e.GetTerm()}
		r.noteApplied(e)
	}
	r.askPostponed()
	if err := r.respond(a.message); err != nil {
		return err
	}
	if m := r.arrived; m != nil && len(r.applying) == 0 {
		r.arrived = nil
		_ = r.Step(m) // one that is of no use any more is lost, as on the way
	}
	return nil
}

// change puts a change of the membership into force.
func (r *Replica) change(e *pb.Entry) error {
	switch e.GetType() {
	case pb.EntryNormal:
		return nil
	case pb.EntryConfChangeV2:
		c, err := changeOf(e)
		if err != nil {
			return err
		}
		r.conf = r.node.ApplyConfChange(c)
		r.log.members = r.conf
		r.noteMembers(position{e.GetIndex(), e.GetTerm()})
		return nil
	}
	return fmt.Errorf("replica: entry %d is of type %v, which is not used", e.GetIndex(), e.GetType())
}

func changeOf(e *pb.Entry) (*pb.ConfChangeV2, error) {
	c := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, fmt.Errorf("replica: the change of the membership in entry %d: %w", e.GetIndex(), err)
	}
	return c, nil
}

// respond delivers the messages that waited for a write.
func (r *Replica) respond(m *pb.Message) error {
	for _, answer := range m.GetResponses() {
		if answer.GetTo() != r.id {
			if !r.needlessAck(answer) {
				r.held = append(r.held, answer)
			}
			continue
		}
		if err := r.node.Step(answer); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			return fmt.Errorf("replica: %w", err)
		}
	}
	return nil
}

// Snapshot is where a snapshot of the state machine would be, which has applied
// all that Applied was called for.
func (r *Replica) Snapshot() *pb.SnapshotMetadata {
	return &pb.SnapshotMetadata{Index: new(r.applied.index), Term: new(r.applied.term), ConfState: r.conf}
}

// Saved says that a snapshot is on disk: entries before it are forgotten, but for
// about trailingBytes of them.
func (r *Replica) Saved(m *pb.SnapshotMetadata, trailingBytes uint64) {
	if m.GetIndex() <= r.log.snapshot.GetIndex() {
		return
	}
	r.log.snapshot, r.log.asked = m, false
	r.log.compact(m.GetIndex(), trailingBytes)
	r.appended = 0
}

// Trim forgets entries that were applied, though no snapshot has them: they are on
// disk, for a restart. About trailingBytes stay, and what a member lacks if this
// server leads. So that it is done rarely, it is when there are twice as many.
func (r *Replica) Trim(trailingBytes uint64) {
	if r.log.bytes <= 2*trailingBytes {
		return
	}
	upTo := r.applied.index
	if r.now().Leads() {
		r.node.WithProgress(func(_ uint64, _ raft.ProgressType, p tracker.Progress) { upTo = min(upTo, p.Match) })
	}
	r.log.compact(upTo, trailingBytes)
}

// NeedsSnapshot reports whether a member waits for a snapshot, and there is none
// that it could use: it takes none that it is no member of, and none without the
// entries after it.
func (r *Replica) NeedsSnapshot() bool { return r.log.asked && r.log.outdated() }

// AppendedBytes returns how much was written to the log since the last snapshot.
func (r *Replica) AppendedBytes() uint64 { return r.appended }

// State returns what this server is.
func (r *Replica) State() State { return r.now() }

// Conf returns the membership that is in force.
func (r *Replica) Conf() *pb.ConfState { return r.conf }

// AppliedIndex returns the index of the last entry that Applied was called for.
func (r *Replica) AppliedIndex() uint64 { return r.applied.index }

// CommitIndex returns the last entry that is known here to be committed.
func (r *Replica) CommitIndex() uint64 { return r.node.BasicStatus().HardState.GetCommit() }

// SavedIndex returns where the newest snapshot is.
func (r *Replica) SavedIndex() uint64 { return r.log.snapshot.GetIndex() }

// Status returns what the leader knows of the others.
func (r *Replica) Status() raft.Status { return r.node.Status() }
