package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// log is what of the Raft log is on disk, in memory. It implements raft.Storage.
type log struct {
	hard *pb.HardState // as it was found; Raft asks once
	// snapshot is the newest one there is.
	snapshot *pb.SnapshotMetadata
	members  *pb.ConfState // in force
	asked    bool          // for a snapshot, in vain
	// Invariant: entries are contiguous and begin right after start, whose term is
	// known although the entry is not.
	start   position
	entries []*pb.Entry
	bytes   uint64 // of entries
}

type position struct{ index, term uint64 }

var _ raft.Storage = (*log)(nil)

// InitialState implements raft.Storage.
func (l *log) InitialState() (*pb.HardState, *pb.ConfState, error) {
	conf := l.snapshot.GetConfState()
	if conf == nil {
		conf = &pb.ConfState{}
	}
	return l.hard, conf, nil
}

// Entries implements raft.Storage.
func (l *log) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	switch {
	case lo <= l.start.index:
		return nil, raft.ErrCompacted
	case hi > l.last()+1:
		return nil, raft.ErrUnavailable
	}
	found := l.entries[lo-l.start.index-1 : hi-l.start.index-1]
	size := uint64(0)
	for i, e := range found {
		if size += uint64(proto.Size(e)); size > maxSize && i > 0 {
			found = found[:i]
			break
		}
	}
	return slices.Clip(found), nil
}

// Term implements raft.Storage.
func (l *log) Term(i uint64) (uint64, error) {
	switch {
	case i < l.start.index:
		return 0, raft.ErrCompacted
	case i == l.start.index:
		return l.start.term, nil
	case i > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.entries[i-l.start.index-1].GetTerm(), nil
}

// LastIndex implements raft.Storage.
func (l *log) LastIndex() (uint64, error) { return l.last(), nil }

// FirstIndex implements raft.Storage.
func (l *log) FirstIndex() (uint64, error) { return l.start.index + 1, nil }

// Snapshot implements raft.Storage. Only what it is of goes with the message; the
// transport sends the file.
func (l *log) Snapshot() (*pb.Snapshot, error) {
	if l.snapshot.GetIndex() == 0 || l.outdated() {
		l.asked = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: l.snapshot}, nil
}

// outdated reports whether the snapshot cannot be sent: a member would not take it,
// or could not go on from it by the entries that are here.
func (l *log) outdated() bool { return l.snapshot.GetIndex() < l.start.index || l.lacksMember() }

// lacksMember reports whether the snapshot is from before a member was one.
func (l *log) lacksMember() bool {
	of := l.snapshot.GetConfState()
	had := slices.Concat(of.GetVoters(), of.GetLearners(), of.GetVotersOutgoing())
	now := slices.Concat(l.members.GetVoters(), l.members.GetLearners())
	return slices.ContainsFunc(now, func(id uint64) bool { return !slices.Contains(had, id) })
}

func (l *log) last() uint64 { return l.start.index + uint64(len(l.entries)) }

// append replaces the entries from the first one on.
func (l *log) append(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	if first := entries[0].GetIndex(); first <= l.start.index {
		// They were compacted while they were written once more.
		skip := min(l.start.index-first+1, uint64(len(entries)))
		if entries = entries[skip:]; len(entries) == 0 {
			return
		}
	}
	keep := entries[0].GetIndex() - l.start.index - 1
	for _, e := range l.entries[keep:] {
		l.bytes -= uint64(len(e.GetData()))
	}
	// Slices that Entries gave out are not written to: what is replaced gets a new
	// array, and beyond the end there was nothing to give out.
	kept := l.entries[:keep]
	if keep < uint64(len(l.entries)) {
		kept = slices.Clip(kept)
	}
	l.entries = append(kept, entries...)
	for _, e := range entries {
		l.bytes += uint64(len(e.GetData()))
	}
}

// install makes a snapshot all there is.
func (l *log) install(m *pb.SnapshotMetadata) {
	l.snapshot = m
	l.start = position{m.GetIndex(), m.GetTerm()}
	l.entries, l.bytes = nil, 0
}

// compact forgets entries up to an index, but not those that fit into so many
// bytes: followers that are not far behind get entries, not snapshots.
func (l *log) compact(index, trailingBytes uint64) {
	n, size := uint64(0), l.bytes
	for n < uint64(len(l.entries)) && l.start.index+n+1 <= index && size > trailingBytes {
		size -= uint64(len(l.entries[n].GetData()))
		n++
	}
	if n == 0 {
		return
	}
	last := l.entries[n-1]
	l.start = position{last.GetIndex(), last.GetTerm()}
	l.entries, l.bytes = slices.Clone(l.entries[n:]), size
}
