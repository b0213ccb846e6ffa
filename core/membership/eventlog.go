package membership

import (
	"context"
	"iter"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	// eventLogSize is how many events a reader may lag before it is reset.
	eventLogSize = 4096
	// eventLogBytes bounds the definitions and vectors that events keep alive
	// although their member has newer ones: a reader of large ones may lag less.
	eventLogBytes = 16 << 20
)

// Event is one change of the member table, or of this node's own standing.
type Event struct {
	Seq    uint64 // 1, 2, 3 … within this process
	At     time.Time
	Kind   swim.EventKind
	Member Member         // after the change
	Was    model.Value    // before the change
	From   netip.AddrPort // who told; zero if this node saw it itself
	Detail string         // for conflicts: what clashes, and the remedy
}

// Update is what a reader gets: an event, or, if events that it has not seen
// are no longer held, the current table to start over from.
type Update struct {
	Event Event
	Reset *Snapshot // if not nil, Event is zero; the next event is Reset.Seq+1
}

// eventLog is a log of events, bounded in number and bytes, with any number of
// readers.
type eventLog struct {
	mu     sync.Mutex
	ring   []Event           // Invariant: ring[seq%size] holds event seq for last-held < seq <= last
	held   uint64            // number of events held, at most len(ring)
	bytes  int               // of the records in them; a definition counts once
	shared map[wire.Hash]int // events that refer to a definition
	budget int               // for bytes; the newest event is held in any case
	last   uint64            // sequence number of the newest event, 0 before the first
	more   chan struct{}     // closed and replaced by each append
	ended  bool
	latest func() *Snapshot
}

// newEventLog returns an empty log of size events; latest gives the snapshot
// for resets and must include every event that was appended.
func newEventLog(size int, latest func() *Snapshot) *eventLog {
	return &eventLog{ring: make([]Event, size), budget: eventLogBytes, shared: make(map[wire.Hash]int), more: make(chan struct{}), latest: latest}
}

// append adds events, which carry consecutive sequence numbers.
func (l *eventLog) append(events []Event) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if l.held == uint64(len(l.ring)) {
			l.dropLocked()
		}
		l.last = e.Seq
		l.ring[e.Seq%uint64(len(l.ring))] = e
		l.held++
		l.holdLocked(&e)
		for l.bytes > l.budget && l.held > 1 {
			l.dropLocked()
		}
	}
	l.wakeLocked()
}

// dropLocked forgets the oldest event held.
func (l *eventLog) dropLocked() {
	oldest := &l.ring[(l.last-l.held+1)%uint64(len(l.ring))]
	m := &oldest.Member
	l.bytes -= len(m.Vector)
	if len(m.Definition) > 0 {
		if l.shared[m.Hash]--; l.shared[m.Hash] == 0 {
			delete(l.shared, m.Hash)
			l.bytes -= len(m.Definition)
		}
	}
	*oldest = Event{}
	l.held--
}

// holdLocked counts what an event keeps alive. Those of one definition share
// its bytes, though the states change.
func (l *eventLog) holdLocked(e *Event) {
	m := &e.Member
	l.bytes += len(m.Vector)
	if len(m.Definition) > 0 {
		if l.shared[m.Hash]++; l.shared[m.Hash] == 1 {
			l.bytes += len(m.Definition)
		}
	}
}

// end wakes all readers for good.
func (l *eventLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wakeLocked()
}

func (l *eventLog) wakeLocked() {
	close(l.more)
	l.more = make(chan struct{})
}

// after returns the update that follows event seq. Without one it returns a
// channel that is closed when there may be, or nil if there never will be.
func (l *eventLog) after(seq uint64) (u Update, ok bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case seq == l.last, seq > l.last && seq <= l.latest().Seq:
		// All seen, or all in a snapshot whose events are about to come.
		if l.ended {
			return Update{}, false, nil
		}
		return Update{}, false, l.more
	case seq > l.last, l.last-seq > l.held:
		// The reader counted in another process, or it lags.
		return Update{Reset: l.latest()}, true, nil
	}
	return Update{Event: l.ring[(seq+1)%uint64(len(l.ring))]}, true, nil
}

// read yields the updates after event seq. Without follow it ends at the
// newest; with it, when ctx ends (yielding its cause) or the log does
// (ErrClosed).
func (l *eventLog) read(ctx context.Context, seq uint64, follow bool) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for {
			u, ok, more := l.after(seq)
			switch {
			case ok:
				seq = u.Event.Seq
				if u.Reset != nil {
					seq = u.Reset.Seq
				}
				if !yield(u, nil) {
					return
				}
			case !follow:
				return
			case more == nil:
				yield(Update{}, ErrClosed)
				return
			default:
				select {
				case <-more:
				case <-ctx.Done():
					yield(Update{}, context.Cause(ctx))
					return
				}
			}
		}
	}
}
