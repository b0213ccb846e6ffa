package raft

import (
	"errors"
	"slices"
	"time"

	etcdraft "go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// loop owns the replica.
func (h *Host) loop() {
	defer h.pulse.stop()
	l := loopState{h: h, readers: newReaders(h), view: h.View()}
	l.hurry()
	for {
		proposals := h.proposals
		if l.holds() {
			proposals = nil
		}
		ticked := false
		select {
		case <-h.pulse.c():
			ticked = true
			h.replica.Tick()
			l.readers.tick()
			l.tickWaiters()
			l.watchJoint()
		case m := <-h.inbox:
			l.step(m)
			l.more()
		case p := <-proposals:
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
		l.announce()
		l.ready()
		if h.replica.NeedsSnapshot() {
			l.save()
		}
		h.pulse.follow(l.rests, ticked)
	}
}

// heartbeatsAtStart is how long a server that was just started waits for a leader, at
// least, in heartbeats.
const heartbeatsAtStart = 3

// hurry lets most of the first election timeout pass at once: a leader that is there
// says so by its next heartbeat. Who is the only voter waits for nobody.
func (l *loopState) hurry() {
	h := l.h
	switch voters := h.Members().GetVoters(); {
	case !slices.Contains(voters, h.cfg.ID):
	case len(voters) == 1 && len(h.Members().GetVotersOutgoing()) == 0:
		if err := h.replica.Campaign(); err != nil {
			h.cfg.Log.Debug("the only voter does not stand for election yet", "error", err)
		}
	default:
		for range h.ticks - heartbeatsAtStart {
			h.replica.Tick()
		}
	}
	l.ready()
}

// loopState is what the loop remembers.
type loopState struct {
	h       *Host
	readers *readers
	saving  bool
	saved   uint64    // bytes of the last snapshot
	missed  time.Time // when a snapshot could not be made
	// view is what was applied up to what the replica has heard of.
	view *store.View

	ticked    uint64 // what was applied at the last tick
	announced uint64 // the last term in which this server said that it leads

	proposed bool            // the next append has an entry of proposals
	writing  *replica.Append // that has one and is on its way to the disk; nil: none

	complained time.Time // since when the change took long that was complained of
}

// tickWaiters lets the time pass of those who wait for what commands come to.
func (l *loopState) tickWaiters() {
	index := l.h.replica.AppliedIndex()
	l.h.waiters.tick(index > l.ticked, l.h.patience())
	l.ticked = index
}

// step takes a message. One of a server that is gone or of a term that is over is
// of no use; that is no news.
func (l *loopState) step(m *pb.Message) {
	err := l.h.replica.Step(m)
	switch {
	case errors.Is(err, replica.ErrForgot):
		l.h.fail(err)
	case err != nil && !errors.Is(err, etcdraft.ErrStepPeerNotFound):
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
		l.proposed = err == nil
	}
	for _, p := range batch {
		l.h.told(p, err)
	}
}

// holds reports whether proposals wait until the entry before them is on this
// leader's disk. All that come meanwhile make one entry then, one message to each
// follower and one answer of it. They would not be answered sooner without: nothing
// is applied here that is not on the disk, which takes one write after the other.
func (l *loopState) holds() bool {
	st := l.h.replica.State()
	return st.Leads() && (l.writing != nil || l.announced != st.Term)
}

// announce makes the first commands of a term those that say who leads, so that what
// compares the leader's key is never older than it.
func (l *loopState) announce() {
	st := l.h.replica.State()
	if !st.Leads() || l.announced == st.Term {
		return
	}
	// If it is not taken, a later turn tries again; until then nothing else is.
	if l.h.replica.Propose(store.EncodeCommands([]store.Command{l.h.announcement(st.Term)})) == nil {
		l.announced, l.proposed = st.Term, true
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
			if l.proposed && len(rd.Append.Batch.Entries) > 0 {
				l.proposed, l.writing = false, rd.Append
			}
			if done, err := h.needless(rd.Append); err != nil {
				h.fail(err)
				return
			} else if !done {
				h.appends.add(appendJob{append: rd.Append})
			}
		}
		if rd.Apply != nil {
			h.applies.add(applyJob{apply: rd.Apply})
		}
		for _, c := range rd.Done {
			h.decided(c)
		}
		for _, c := range rd.Reads {
			l.readers.confirmed(c)
		}
		if rd.State != nil {
			h.note()
			h.metrics.state(*rd.State)
			l.announce()
			if rd.State.Leader != 0 {
				l.readers.led()
			}
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
		h.writes--
		if r.appended == l.writing {
			l.writing = nil
		}
		err = h.replica.Appended(r.appended)
		if r.appended.Snapshot != nil {
			h.note()
			l.view = h.View() // nothing was applied since
			l.readers.applied(h.replica.AppliedIndex())
		}
	case r.applied != nil:
		changes := changesMembers(r.applied)
		if err = h.replica.Applied(r.applied); changes {
			h.note()
		}
		l.readers.applied(h.replica.AppliedIndex())
		l.view = r.view
		if !l.saving { // what comes after the snapshot has to stay
			h.replica.Trim(h.cfg.Sizes.TrailingBytes)
		}
		if h.replica.AppendedBytes() >= max(h.cfg.Sizes.SnapshotBytes, l.saved) {
			l.save()
		}
	case r.saved != nil:
		l.saving, l.saved = false, r.bytes
		h.replica.Saved(r.saved, h.cfg.Sizes.TrailingBytes)
	case r.missed != nil:
		l.saving, l.missed = false, time.Now()
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

// save begins a snapshot, if none is being made, or failed just now.
func (l *loopState) save() {
	h := l.h
	if l.saving || time.Since(l.missed) < h.cfg.ElectionTimeout {
		return
	}
	l.saving = true
	of, view := h.replica.Snapshot(), l.view
	h.running.Go(func() { h.guarded(func() { h.save(of, view) }) })
}
