package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
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
	Hard     *pb.HardState
	Snapshot *pb.SnapshotMetadata // that the state machine was made from; never nil
	Entries  []*pb.Entry          // after it
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
	state    State
	// applying are the appends and applies that Ready gave out and nobody
	// reported yet, in their order.
	appending []*Append
	applying  []*Apply
}

// Ready is what is to be done.
type Ready struct {
	Append *Append
	Apply  *Apply
	Send   []*pb.Message
	Reads  []Confirmed
	State  *State // if it changed
}

// Append is one write to the log.
type Append struct {
	Batch wal.Batch
	// Snapshot, unless nil, replaces the state machine and all of the log before
	// it: its file is here already. Batch has the mark for it. It waits until all
	// applies that were given out before are done: they are of what it replaces.
	Snapshot *pb.SnapshotMetadata

	message *pb.Message
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

// New returns a replica that goes on from what was found on disk.
func New(c Config, found Initial) (*Replica, error) {
	if found.Snapshot.GetIndex() == 0 || len(found.Snapshot.GetConfState().GetVoters()) == 0 {
		return nil, errors.New("replica: without a snapshot that has voters there is no group to be part of")
	}
	l := &log{hard: found.Hard}
	l.install(found.Snapshot)
	l.append(found.Entries)
	r := &Replica{id: c.ID, log: l, conf: found.Snapshot.GetConfState(), applied: l.start, reads: map[string]uint64{}, appended: l.bytes}
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
	return r, nil
}

// Tick is called once per tick.
func (r *Replica) Tick() { r.node.Tick() }

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
	err := r.node.Step(m)
	if errors.Is(err, raft.ErrProposalDropped) {
		return ErrDropped
	}
	return err
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

// ProposeChange asks to change the membership.
func (r *Replica) ProposeChange(c *pb.ConfChangeV2) error {
	if err := r.node.ProposeConfChange(c); err != nil {
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
	r.node.ReadIndex(ctx)
	return r.tries
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
		r.state = now
		out.State = &now
	}
	return out, out.Append != nil || out.Apply != nil || len(out.Send) > 0 || len(out.Reads) > 0 || out.State != nil
}

func (r *Replica) take(out *Ready, rd raft.Ready) {
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			out.Append = &Append{Batch: batch(m), message: m}
			if !raft.IsEmptySnap(m.GetSnapshot()) {
				out.Append.Snapshot = m.GetSnapshot().GetMetadata()
			}
			r.appending = append(r.appending, out.Append)
		case raft.LocalApplyThread:
			out.Apply = &Apply{Entries: m.GetEntries(), message: m}
			r.applying = append(r.applying, out.Apply)
		default:
			out.Send = append(out.Send, m)
		}
	}
	for _, s := range rd.ReadStates {
		if read, waits := r.reads[string(s.RequestCtx)]; waits {
			delete(r.reads, string(s.RequestCtx))
			out.Reads = append(out.Reads, Confirmed{Read: read, Index: s.Index})
		}
	}
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
		r.applied = r.log.start
		r.appended = 0
	}
	for _, e := range a.message.GetEntries() {
		r.appended += uint64(len(e.GetData()))
	}
	r.log.append(a.message.GetEntries())
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
	}
	return r.respond(a.message)
}

// change puts a change of the membership into force.
func (r *Replica) change(e *pb.Entry) error {
	switch e.GetType() {
	case pb.EntryNormal:
		return nil
	case pb.EntryConfChangeV2:
		c := &pb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), c); err != nil {
			return fmt.Errorf("replica: the change of the membership in entry %d: %w", e.GetIndex(), err)
		}
		r.conf = r.node.ApplyConfChange(c)
		return nil
	}
	return fmt.Errorf("replica: entry %d is of type %v, which is not used", e.GetIndex(), e.GetType())
}

// respond delivers the messages that waited for a write.
func (r *Replica) respond(m *pb.Message) error {
	for _, answer := range m.GetResponses() {
		if answer.GetTo() != r.id {
			r.held = append(r.held, answer)
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
	r.log.snapshot = m
	r.log.compact(m.GetIndex(), trailingBytes)
	r.appended = 0
}

// AppendedBytes returns how much was written to the log since the last snapshot.
func (r *Replica) AppendedBytes() uint64 { return r.appended }

// State returns what this server is.
func (r *Replica) State() State { return r.now() }

// Conf returns the membership that is in force.
func (r *Replica) Conf() *pb.ConfState { return r.conf }

// AppliedIndex returns the index of the last entry that Applied was called for.
func (r *Replica) AppliedIndex() uint64 { return r.applied.index }

// Status returns what the leader knows of the others.
func (r *Replica) Status() raft.Status { return r.node.Status() }
