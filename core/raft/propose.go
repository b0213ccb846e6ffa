package raft

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/store"
)

// proposal is commands on their way into the log.
type proposal struct {
	commands []store.Command
	taken    chan error // of one: whether they are in the leader's log; nil: see told
	from     uint64     // the server that they came from; 0: this one
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
	if err := c.Check(); err != nil {
		return store.Result{Err: err, Revision: h.revision(c.Space)}, nil
	}
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
	way := way{h: h, one: h.waiters.wait(callOf(c.Client))}
	defer h.waiters.forget(way.one)
	for {
		if c.Register == nil {
			c.Client.Done = h.session.done()
		}
		if err := h.Err(); err != nil {
			return store.Result{}, h.unknown(ErrStopped, way.sent)
		}
		r, ok, err := way.try(ctx, c)
		if err != nil || ok {
			return r, err
		}
		h.waiters.anew(way.one)
		client := *c.Client
		c.Client = &client // what was sent before may be on its way still
	}
}

// way is a command on its way.
type way struct {
	h    *Host
	one  *waiter
	sent bool // it may have been put into a log
	late bool // nothing was heard of it, so the leader is to answer by itself
}

// try sends the command once, and waits; ok is false if it is to be sent again. A refusal
// is the result only of one that was not sent before: else the log may have it, and this
// server hears of that, or nobody knows.
func (w *way) try(ctx context.Context, c store.Command) (r store.Result, ok bool, err error) {
	h, before, state := w.h, w.sent, w.h.State()
	var asked chan answered
	var again <-chan time.Time
	var doubt error // with which it was refused although it had been sent before
	switch {
	case state.Leads():
		h.waiters.sends(w.one, h.cfg.ID, h.patience())
		if err := h.refuses(&c); err != nil {
			h.waiters.refused(w.one.id, store.Result{Err: err, Revision: h.revision(c.Space)})
		} else if h.hand(ctx, proposal{commands: []store.Command{c}}) == nil {
			w.sent = true
		} else {
			again = time.After(h.tick() / 4)
		}
	case state.Leader == 0:
		h.waiters.sends(w.one, 0, h.ticks)
	case w.late:
		w.sent = true
		h.waiters.sends(w.one, state.Leader, h.patience())
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		asked = h.demand(ctx, state.Leader, c)
	default:
		w.sent = true
		h.waiters.sends(w.one, state.Leader, max(h.ticks/2, 1))
		h.forward(state.Leader, c)
	}
	for {
		select {
		case word, open := <-w.one.words:
			switch {
			case !open:
				return r, false, h.unknown(ErrStopped, w.sent)
			case word.urge == 0, word.urge == refused && !before:
				return word.result, true, nil
			case word.urge == refused:
				doubt, again = word.result.Err, time.After(h.tick())
				continue
			case word.urge == untaken, word.urge == lost: // it is sent again in a while, or when somebody else leads
				w.sent = before || word.urge == lost
				h.waiters.anew(w.one)
				again = time.After(h.tick() / 4)
				continue
			}
			w.late = w.late || word.urge == late && state.Leader != 0
			return r, false, nil
		case a := <-asked:
			switch {
			case a.err != nil:
				asked, again = nil, time.After(h.tick()/4)
			case errors.Is(a.result.Err, store.ErrNoSpace): // it may be a refusal
				doubt, asked, again = a.result.Err, nil, time.After(h.tick())
			default:
				h.settle(ctx, w.one, a.result)
				return a.result, true, nil
			}
		case <-again:
			if doubt != nil {
				// It is not wrapped: whoever looks for a refusal must not find one.
				return r, false, fmt.Errorf("%w: it was sent before it was refused: %s", ErrUnknown, doubt.Error())
			}
			return r, false, nil
		case <-ctx.Done():
			return r, false, h.unknown(ctx.Err(), w.sent)
		}
	}
}

// settle waits until what the leader says was done is done here as well, so that who
// hears of it can read it here; no longer than a heartbeat, after which this server
// may be far behind.
func (h *Host) settle(ctx context.Context, one *waiter, r store.Result) {
	if r.Err != nil && !errors.Is(r.Err, store.ErrResultGone) {
		return // nothing was done
	}
	tick := time.NewTimer(h.tick())
	defer tick.Stop()
	for {
		select {
		case word, open := <-one.words:
			if !open || word.urge == 0 {
				return
			}
		case <-tick.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// patience is how many ticks to wait for a result before a command is sent again.
func (h *Host) patience() int { return 4 * h.ticks }

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

// answered is what the leader said to a command.
type answered struct {
	result store.Result
	err    error
}

// demand asks the leader to carry a command out and to say what came of it. The channel
// has room for the answer, which nobody may be waiting for any more.
func (h *Host) demand(ctx context.Context, leader uint64, c store.Command) chan answered {
	out := make(chan answered, 1)
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

// refuses says why the leader does not take a command at all; nil: it does.
func (h *Host) refuses(c *store.Command) error {
	if c.Cost() > 0 && h.room.gone() {
		return store.ErrNoSpace
	}
	return nil
}

// submit brings commands into the log of this server, which leads.
func (h *Host) submit(ctx context.Context, commands []store.Command) error {
	p := proposal{commands: commands, taken: make(chan error, 1)}
	if err := h.hand(ctx, p); err != nil {
		return err
	}
	select {
	case err := <-p.taken:
		return err
	case <-h.stop:
		return ErrStopped
	}
}

// hand gives a proposal to the loop.
func (h *Host) hand(ctx context.Context, p proposal) error {
	select {
	case h.proposals <- p:
		return nil
	case <-h.stop:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// told says whether a proposal was put into the log. That it was is no news to those who
// wait for what it comes to.
func (h *Host) told(p proposal, err error) {
	switch {
	case p.taken != nil:
		p.taken <- err
	case p.from != 0:
		h.forwarded.Add(-int64(p.size()))
		if err != nil {
			h.giveBack(p.from, untakenOnes(p.commands))
		}
	case err != nil:
		for i := range p.commands {
			h.waiters.untaken(callOf(p.commands[i].Client))
		}
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
	moved   *signal       // low rises, and somebody may wait for that
}

func newSession() *session {
	s := &session{open: map[uint64]bool{}, slots: make(chan struct{}, store.MaxOutstanding/2), moved: newSignal()}
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
	for {
		c, wait := s.next()
		if wait == nil {
			return c, func() { s.end(c.Sequence) }, nil
		}
		err := error(ErrStopped)
		select {
		case <-wait:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-h.stop:
		}
		<-s.slots
		return store.Client{}, nil, err
	}
}

// next returns the next number; or what to wait for, if the results of all that came
// after the lowest one that is open are as many as are kept.
func (s *session) next() (store.Client, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rise(); s.last-s.low >= store.MaxOutstanding {
		return store.Client{}, s.moved.wait()
	}
	s.last++
	s.open[s.last] = true
	return store.Client{ID: s.id, Sequence: s.last}, nil
}

// end says that a number is not open any more.
func (s *session) end(number uint64) {
	s.mu.Lock()
	full := s.last-s.low >= store.MaxOutstanding
	delete(s.open, number)
	if s.rise(); full {
		s.moved.raise()
	}
	s.mu.Unlock()
	<-s.slots
}

// done returns up to which number all results are there.
func (s *session) done() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rise()
	return s.low
}

// rise moves low on; the mutex is held.
func (s *session) rise() {
	for s.low < s.last && !s.open[s.low+1] {
		s.low++
	}
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
