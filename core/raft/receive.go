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
	if m.GetTo() != h.cfg.ID || etcdraft.IsLocalMsg(m.GetType()) || m.GetType() == pb.MsgSnap || m.GetType() == pb.MsgProp {
		return fmt.Errorf("raft: a message of type %v for server %d, this is %d", m.GetType(), m.GetTo(), h.cfg.ID)
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

// answerLease is about deadlines, which only the leader knows: it makes sure
// first that it still is the one.
func (h *Host) answerLease(ctx context.Context, q Question) (Answer, error) {
	if _, err := h.Read(ctx); err != nil {
		return Answer{}, err
	}
	id := q.Left
	if q.Renew != nil {
		id = q.Renew
	}
	ttl, there, leads := h.lessor.ask(*id, q.Renew != nil)
	switch {
	case !leads:
		return Answer{}, ErrNotLeader
	case !there:
		ttl = -1
	}
	return Answer{TTL: ttl}, nil
}

// answerCommands carries out commands of another server, once.
func (h *Host) answerCommands(ctx context.Context, commands []store.Command) (Answer, error) {
	var waits []chan store.Result
	for _, c := range commands {
		if c.Client == nil {
			return Answer{}, errors.New("raft: a command without a client cannot be sent twice")
		}
		id := callOf(c.Client)
		ch := h.waiters.wait(id)
		defer h.waiters.forget(id, ch)
		waits = append(waits, ch)
	}
	changed := h.Changed()
	out := Answer{Results: make([]store.Result, len(commands))}
	err := h.submit(ctx, commands)
	if refused := (refusal{}); errors.As(err, &refused) {
		for i := range out.Results {
			out.Results[i] = store.Result{Err: refused.why, Revision: h.revision(commands[i].Space)}
		}
		return out, nil
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	for i, ch := range waits {
		var ok bool
		for !ok {
			select {
			case out.Results[i], ok = <-ch:
				if !ok {
					return Answer{}, ErrStopped
				}
			case <-changed:
				if changed = h.Changed(); !h.State().Leads() {
					return Answer{}, fmt.Errorf("%w any more", ErrNotLeader)
				}
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			}
		}
	}
	return out, nil
}
