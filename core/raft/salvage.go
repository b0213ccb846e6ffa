package raft

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
)

// ErrNothing says that a server has nothing that another group could begin with.
var ErrNothing = errors.New("raft: this server never was a member of its group, and has nothing of it: recover on one that was")

// Salvaged is what the disk of a server has.
type Salvaged struct {
	// Machine has all that is in the log applied, up to its last entry.
	Machine *store.Machine
	// Commit is the last entry that this server knew to be committed, and Last the
	// last in its log.
	Commit, Last uint64
	Voters       []uint64 // of the last membership that is in a snapshot
}

// Salvage reads the state of a server that does not run and of which the group is
// lost. Config needs ID, Cluster and Disk.
//
// All of the log counts, also behind what this server knew to be committed. (etcd's
// --force-new-cluster drops that part.) A write that was acknowledged is in the logs of
// a majority, and this may be the last of them; but that it is committed a follower
// learns with the next message only, and notes on disk with the next write. So to
// drop that part would lose what was promised. What is kept beside that, though no
// majority ever had it, was promised to nobody: its client heard nothing, or that the
// outcome is not known.
func Salvage(c Config) (Salvaged, error) {
	c.Sizes.complete()
	snaps, err := snap.Open(c.Disk)
	if err != nil {
		return Salvaged{}, err
	}
	log, found, err := wal.Open(c.Disk, wal.Options{SegmentBytes: c.Sizes.SegmentBytes})
	if errors.Is(err, wal.ErrNoLog) {
		return Salvaged{}, ErrNoState
	}
	if err != nil {
		return Salvaged{}, err
	}
	o := opened{log: log, snaps: snaps}
	if err := errors.Join(o.read(&c, found), log.Close()); err != nil {
		return Salvaged{}, err
	}
	out := Salvaged{
		Machine: o.machine, Commit: found.Hard.Commit, Last: o.initial.Snapshot.GetIndex(),
		Voters: o.initial.Snapshot.GetConfState().GetVoters(),
	}
	for _, e := range o.initial.Entries {
		out.Last = max(out.Last, e.GetIndex())
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 || e.GetIndex() <= o.initial.Snapshot.GetIndex() {
			continue
		}
		commands, err := store.DecodeCommands(e.GetData())
		if err != nil {
			return Salvaged{}, fmt.Errorf("raft: entry %d: %w", e.GetIndex(), err)
		}
		out.Machine.Apply(e.GetIndex(), e.GetTerm(), commands)
	}
	if out.Last == 0 {
		return Salvaged{}, ErrNothing
	}
	return out, nil
}
