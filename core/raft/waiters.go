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
	by    map[callID][]chan store.Result
	ended bool
}

func newWaiters() *waiters { return &waiters{by: map[callID][]chan store.Result{}} }

// wait returns a channel that gets the result, or is closed when the server ends.
// Forget is called in any case.
func (w *waiters) wait(id callID) chan store.Result {
	ch := make(chan store.Result, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		close(ch)
		return ch
	}
	w.by[id] = append(w.by[id], ch)
	return ch
}

func (w *waiters) forget(id callID, ch chan store.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.by[id][:0:0]
	for _, other := range w.by[id] {
		if other != ch {
			left = append(left, other)
		}
	}
	if len(left) == 0 {
		delete(w.by, id)
		return
	}
	w.by[id] = left
}

func (w *waiters) tell(all []outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range all {
		for _, ch := range w.by[o.id] {
			select {
			case ch <- o.result:
			default: // it has one already: the command was applied twice, to one effect
			}
		}
	}
}

// end closes all channels.
func (w *waiters) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, list := range w.by {
		for _, ch := range list {
			close(ch)
		}
	}
	w.by = map[callID][]chan store.Result{}
}
