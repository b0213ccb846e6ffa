package raft

import (
	"errors"
	"fmt"
	"math"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
)

// opened is what is on disk.
type opened struct {
	log     *wal.Log
	snaps   *snap.Store
	machine *store.Machine
	initial replica.Initial
}

// origin is where the log of every group begins: a snapshot of nothing, which
// says who takes part (etcd/raft, Bootstrap: "set up a Storage that has a first
// index > 1").
const origin = 1

// open reads the state, or makes that of a new group.
func open(c *Config) (opened, error) {
	snaps, err := snap.Open(c.Disk)
	if err != nil {
		return opened{}, err
	}
	o := opened{snaps: snaps}
	log, found, err := wal.Open(c.Disk, wal.Options{SegmentBytes: c.Sizes.SegmentBytes})
	if errors.Is(err, wal.ErrNoLog) {
		if len(c.Voters) == 0 && !c.Join {
			return opened{}, ErrNoState
		}
		if log, found, err = create(c, snaps, store.NewMachine().View()); err != nil {
			return opened{}, err
		}
	}
	if err != nil {
		return opened{}, err
	}
	o.log = log
	if err := o.read(c, found); err != nil {
		return opened{}, errors.Join(err, log.Close())
	}
	if found.CutBytes > 0 {
		c.Log.Info("a write that a crash cut short was cut off the log", "bytes", found.CutBytes)
	}
	return o, nil
}

// identity is what the log says whose it is.
func (c *Config) identity() []byte { return fmt.Appendf(nil, "%s/%016x", c.Cluster, c.ID) }

// Create makes the state of one server of a new group that begins with a given
// state, which it takes, and opens nothing. Config needs ID, Cluster, Voters and
// Disk; all servers of the group are given the same state. ErrHasState if there is
// state on disk.
func Create(c Config, begin *store.Machine) error {
	c.Sizes.complete()
	snaps, err := snap.Open(c.Disk)
	if err != nil {
		return err
	}
	log, _, err := wal.Open(c.Disk, wal.Options{SegmentBytes: c.Sizes.SegmentBytes})
	if err == nil {
		return errors.Join(ErrHasState, log.Close())
	}
	if !errors.Is(err, wal.ErrNoLog) {
		return err
	}
	begin.Rebase(origin, origin)
	if log, _, err = create(&c, snaps, begin.View()); err != nil {
		return err
	}
	return log.Close()
}

// create makes the state of a new group, or of a server that joins one: that has
// nothing of what a group begins with. The log comes last: until it is there, there
// is no state, and a snapshot is one of a beginning that did not come to its end.
func create(c *Config, snaps *snap.Store, begin *store.View) (*wal.Log, wal.Recovered, error) {
	voters := slices.Sorted(slices.Values(c.Voters))
	first := uint64(origin)
	if len(voters) == 0 {
		first = 0
	}
	meta := &pb.SnapshotMetadata{Index: new(first), Term: new(first), ConfState: &pb.ConfState{Voters: voters}}
	m, err := metaOf(c.Cluster, meta)
	if err != nil {
		return nil, wal.Recovered{}, err
	}
	if err := snaps.Keep(0, math.MaxUint64); err != nil {
		return nil, wal.Recovered{}, err
	}
	if err := snaps.Save(m, begin.Encode); err != nil {
		return nil, wal.Recovered{}, err
	}
	found := wal.Recovered{Meta: c.identity(), Mark: wal.Mark{Index: first, Term: first}, Hard: wal.HardState{Term: first, Commit: first}}
	log, err := wal.Create(c.Disk, found.Meta, found.Mark, found.Hard, wal.Options{SegmentBytes: c.Sizes.SegmentBytes})
	return log, found, err
}

// read makes the state machine of the snapshot that the log goes on from.
func (o *opened) read(c *Config, found wal.Recovered) error {
	if string(found.Meta) != string(c.identity()) {
		return fmt.Errorf("raft: the state on disk is of %q, and this server is %q: it was copied, or the secret or name of the cluster changed; give every server a state directory of its own", found.Meta, c.identity())
	}
	meta, data, err := o.snaps.Load(found.Mark.Index, found.Mark.Term)
	if err != nil {
		return err
	}
	if o.machine, err = store.Decode(data); err != nil {
		return err
	}
	conf := &pb.ConfState{}
	if err := proto.Unmarshal(meta.Membership, conf); err != nil {
		return fmt.Errorf("raft: the membership in the snapshot of entry %d: %w", meta.Index, err)
	}
	o.initial = replica.Initial{
		Hard:     &pb.HardState{Term: new(found.Hard.Term), Vote: new(found.Hard.Vote), Commit: new(found.Hard.Commit)},
		Snapshot: &pb.SnapshotMetadata{Index: new(meta.Index), Term: new(meta.Term), ConfState: conf},
	}
	for _, e := range found.Entries {
		o.initial.Entries = append(o.initial.Entries, replica.Entry(e))
	}
	return nil
}

// metaOf describes a snapshot for its file.
func metaOf(cluster string, m *pb.SnapshotMetadata) (snap.Meta, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetConfState())
	if err != nil {
		return snap.Meta{}, fmt.Errorf("raft: %w", err)
	}
	return snap.Meta{Cluster: cluster, Index: m.GetIndex(), Term: m.GetTerm(), Membership: conf}, nil
}
