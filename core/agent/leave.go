package agent

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/api"
)

var _ api.Leaver = (*leaver)(nil)

// leaver leaves the cluster once, whoever asks first: a signal or the API.
// What was said cannot be unsaid, so a caller that goes away ends its own wait
// only.
type leaver struct {
	leave   func(context.Context) error
	timeout time.Duration
	once    sync.Once
	begun   chan struct{} // closed when leaving begins
	done    chan struct{} // closed when it is over
	err     error         // of leave; read after done
}

// newLeaver bounds leave by a part of the time for the whole stop, so that
// closing has the rest.
func newLeaver(leave func(context.Context) error, shutdownTimeout time.Duration) *leaver {
	return &leaver{leave: leave, timeout: shutdownTimeout * 4 / 5, begun: make(chan struct{}), done: make(chan struct{})}
}

// Leave implements api.Leaver.
func (l *leaver) Leave(ctx context.Context) error {
	l.once.Do(func() {
		close(l.begun)
		go func() {
			defer close(l.done)
			ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
			defer cancel()
			l.err = l.leave(ctx)
		}()
	})
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asked is closed once leaving is over. The agent then stops, and its API lets
// the call that asked for it finish.
func (l *leaver) asked() <-chan struct{} { return l.done }

// leaving reports whether leaving has begun.
func (l *leaver) leaving() bool {
	select {
	case <-l.begun:
		return true
	default:
		return false
	}
}
