package raft

import (
	"context"
	"errors"
	"fmt"
	"io"

	etcdraft "go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/store"
)

var _ Handler = (*Host)(nil)

// Receive implements Handler. A message that finds the server busy is lost.
func (h *Host) Receive(m *pb.Message) error {
	if m.GetTo() != h.cfg.ID || etcdraft.IsLocalMsg(m.GetType()) || m.GetType() == pb.MsgSnap {
		return fmt.Errorf("raft: a message of type %v for server %d, this is %d", m.GetType(), m.GetTo(), h.cfg.ID)
	}
	if m.GetType() == pb.MsgProp {
		return h.receiveForwarded(m)
	}
	select {
	case h.inbox <- m:
		return nil
	case <-h.stop:
		return ErrStopped
	default:
		h.metrics.lost.WithLabelValues("inbox-full").Inc()
		return errors.New("raft: too many messages wait")
	}
}

// ReceiveSnapshot implements Handler.
func (h *Host) ReceiveSnapshot(m *pb.Message, meta snap.Meta, r io.Reader) error {
	of := m.GetSnapshot().GetMetadata()
	want, err := metaOf(h.cfg.Cluster, of)
	switch {
	case err != nil:
		return err
	case m.GetType() != pb.MsgSnap || m.GetTo() != h.cfg.ID:
		return fmt.Errorf("raft: a snapshot with a message of type %v for server %d", m.GetType(), m.GetTo())
	case meta.Cluster != want.Cluster:
		return fmt.Errorf("raft: a snapshot of the cluster %q, this is %q", meta.Cluster, want.Cluster)
	}
	if !h.receiving.TryLock() {
		return errors.New("raft: another snapshot comes in")
	}
	defer h.receiving.Unlock()
	in, err := h.snaps.Receive(want)
	if err != nil {
		return err
	}
	if _, err := io.Copy(in, r); err != nil {
		return errors.Join(err, in.Abort())
	}
	if err := in.Commit(); err != nil {
		return err
	}
	select {
	case h.inbox <- m:
		return nil
	case <-h.stop:
		return ErrStopped
	}
}

// Unreachable implements Handler.
func (h *Host) Unreachable(id uint64) {
	h.waiters.lost(id)
	select {
	case h.asks <- func() { h.replica.Unreachable(id) }:
	case <-h.stop:
	}
}

// SnapshotSent implements Handler.
func (h *Host) SnapshotSent(id uint64, err error) {
	if err != nil {
		h.cfg.Log.Warn("a snapshot did not reach another server", "to", id, "error", err)
	}
	select {
	case h.asks <- func() { h.replica.SnapshotSent(id, err == nil) }:
	case <-h.stop:
	}
}

// Answer implements Handler.
func (h *Host) Answer(ctx context.Context, from uint64, q Question) (Answer, error) {
	if !h.State().Leads() {
		return Answer{}, ErrNotLeader
	}
	switch {
	case q.Room != nil:
		h.room.heard(from, *q.Room)
		return Answer{}, nil
	case q.Renew != nil, q.Left != nil:
		return h.answerLease(ctx, q)
	}
	return h.answerCommands(ctx, q.Commands)
}

// answerLease is about deadlines, which only the leader knows. That it still is the
// one it makes sure of last: a leader that pauses between the two would promise time
// that the next one does not give.
func (h *Host) answerLease(ctx context.Context, q Question) (Answer, error) {
	id := q.Left
	if q.Renew != nil {
		id = q.Renew
	}
	ttl, renewed, leads := h.lessor.ask(*id, q.Renew != nil)
	if !leads {
		return Answer{}, ErrNotLeader
	}
	if _, err := h.Read(ctx); err != nil {
		return Answer{}, err
	}
	left, there, leads := h.lessor.ask(*id, false)
	switch {
	case !leads:
		return Answer{}, ErrNotLeader
	case !there, q.Renew != nil && !renewed && left == 0: // what is over is not brought back
		ttl = -1
	case q.Left != nil, !renewed: // or it was granted just now
		ttl = left
	}
	return Answer{TTL: ttl}, nil
}

// answerCommands carries out commands of another server, once. One that is refused is
// no reason to refuse the others.
func (h *Host) answerCommands(ctx context.Context, commands []store.Command) (Answer, error) {
	out := Answer{Results: make([]store.Result, len(commands))}
	waits := make([]*waiter, len(commands)) // nil: refused
	var taken []store.Command
	for i, c := range commands {
		if c.Client == nil {
			return Answer{}, errors.New("raft: a command without a client cannot be sent twice")
		}
		if err := h.refuses(&c); err != nil {
			out.Results[i] = store.Result{Err: err, Revision: h.revision(c.Space)}
			continue
		}
		waits[i] = h.waiters.wait(callOf(c.Client))
		defer h.waiters.forget(waits[i])
		h.waiters.sends(waits[i], h.cfg.ID, h.patience())
		taken = append(taken, c)
	}
	if len(taken) == 0 {
		return out, nil
	}
	err := h.submit(ctx, taken)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	for i, one := range waits {
		if one == nil {
			continue
		}
		if out.Results[i], err = h.outcomeOf(ctx, one); err != nil {
			return Answer{}, err
		}
	}
	return out, nil
}

// outcomeOf waits for what a command of this leader's log comes to.
func (h *Host) outcomeOf(ctx context.Context, one *waiter) (store.Result, error) {
	for {
		select {
		case word, open := <-one.words:
			switch {
			case !open:
				return store.Result{}, ErrStopped
			case word.urge == 0:
				return word.result, nil
			}
			h.waiters.anew(one)
			if !h.State().Leads() {
				return store.Result{}, fmt.Errorf("%w any more", ErrNotLeader)
			}
		case <-ctx.Done():
			return store.Result{}, ctx.Err()
		}
	}
}
