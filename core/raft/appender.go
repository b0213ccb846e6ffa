package raft

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/raft/wal"
)

// appendJob is one write to the log: of the replica, or the mark of a snapshot.
type appendJob struct {
	append *replica.Append
	mark   *wal.Mark
	marked chan error
}

// keptSnapshots is how many snapshots stay on disk: the newest, and one that may
// still be on its way to somebody.
const keptSnapshots = 2

// appender owns the log on disk.
func (h *Host) appender() {
	stall := newStall(h)
	for {
		jobs := h.appends.take(h.stop)
		if jobs == nil {
			return
		}
		for len(jobs) > 0 {
			n, batch := joined(jobs)
			stall.begins()
			err := h.write(jobs[:n], batch)
			stall.ends()
			if err != nil {
				h.report(report{failed: err})
				return
			}
			jobs = jobs[n:]
		}
	}
}

// joined returns how many of the jobs make one write, and that.
func joined(jobs []appendJob) (n int, b wal.Batch) {
	for _, j := range jobs {
		if j.append == nil || j.append.Snapshot != nil {
			break
		}
		next := j.append.Batch
		if len(b.Entries) > 0 && len(next.Entries) > 0 && next.Entries[0].Index != b.Entries[len(b.Entries)-1].Index+1 {
			break
		}
		if next.Hard != nil {
			b.Hard = next.Hard
		}
		b.Entries = append(b.Entries, next.Entries...)
		if n++; len(b.Entries) > 0 && n >= 64 {
			break
		}
	}
	if n > 0 {
		return n, b
	}
	if first := jobs[0].append; first != nil {
		return 1, first.Batch
	}
	return 1, wal.Batch{Mark: jobs[0].mark}
}

func (h *Host) write(jobs []appendJob, b wal.Batch) error {
	if m := jobs[0].mark; m != nil && m.Index <= h.log.Mark().Index {
		// While this server wrote a snapshot it was sent a newer one.
		close(jobs[0].marked)
		return nil
	}
	if first := jobs[0].append; first != nil && first.Snapshot != nil {
		// The state machine first: once the log says so, it is what a restart begins
		// with.
		if err := h.install(first.Snapshot); err != nil {
			return err
		}
	}
	if !h.postponed(&b) {
		done := h.metrics.timeAppend()
		if err := h.log.Append(b); err != nil {
			return fmt.Errorf("raft: the log cannot be written: %w", err)
		}
		done(len(b.Entries))
	}
	if b.Mark != nil {
		if _, err := h.log.Forget(); err != nil {
			return fmt.Errorf("raft: old parts of the log cannot be removed: %w", err)
		}
		if err := h.snaps.Keep(keptSnapshots, b.Mark.Index); err != nil {
			return fmt.Errorf("raft: old snapshots cannot be removed: %w", err)
		}
	}
	for _, j := range jobs {
		if j.append == nil {
			close(j.marked)
			continue
		}
		h.report(report{appended: j.append})
	}
	return nil
}

// postponed reports whether a write can wait for the next one, as it says nothing
// but how far the group has committed. After a crash whoever leads finds that out
// anew; what must not be lost is entries, terms and votes. It goes with the next
// write, so that a mark is never ahead of it.
func (h *Host) postponed(b *wal.Batch) bool {
	if b.Mark == nil && len(b.Entries) == 0 && b.Hard != nil && onlyCommits(h.log.Hard(), b.Hard) {
		h.late.Store(b.Hard)
		return true
	}
	if late := h.late.Swap(nil); b.Hard == nil {
		b.Hard = late
	}
	return false
}

func onlyCommits(on wal.HardState, next *wal.HardState) bool {
	return next.Term == on.Term && next.Vote == on.Vote
}

// needless carries out a write at once that can wait for the next one, or is none at all,
// if there is none before it that is not on disk; false: the appender is to do it.
func (h *Host) needless(a *replica.Append) (bool, error) {
	hard := a.Batch.Hard
	if h.writes > 0 || a.Snapshot != nil || len(a.Batch.Entries) > 0 || hard != nil && !onlyCommits(h.queued, hard) {
		if hard != nil {
			h.queued = *hard
		}
		h.writes++
		return false, nil
	}
	if hard != nil {
		h.late.Store(hard)
	}
	return true, h.replica.Appended(a)
}

// install has the applier go on from a snapshot that came in.
func (h *Host) install(of *pb.SnapshotMetadata) error {
	done := make(chan error, 1)
	h.applies.add(applyJob{install: of, installed: done})
	select {
	case err := <-done:
		return err
	case <-h.stop:
		return ErrStopped
	}
}

// save writes a snapshot, and the mark for it into the log.
func (h *Host) save(of *pb.SnapshotMetadata, view viewer) {
	var size uint64
	meta, err := metaOf(h.cfg.Cluster, of)
	if err == nil {
		err = h.snaps.Save(meta, func(yield func([]byte) error) error {
			return view.Encode(func(p []byte) error {
				select {
				case <-h.stop:
					return ErrStopped
				default:
				}
				size += uint64(len(p))
				return yield(p)
			})
		})
	}
	if err != nil {
		if !errors.Is(err, ErrStopped) {
			h.report(report{missed: err})
		}
		return
	}
	marked := make(chan error)
	h.appends.add(appendJob{mark: &wal.Mark{Index: of.GetIndex(), Term: of.GetTerm()}, marked: marked})
	select {
	case <-marked:
		h.metrics.snapshots.WithLabelValues("made").Inc()
		h.report(report{saved: of, bytes: size})
	case <-h.stop:
	}
}

// viewer is what a snapshot is written of.
type viewer interface {
	Encode(yield func([]byte) error) error
}

// report tells the loop.
func (h *Host) report(r report) {
	select {
	case h.reports <- r:
	case <-h.stop:
	}
}
