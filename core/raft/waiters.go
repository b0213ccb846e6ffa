package raft

import (
	"sync"

	"github.com/fairlead/fairlead/core/store"
)

// callID is one command of one client.
type callID struct {
	client   store.ClientID
	sequence uint64
}

func callOf(c *store.Client) callID { return callID{c.ID, c.Sequence} }

// outcome is what became of a command.
type outcome struct {
	id     callID
	result store.Result
}

// waiters are those who wait for what becomes of commands on this server.
type waiters struct {
	mu    sync.Mutex
	by    map[callID]*waiter
	ended bool
}

// waiter is one who waits. The mutex of the waiters guards what changes.
type waiter struct {
	id   callID
	next *waiter // of the same command

	// words has room for one of each kind; it is closed when the server ends.
	words       chan word
	told, urged bool

	to    uint64 // the server that the command was sent to last; 0: none
	ticks int    // since then
	limit int    // of ticks without a result, after which who waits is urged
}

// word is what a waiter is told.
type word struct {
	urge   urge // 0: the result is what the command came to
	result store.Result
}

// urge is why a command is to be sent again.
type urge uint8

const (
	// moved: somebody else leads, or nobody does.
	moved urge = iota + 1
	// untaken: it was not put into the log.
	untaken
	// lost: it may be lost on the way.
	lost
	// refused: the leader does not take it, and says why in a result.
	refused
	// late: nothing was heard for a while.
	late
)

func newWaiters() *waiters { return &waiters{by: map[callID]*waiter{}} }

// wait returns one who waits for a command. Forget is called in any case.
func (w *waiters) wait(id callID) *waiter {
	one := &waiter{id: id, words: make(chan word, 2)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		close(one.words)
		return one
	}
	one.next = w.by[id]
	w.by[id] = one
	return one
}

// anew forgets what urged a command to be sent, before one looks where to.
func (w *waiters) anew(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.urged {
		one.urged = false
		if !one.told && len(one.words) > 0 {
			<-one.words
		}
	}
}

// sends notes where the command is sent now, and after how many ticks without a result
// who waits is urged.
func (w *waiters) sends(one *waiter, to uint64, limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.to, one.ticks, one.limit = to, 0, limit
}

func (w *waiters) forget(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.by[one.id]
	switch {
	case first == one && one.next == nil:
		delete(w.by, one.id)
	case first == one:
		w.by[one.id] = one.next
	default:
		for p := first; p != nil; p = p.next {
			if p.next == one {
				p.next = one.next
			}
		}
	}
}

// tell hands out results.
func (w *waiters) tell(all []outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range all {
		for one := w.by[all[i].id]; one != nil; one = one.next {
			if !one.told { // else the command was applied twice, to one effect
				one.told = true
				one.words <- word{result: all[i].result}
			}
		}
	}
}

// urge has a command sent again. The mutex is held.
func (one *waiter) urge(why word) {
	if !one.told && !one.urged {
		one.urged = true
		one.words <- why
	}
}

// untaken says that a command was not put into the log.
func (w *waiters) untaken(id callID) { w.back(id, word{urge: untaken}) }

// refused says why a command was not put into the log, and is not to be.
func (w *waiters) refused(id callID, r store.Result) { w.back(id, word{urge: refused, result: r}) }

func (w *waiters) back(id callID, why word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := w.by[id]; one != nil; one = one.next {
		one.urge(why)
	}
}

// each urges all that were chosen.
func (w *waiters) each(why urge, chosen func(*waiter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, first := range w.by {
		for one := first; one != nil; one = one.next {
			if chosen(one) {
				one.urge(word{urge: why})
			}
		}
	}
}

// moved says that somebody else leads.
func (w *waiters) moved() { w.each(moved, func(*waiter) bool { return true }) }

// lost says that what was sent to a server may be lost.
func (w *waiters) lost(to uint64) { w.each(lost, func(one *waiter) bool { return one.to == to }) }

// tick lets the time of those who wait pass. While entries are applied here the result
// may be among the next ones: then it takes patience until they are urged.
func (w *waiters) tick(progress bool, patience int) {
	w.each(late, func(one *waiter) bool {
		one.ticks++
		return one.ticks >= one.limit && (!progress || one.ticks >= patience)
	})
}

// none reports whether nobody waits. Who comes then hands something to the loop, or
// finds that this server does not lead and is told when that changes.
func (w *waiters) none() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.by) == 0
}

// end closes all channels.
func (w *waiters) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, first := range w.by {
		for one := first; one != nil; one = one.next {
			close(one.words)
		}
	}
	w.by = map[callID]*waiter{}
}
