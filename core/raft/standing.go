package raft

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/raft/replica"
)

// Standing is how a server stands, and on the leader the whole group.
type Standing struct {
	Commit   uint64 // last entry that this server knows to be committed
	Applied  uint64 // last entry applied, which may be one that the state knows nothing of
	Snapshot uint64 // index of the newest snapshot
	// LogBytes is what the log takes on disk: more than is in it, as room is made
	// ahead.
	LogBytes uint64
	// Joint is JointSince's.
	Joint time.Time
	// Members are those that take part, as the leader knows them; nil if this server
	// does not lead.
	Members []replica.Member
	// Low are the voters with little room on their disks, and NoSpace says that
	// therefore nothing is written. A server that does not lead knows its own disk
	// only.
	Low     []uint64
	NoSpace bool
}

// Standing returns how this server stands; ErrStopped if it does not run any more.
func (h *Host) Standing() (Standing, error) {
	out := Standing{Joint: h.JointSince(), LogBytes: h.logBytes()}
	err := h.ask(func() {
		out.Members = h.replica.Members()
		out.Commit, out.Applied, out.Snapshot = h.replica.CommitIndex(), h.replica.AppliedIndex(), h.replica.SavedIndex()
	})
	out.Low, _ = h.room.lowOnes()
	out.NoSpace = out.Members != nil && h.room.gone()
	return out, err
}

// logBytes adds up the files of the log. What cannot be looked at counts as nothing:
// it may be gone by now.
func (h *Host) logBytes() uint64 {
	names, err := h.cfg.Disk.List()
	if err != nil {
		return 0
	}
	var sum uint64
	for _, name := range names {
		if !strings.HasSuffix(name, walSuffix) {
			continue
		}
		f, err := h.cfg.Disk.Open(name)
		if err != nil {
			continue
		}
		if size, err := f.Size(); err == nil {
			sum += uint64(size)
		}
		_ = f.Close()
	}
	return sum
}

// walSuffix is how the names of the log's files end: see package wal.
const walSuffix = ".wal"
