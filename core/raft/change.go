package raft

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// RetiredPrefix begins the keys of the system keyspace that remember for ever which
// servers were removed: behind it is the id, in 16 hexadecimal digits. The value is
// "leaving" from before the change on, and "gone" when the server is not needed any
// more, so that its disk may be emptied.
//
// A server that left may still be needed: who lost what it knew of the commit of the
// change goes by the old members until it hears of the new ones, and may have more
// entries than all who could lead it without that server's vote. An entry that was
// proposed after the change came into force ends that: it comes to the disks of a
// majority together with the knowledge that the change is committed.
const RetiredPrefix = "retired/"

const (
	leaving = "leaving"
	gone    = "gone"
)

func retiredKey(id uint64) string { return fmt.Sprintf("%s%016x", RetiredPrefix, id) }

// The errors of Change, beside ErrNotLeader, ErrUnknown, and those of package
// replica that say why the group could not live with the change.
var (
	// ErrRetired: the id of a server is one for all time.
	ErrRetired = errors.New("raft: a server of this id was removed before: empty its state directory, so that it joins under a new id")
	// ErrSuperseded: the change did not happen.
	ErrSuperseded = errors.New("raft: another leader took over, and the change of the servers did not happen: see who takes part now, and ask again")
)

// Change changes who takes part, if the group can live with it, and returns when
// the change is in force and over, and servers that it removes are not needed any
// more. One change is made at a time.
//
// The error says whether anything happened: after one that wraps ErrUnknown the
// change may have been, or still be, made. A leader that is to be removed hands the
// leadership over first, and says ErrNotLeader: the new one is to be asked.
func (h *Host) Change(ctx context.Context, c replica.Change) error {
	select {
	case h.changing <- struct{}{}:
		defer func() { <-h.changing }()
	default:
		return replica.ErrChangeOpen
	}
	state := h.State()
	for _, id := range slices.Concat(c.AddLearners, c.Promote) {
		if retired, _ := h.Retired(id); retired {
			return fmt.Errorf("%w: %x", ErrRetired, id)
		}
	}
	err := h.onLoop(func() error { return h.replica.CheckChange(c) })
	switch {
	case errors.Is(err, replica.ErrLeaderLeaves):
		return h.stepAside(ctx, c)
	case err != nil:
		return withoutDrop(err)
	}
	// First that the servers are retired: no server is ever removed of which nobody
	// knows that. One that then stays is none the worse for it.
	if err := h.retire(ctx, state.Term, c.Remove, leaving); err != nil {
		return withoutUnknown(err)
	}
	if err := h.change(ctx, c); err != nil {
		return err
	}
	if err := h.awaitSimple(ctx); err != nil {
		return err
	}
	if err := h.retire(ctx, state.Term, c.Remove, gone); err != nil {
		return fmt.Errorf("%w: the change is in force; keep the servers that it removed until the next leader marks them as gone: %w", ErrUnknown, err)
	}
	return nil
}

// withoutDrop makes the replica's word that it does not lead that of this package.
func withoutDrop(err error) error {
	if errors.Is(err, replica.ErrDropped) {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return err
}

// Retired reports whether a server of this id was removed, or is about to be, and
// whether it is not needed any more.
func (h *Host) Retired(id uint64) (retired, unneeded bool) { return RetiredIn(h.View(), id) }

// RetiredIn is Retired for any state.
func RetiredIn(v *store.View, id uint64) (retired, unneeded bool) {
	r, err := v.Range(store.System, store.RangeOp{Range: store.Range{Key: retiredKey(id)}})
	if err != nil || len(r.KVs) == 0 {
		return false, false
	}
	return true, string(r.KVs[0].Value) == gone
}

// retire writes what is to be remembered of servers, if this one leads in a term.
func (h *Host) retire(ctx context.Context, term uint64, ids []uint64, what string) error {
	for _, id := range ids {
		r, err := h.Propose(ctx, store.Command{Space: store.System, Term: term, Op: &store.Op{
			Put: &store.PutOp{Key: retiredKey(id), Value: []byte(what)},
		}})
		switch {
		case err != nil:
			return err
		case errors.Is(r.Err, store.ErrFenced):
			return ErrNotLeader
		case r.Err != nil:
			return r.Err
		}
	}
	return nil
}

// finishRetiring marks the servers as gone that another leader removed and did not
// get to mark. It runs when an entry of this leader's term is applied.
func (h *Host) finishRetiring(ctx context.Context, term uint64) {
	r, err := h.View().Range(store.System, store.RangeOp{Range: store.WithPrefix(RetiredPrefix)})
	if err != nil || h.awaitSimple(ctx) != nil {
		return
	}
	conf := h.Members()
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	for _, kv := range r.KVs {
		id, err := strconv.ParseUint(strings.TrimPrefix(kv.Key, RetiredPrefix), 16, 64)
		if err == nil && string(kv.Value) == leaving && !slices.Contains(members, id) && h.retire(ctx, term, []uint64{id}, gone) != nil {
			return // the next leader does
		}
	}
}

// stepAside hands the leadership to a voter that stays.
func (h *Host) stepAside(ctx context.Context, c replica.Change) error {
	members, err := h.Progress(ctx)
	if err != nil {
		return err
	}
	var to replica.Member
	for _, m := range members {
		if m.ID != h.cfg.ID && m.Active && !m.Learner && !slices.Contains(c.Remove, m.ID) && m.Match > to.Match {
			to = m
		}
	}
	if to.ID == 0 {
		return fmt.Errorf("%w: no other voter is heard of that stays", replica.ErrLeaderLeaves)
	}
	if err := h.Transfer(ctx, to.ID); err != nil {
		return err
	}
	return fmt.Errorf("%w any more: it handed the leadership to server %x, which can remove it: ask that one", ErrNotLeader, to.ID)
}

// change brings a change into the log, and waits for what becomes of it.
func (h *Host) change(ctx context.Context, c replica.Change) error {
	var id replica.ChangeID
	_, _ = rand.Read(id[:]) // it never fails
	outcome := make(chan replica.Outcome, 1)
	err := h.onLoop(func() error {
		err := h.replica.ProposeChange(id, c)
		if err == nil {
			h.outcomes[id] = outcome
		}
		return err
	})
	if err != nil {
		return withoutDrop(err)
	}
	select {
	case o := <-outcome:
		switch o {
		case replica.InForce:
			return nil
		case replica.Superseded:
			return ErrSuperseded
		}
		return fmt.Errorf("%w: this server was sent a snapshot", ErrUnknown)
	case <-h.stop:
		return fmt.Errorf("%w: %w", ErrUnknown, ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// decided hands out the outcome of a change; the loop calls it.
func (h *Host) decided(c replica.Changed) {
	if ch := h.outcomes[c.ID]; ch != nil {
		ch <- c.Outcome
		delete(h.outcomes, c.ID)
	}
}

// awaitSimple waits until the old members of the last change do not count any more.
func (h *Host) awaitSimple(ctx context.Context) error {
	for {
		changed := h.Changed()
		if len(h.Members().GetVotersOutgoing()) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-h.stop:
			return fmt.Errorf("%w: %w", ErrUnknown, ErrStopped)
		case <-ctx.Done():
			return fmt.Errorf("%w: the change is in force, and majorities of the old and of the new servers are needed until it is over: %w", ErrUnknown, ctx.Err())
		}
	}
}

// onLoop runs f on the loop and returns its error.
func (h *Host) onLoop(f func() error) error {
	var err error
	if ended := h.ask(func() { err = f() }); ended != nil {
		return ended
	}
	return err
}

// Progress returns what the leader knows of those who take part; ErrNotLeader if
// this server does not lead.
func (h *Host) Progress(ctx context.Context) ([]replica.Member, error) {
	var out []replica.Member
	if err := h.ask(func() { out = h.replica.Members() }); err != nil {
		return nil, err
	}
	if out == nil {
		return nil, ErrNotLeader
	}
	return out, ctx.Err()
}

// JointSince returns when the change under way came into force on this server, of
// which the old members still count; the zero time if there is none. A change that
// takes long lacks a majority of the old or of the new voters.
func (h *Host) JointSince() time.Time {
	if at := h.joint.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// noteJoint follows the membership; the loop calls it.
func (h *Host) noteJoint(joint bool) {
	switch at := h.joint.Load(); {
	case joint && at == nil:
		now := time.Now()
		h.joint.Store(&now)
	case !joint && at != nil:
		h.joint.Store(nil)
	}
}

// jointPatience is how long a change may take before somebody is told.
const jointPatience = 10 * time.Second

// watchJoint complains of a change that takes long, once for each.
func (l *loopState) watchJoint() {
	at := l.h.JointSince()
	if at.IsZero() || at == l.complained || time.Since(at) < jointPatience {
		return
	}
	l.complained = at
	conf := l.h.Members()
	l.h.cfg.Log.Error("a change of the servers of the store takes long: majorities of the old and of the new ones have to be up",
		"old", fmt.Sprintf("%x", conf.GetVotersOutgoing()), "new", fmt.Sprintf("%x", conf.GetVoters()))
}
