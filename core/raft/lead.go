package raft

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// LeaderKey is the key of the system keyspace that says who leads: its value is
// "ID TERM". Controllers compare its revision in what they write, so that one that
// was deposed writes nothing.
const LeaderKey = "leader"

// lead does what only the leader does, while this server is it.
func (h *Host) lead() {
	for {
		changed, state := h.Changed(), h.State()
		select {
		case <-h.stop:
			return
		default:
		}
		if state.Leads() {
			ctx, cancel := h.during(context.Background(), state)
			h.reign(ctx, state.Term)
			cancel()
			h.lessor.depose()
			continue
		}
		select {
		case <-changed:
		case <-h.stop:
			return
		}
	}
}

// during returns a context that ends, beside by itself, when the state is another one.
func (h *Host) during(ctx context.Context, state replica.State) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		h.awaitOther(ctx, state)
	}()
	return ctx, cancel
}

// awaitOther returns when the state is another one, or ctx or the server ends.
func (h *Host) awaitOther(ctx context.Context, than replica.State) {
	for {
		changed := h.Changed() // first: what changes from here on is noticed
		if h.State() != than {
			return
		}
		select {
		case <-changed:
		case <-h.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reign lets leases end once the leader is announced, until ctx ends.
func (h *Host) reign(ctx context.Context, term uint64) {
	if !h.announced(ctx, term) {
		return
	}
	h.running.Go(func() { h.guarded(func() { h.finishRetiring(ctx, term) }) })
	h.lessor.promote(term)
	h.cfg.Log.Info("this server leads the store", "term", term)
	timer := time.NewTimer(leaseTick)
	defer timer.Stop()
	for {
		if in, there := h.lessor.plan(); there {
			timer.Reset(in)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-h.lessor.sooner:
			continue
		case <-timer.C:
		}
		for _, l := range h.lessor.due(term) {
			revoke := store.Command{Space: l.Space, Term: term, Revoke: &store.Revoke{ID: l.ID}}
			if h.submit(ctx, []store.Command{revoke}) != nil {
				break // it is due again in a while
			}
		}
	}
}

// leaseTick is how late a lease may end, beside the time of a write: those that end
// within it are ended in one go.
const leaseTick = 200 * time.Millisecond

// announced waits until the leader's key is written, which is the first entry of
// commands in its term; false if ctx ended before.
func (h *Host) announced(ctx context.Context, term uint64) bool {
	for ctx.Err() == nil {
		if _, at := h.View().Applied(); at >= term {
			return true
		}
		again := time.NewTimer(h.tick() / 4)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
	return false
}

// announcement is the command that says who leads in a term.
func (h *Host) announcement(term uint64) store.Command {
	return store.Command{Space: store.System, Term: term, Op: &store.Op{
		Put: &store.PutOp{Key: LeaderKey, Value: fmt.Appendf(nil, "%d %d", h.cfg.ID, term)},
	}}
}

// Transfer hands the leadership to another voter; ErrNotLeader if it is not here.
// It returns when somebody else leads, or when nobody did for an election timeout.
func (h *Host) Transfer(ctx context.Context, to uint64) error {
	if !h.State().Leads() {
		return ErrNotLeader
	}
	if !slices.Contains(h.Members().GetVoters(), to) {
		return fmt.Errorf("raft: server %x is no voter: only one that has a vote can lead", to)
	}
	if err := h.ask(func() { h.replica.Transfer(to) }); err != nil {
		return err
	}
	limit := time.NewTimer(2 * h.cfg.ElectionTimeout)
	defer limit.Stop()
	for {
		changed, state := h.Changed(), h.State()
		if !state.Leads() && state.Leader != 0 {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return fmt.Errorf("raft: server %d did not take over in time: it is down or far behind", to)
		case <-h.stop:
			return ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lessor is the store's, shared by applier, leader and calls.
type lessor struct {
	mu    sync.Mutex
	began time.Time // what its clock counts from; monotonic
	inner *store.Lessor
	term  uint64 // in which deadlines count; 0: they do not

	planned time.Duration // when due is asked next
	sooner  chan struct{} // of one: that is too late
}

func newLessor() *lessor {
	return &lessor{began: time.Now(), inner: store.NewLessor(store.NewMachine().View(), 0), sooner: make(chan struct{}, 1)}
}

func (l *lessor) now() time.Duration { return time.Since(l.began) }

// reset begins anew with the leases of a state.
func (l *lessor) reset(v *store.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inner = store.NewLessor(v, l.now())
}

// applied follows a command that was applied.
func (l *lessor) applied(c *store.Command, r *store.Result) {
	if r.Err != nil || r.Repeated || c.Grant == nil && c.Revoke == nil {
		return // without a wait for the mutex
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.Grant != nil:
		l.inner.Granted(store.Lease{Space: c.Space, ID: c.Grant.ID}, c.Grant.TTLSeconds, l.now())
		l.hasten()
	case c.Revoke != nil:
		l.inner.Revoked(store.Lease{Space: c.Space, ID: c.Revoke.ID})
	}
}

// promote makes the deadlines count in a term, from now on.
func (l *lessor) promote(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inner.Extend(l.now())
	l.term = term
}

func (l *lessor) depose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = 0
}

// plan says in how long due is to be asked, from now on; false if there is no lease.
func (l *lessor) plan() (in time.Duration, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	next, there := l.inner.Next()
	if !there {
		l.planned = math.MaxInt64
		return 0, false
	}
	l.planned = max(next, now+leaseTick)
	return l.planned - now, true
}

// hasten has it planned anew if a lease ends before that. The mutex is held.
func (l *lessor) hasten() {
	next, there := l.inner.Next()
	if !there || next >= l.planned {
		return
	}
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// dueAtOnce bounds the leases that are ended in one go.
const dueAtOnce = 256

func (l *lessor) due(term uint64) []store.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != term {
		return nil
	}
	return l.inner.Due(l.now(), dueAtOnce)
}

// ask answers about a lease; leads is false if deadlines do not count here.
func (l *lessor) ask(id store.Lease, renew bool) (ttl time.Duration, there, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == 0 {
		return 0, false, false
	}
	if renew {
		ttl, there = l.inner.Renew(id, l.now())
	} else {
		ttl, there = l.inner.Left(id, l.now())
	}
	return ttl, there, true
}

// Renew gives a lease its whole time again, and returns it; false if the lease
// ended or never was.
func (h *Host) Renew(ctx context.Context, id store.Lease) (time.Duration, bool, error) {
	return h.lease(ctx, Question{Renew: &id})
}

// Left returns how long a lease has; false if it ended or never was.
func (h *Host) Left(ctx context.Context, id store.Lease) (time.Duration, bool, error) {
	return h.lease(ctx, Question{Left: &id})
}

func (h *Host) lease(ctx context.Context, q Question) (time.Duration, bool, error) {
	for {
		changed, state := h.Changed(), h.State()
		var a Answer
		err := error(ErrNotLeader)
		switch {
		case state.Leads():
			a, err = h.Answer(ctx, h.cfg.ID, q)
		case state.Leader != 0:
			a, err = h.askLeader(ctx, state, q)
		}
		if err == nil {
			return a.TTL, a.TTL >= 0, nil
		}
		select {
		case <-changed:
		case <-time.After(h.tick()):
		case <-h.stop:
			return 0, false, ErrStopped
		case <-ctx.Done():
			return 0, false, fmt.Errorf("raft: the leader does not answer about the lease: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// askLeader asks the leader of a state as long as that is the state: one that hangs says
// nothing, and a lease may end while it is waited for, although another one leads.
func (h *Host) askLeader(ctx context.Context, state replica.State, q Question) (Answer, error) {
	ctx, cancel := h.during(ctx, state)
	defer cancel()
	return h.cfg.Transport.Ask(ctx, state.Leader, q)
}
