package raft

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// reading is a read that somebody waits for, as long as its context lasts.
type reading struct {
	ctx    context.Context
	answer chan *store.View // of one: a state that it may be answered from
}

// Read returns a state in which everything is that was answered before Read was
// called, by whatever server: a linearizable read is one of that state.
func (h *Host) Read(ctx context.Context) (*store.View, error) {
	r := reading{ctx, make(chan *store.View, 1)}
	select {
	case h.reads <- r:
	case <-h.stop:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case v := <-r.answer:
		return v, nil
	case <-h.stop:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, h.readFailed(ctx)
	}
}

func (h *Host) readFailed(ctx context.Context) error {
	if st := h.State(); st.Leader == 0 {
		return fmt.Errorf("%w, and no other does: a majority of the servers has to be up and to reach each other: %w", ErrNotLeader, ctx.Err())
	}
	return ctx.Err()
}

// readers are the reads that wait; the loop owns it. All that come while the
// leader is asked wait for the next time that it is: an answer to an older
// question says nothing of them.
type readers struct {
	h       *Host
	next    []reading // not asked for yet
	asked   []reading
	read    uint64 // that asked wait for; 0: none
	ticks   int    // since then
	waiting []waitingRead
}

// waitingRead is confirmed and waits for an entry.
type waitingRead struct {
	index uint64
	of    []reading
}

func newReaders(h *Host) *readers { return &readers{h: h} }

// add takes a read, and those that wait behind it.
func (r *readers) add(first reading) {
	r.next = append(r.next, first)
	for range cap(r.h.reads) {
		select {
		case more := <-r.h.reads:
			r.next = append(r.next, more)
		default:
			return
		}
	}
}

// begin asks for the reads that wait, if no other question is open.
func (r *readers) begin() {
	if r.read != 0 || len(r.next) == 0 {
		return
	}
	r.asked, r.next = r.next, nil
	r.ask()
}

func (r *readers) ask() { r.read, r.ticks = r.h.replica.Read(), 0 }

// askAnew asks for the same reads once more. The new question has a context of its own.
func (r *readers) askAnew() {
	r.h.replica.ForgetRead(r.read)
	r.ask()
}

// tick forgets the reads that nobody waits for any more: without a leader, or while the
// disk hangs, there would be ever more of them. It asks anew when there was no answer for
// a while.
func (r *readers) tick() {
	r.next, r.asked = awaited(r.next), awaited(r.asked)
	for i := range r.waiting {
		r.waiting[i].of = awaited(r.waiting[i].of)
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(w waitingRead) bool { return len(w.of) == 0 })
	r.count()
	if r.read == 0 {
		return
	}
	if r.ticks++; r.ticks >= max(r.h.ticks/2, 2) {
		r.askAnew()
	}
}

// led asks anew when another server leads, or leads again: what the one before was asked
// may never be answered.
func (r *readers) led() {
	if r.read != 0 {
		r.askAnew()
	}
}

// awaited returns the reads that somebody waits for.
func awaited(all []reading) []reading {
	return slices.DeleteFunc(all, func(r reading) bool { return r.ctx.Err() != nil })
}

// confirmed takes the answer to the question.
func (r *readers) confirmed(c replica.Confirmed) {
	if c.Read != r.read {
		return
	}
	r.waiting = append(r.waiting, waitingRead{c.Index, r.asked})
	r.asked, r.read = nil, 0
	r.applied(r.h.replica.AppliedIndex())
	r.begin()
}

// applied answers the reads whose entry is applied.
func (r *readers) applied(index uint64) {
	left := r.waiting[:0]
	view := r.h.View()
	for _, w := range r.waiting {
		if w.index > index {
			left = append(left, w)
			continue
		}
		for _, waits := range w.of {
			waits.answer <- view
		}
	}
	clear(r.waiting[len(left):])
	r.waiting = left
	r.count()
}

// none reports whether nobody waits.
func (r *readers) none() bool {
	return r.read == 0 && len(r.next) == 0 && len(r.asked) == 0 && len(r.waiting) == 0
}

func (r *readers) count() {
	r.h.metrics.readsWaiting.Set(float64(len(r.next) + len(r.asked) + len(r.waiting)))
}
