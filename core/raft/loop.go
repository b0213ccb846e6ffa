package raft

import (
	"errors"
	"time"

	etcdraft "go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// loop owns the replica.
func (h *Host) loop() {
	ticker := time.NewTicker(h.tick())
	defer ticker.Stop()
	l := loopState{h: h, readers: newReaders(h)}
	for {
		select {
		case <-ticker.C:
			h.replica.Tick()
			l.readers.tick()
		case m := <-h.inbox:
			l.step(m)
			l.more()
		case p := <-h.proposals:
			l.propose(p)
		case r := <-h.reads:
			l.readers.add(r)
		case f := <-h.asks:
			f()
		case r := <-h.reports:
			l.report(r)
		case <-h.stop:
			return
		}
		if h.Err() != nil {
			return
		}
		l.readers.begin()
		l.ready()
	}
}

// loopState is what the loop remembers.
type loopState struct {
	h       *Host
	readers *readers
	saving  bool
	saved   uint64 // bytes of the last snapshot
}

// step takes a message. One of a server that is gone or of a term that is over is
// of no use; that is no news.
func (l *loopState) step(m *pb.Message) {
	if err := l.h.replica.Step(m); err != nil && !errors.Is(err, etcdraft.ErrStepPeerNotFound) {
		l.h.cfg.Log.Debug("a message of another server was not taken", "from", m.GetFrom(), "type", m.GetType(), "error", err)
	}
}

// more takes messages that wait already, so that they are answered together.
func (l *loopState) more() {
	for range cap(l.h.inbox) {
		select {
		case m := <-l.h.inbox:
			l.step(m)
		default:
			return
		}
	}
}

// entryBytes is about how large the entry grows that proposals are joined in.
const entryBytes = 512 << 10

// propose joins the proposals that wait into one entry.
func (l *loopState) propose(first proposal) {
	batch, size := []proposal{first}, first.size()
	for size < entryBytes {
		select {
		case p := <-l.h.proposals:
			batch, size = append(batch, p), size+p.size()
			continue
		default:
		}
		break
	}
	var commands []store.Command
	for _, p := range batch {
		commands = append(commands, p.commands...)
	}
	err := ErrNotLeader
	if l.h.replica.State().Leads() {
		err = l.h.replica.Propose(store.EncodeCommands(commands))
	}
	for _, p := range batch {
		p.taken <- err
	}
}

// ready carries out what the replica wants.
func (l *loopState) ready() {
	h := l.h
	for {
		rd, more := h.replica.Ready()
		if !more {
			return
		}
		for _, m := range rd.Send {
			l.send(m)
		}
		if rd.Append != nil {
			h.appends.add(appendJob{append: rd.Append})
		}
		if rd.Apply != nil {
			h.applies.add(applyJob{apply: rd.Apply})
		}
		for _, c := range rd.Reads {
			l.readers.confirmed(c)
		}
		if rd.State != nil {
			h.note()
			h.metrics.state(*rd.State)
			h.cfg.Log.Debug("raft state", "term", rd.State.Term, "leader", rd.State.Leader, "role", rd.State.Role.String())
		}
	}
}

func (l *loopState) send(m *pb.Message) {
	h := l.h
	if m.GetType() != pb.MsgSnap {
		h.cfg.Transport.Send(m)
		return
	}
	of := m.GetSnapshot().GetMetadata()
	meta, err := metaOf(h.cfg.Cluster, of)
	if err == nil {
		file, openErr := h.snaps.Send(of.GetIndex(), of.GetTerm())
		if err = openErr; err == nil {
			h.metrics.snapshots.WithLabelValues("sent").Inc()
			h.cfg.Transport.SendSnapshot(m, meta, file)
			return
		}
	}
	h.cfg.Log.Warn("a snapshot for another server cannot be read", "to", m.GetTo(), "error", err)
	h.replica.SnapshotSent(m.GetTo(), false)
}

// report hears of a job that is done.
func (l *loopState) report(r report) {
	h := l.h
	err := r.failed
	switch {
	case err != nil:
	case r.appended != nil:
		err = h.replica.Appended(r.appended)
		if r.appended.Snapshot != nil {
			h.note()
		}
	case r.applied != nil:
		changes := changesMembers(r.applied)
		if err = h.replica.Applied(r.applied); changes {
			h.note()
		}
		l.readers.applied(h.replica.AppliedIndex())
		l.save(r.view)
	case r.saved != nil:
		l.saving, l.saved = false, r.bytes
		h.replica.Saved(r.saved, h.cfg.Sizes.TrailingBytes)
	case r.missed != nil:
		l.saving = false
		h.cfg.Log.Warn("no snapshot was made; the log grows until one is", "error", r.missed)
	}
	if err != nil {
		h.fail(err)
	}
}

func changesMembers(a *replica.Apply) bool {
	for _, e := range a.Entries {
		if e.GetType() != pb.EntryNormal {
			return true
		}
	}
	return false
}

// save begins a snapshot if the log has grown enough since the last one. The view
// is what was applied up to what the replica has heard of.
func (l *loopState) save(view *store.View) {
	h := l.h
	if l.saving || h.replica.AppendedBytes() < max(h.cfg.Sizes.SnapshotBytes, l.saved) {
		return
	}
	l.saving = true
	of := h.replica.Snapshot()
	h.running.Go(func() { h.guarded(func() { h.save(of, view) }) })
}
