package raft

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// proposal is commands on their way into the log.
type proposal struct {
	commands []store.Command
	taken    chan error // of one: whether they are in the leader's log
}

func (p proposal) size() int {
	n := 0
	for i := range p.commands {
		n += p.commands[i].Size()
	}
	return n
}

// Propose carries a command out, whoever leads. The command's Client is set here.
//
// The error wraps ErrStopped, or the context's; then it also wraps ErrUnknown if
// the command may have been, or still be, carried out. What the command itself was
// refused with is in the result.
func (h *Host) Propose(ctx context.Context, c store.Command) (store.Result, error) {
	client, end, err := h.session.begin(ctx, h)
	if err != nil {
		return store.Result{}, err
	}
	defer end()
	c.Client = &client
	r, err := h.carry(ctx, c)
	if err == nil && errors.Is(r.Err, store.ErrClientUnknown) {
		h.session.renew(client.ID)
		return store.Result{}, fmt.Errorf("%w: %w", ErrUnknown, r.Err)
	}
	return r, err
}

// carry brings a command that has a Client to the leader, until it has a result.
func (h *Host) carry(ctx context.Context, c store.Command) (store.Result, error) {
	id := callOf(c.Client)
	applied := h.waiters.wait(id)
	defer h.waiters.forget(id, applied)
	sent := false
	for {
		if c.Register == nil {
			c.Client.Done = h.session.done()
		}
		changed, state := h.Changed(), h.State()
		again := time.NewTimer(h.patience(state))
		var answered chan answered
		switch {
		case h.Err() != nil:
			again.Stop()
			return store.Result{}, h.unknown(ErrStopped, sent)
		case state.Leads():
			err := h.submit(ctx, []store.Command{c})
			if refused := (refusal{}); errors.As(err, &refused) {
				again.Stop()
				return store.Result{Err: refused.why, Revision: h.revision(c.Space)}, nil
			}
			sent = sent || err == nil
			if err != nil {
				again.Reset(h.tick() / 4)
			}
		case state.Leader != 0:
			sent = true
			answered = h.forward(ctx, state.Leader, c)
		}
		r, ok, err := h.await(ctx, applied, answered, changed, again.C, sent)
		again.Stop()
		if err != nil || ok {
			return r, err
		}
	}
}

// answered is what the leader said to a forwarded command.
type answered struct {
	result store.Result
	err    error
}

// await returns the result; ok is false if the command is to be sent again.
func (h *Host) await(ctx context.Context, applied chan store.Result, asked chan answered, changed <-chan struct{}, again <-chan time.Time, sent bool) (r store.Result, ok bool, err error) {
	for {
		select {
		case r, ok = <-applied:
			if !ok {
				return r, false, h.unknown(ErrStopped, sent)
			}
			return r, true, nil
		case a := <-asked:
			if a.err == nil {
				return a.result, true, nil
			}
			asked = nil // it is sent again in a while, or when somebody else leads
			again = time.After(h.tick() / 4)
		case <-changed:
			return r, false, nil
		case <-again:
			return r, false, nil
		case <-ctx.Done():
			return r, false, h.unknown(ctx.Err(), sent)
		}
	}
}

// patience is how long to wait for a result before a command is sent again.
func (h *Host) patience(st replica.State) time.Duration {
	if st.Leader == 0 {
		return h.cfg.ElectionTimeout
	}
	return 4 * h.cfg.ElectionTimeout
}

func (h *Host) unknown(err error, sent bool) error {
	if sent {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if st := h.State(); st.Leader == 0 && !errors.Is(err, ErrStopped) {
		return fmt.Errorf("%w, and no other does: a majority of the servers has to be up and to reach each other: %w", ErrNotLeader, err)
	}
	return err
}

func (h *Host) revision(k store.Keyspace) int64 { return h.View().Stats(k).Revision }

// forward asks the leader to carry a command out. The channel has room for the
// answer, which nobody may be waiting for any more.
func (h *Host) forward(ctx context.Context, leader uint64, c store.Command) chan answered {
	out := make(chan answered, 1)
	client := *c.Client
	c.Client = &client // the caller's changes
	go func() {
		a, err := h.cfg.Transport.Ask(ctx, leader, Question{Commands: []store.Command{c}})
		if err == nil && len(a.Results) != 1 {
			err = fmt.Errorf("raft: server %d answered one command with %d results", leader, len(a.Results))
		}
		if err != nil {
			out <- answered{err: err}
			return
		}
		out <- answered{result: a.Results[0]}
	}()
	return out
}

// refusal is why the leader does not take a command at all.
type refusal struct{ why error }

func (r refusal) Error() string { return r.why.Error() }

// submit brings commands into the log of this server, which leads.
func (h *Host) submit(ctx context.Context, commands []store.Command) error {
	if slices.ContainsFunc(commands, func(c store.Command) bool { return c.Cost() > 0 }) && h.room.gone() {
		return refusal{store.ErrNoSpace}
	}
	p := proposal{commands: commands, taken: make(chan error, 1)}
	select {
	case h.proposals <- p:
	case <-h.stop:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-p.taken:
		return err
	case <-h.stop:
		return ErrStopped
	}
}

// session is this server as a client of the state machine.
type session struct {
	mu      sync.Mutex
	id      store.ClientID
	known   bool          // it is registered
	knowing chan struct{} // somebody registers it; nil: nobody
	last    uint64
	low     uint64 // Invariant: up to it nothing is open
	open    map[uint64]bool
	slots   chan struct{} // as many as may be on the way
}

func newSession() *session {
	s := &session{open: map[uint64]bool{}, slots: make(chan struct{}, store.MaxOutstanding/2)}
	_, _ = rand.Read(s.id[:]) // it never fails
	return s
}

// begin returns the number of a new command; end is called when its result is
// there, or nobody asks for it any more.
func (s *session) begin(ctx context.Context, h *Host) (store.Client, func(), error) {
	if err := s.register(ctx, h); err != nil {
		return store.Client{}, nil, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return store.Client{}, nil, ctx.Err()
	case <-h.stop:
		return store.Client{}, nil, ErrStopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	number, id := s.last, s.id
	s.open[number] = true
	return store.Client{ID: id, Sequence: number}, func() {
		s.mu.Lock()
		delete(s.open, number)
		s.mu.Unlock()
		<-s.slots
	}, nil
}

// done returns up to which number all results are there.
func (s *session) done() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.low < s.last && !s.open[s.low+1] {
		s.low++
	}
	return s.low
}

// renew makes this server another client, which has to be registered.
func (s *session) renew(old store.ClientID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == old {
		s.known = false
		_, _ = rand.Read(s.id[:])
	}
}

// register makes the client known, once.
func (s *session) register(ctx context.Context, h *Host) error {
	for {
		s.mu.Lock()
		if s.known {
			s.mu.Unlock()
			return nil
		}
		if wait := s.knowing; wait != nil {
			s.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		finished := make(chan struct{})
		s.knowing = finished
		s.mu.Unlock()
		r, err := h.carry(ctx, store.Command{Space: store.System, Register: &store.Register{}, Client: &store.Client{ID: s.id}})
		s.mu.Lock()
		s.knowing, s.known = nil, err == nil && r.Err == nil
		s.mu.Unlock()
		close(finished)
		if err == nil {
			err = r.Err
		}
		if err != nil {
			// Nothing happened that anybody could notice.
			return fmt.Errorf("raft: this server cannot begin to write: %w", withoutUnknown(err))
		}
	}
}

// withoutUnknown drops the doubt from an error.
func withoutUnknown(err error) error {
	if !errors.Is(err, ErrUnknown) {
		return err
	}
	for _, cause := range []error{ErrStopped, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return ErrNotLeader
}
