package agent

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/api"
)

var _ api.Leaver = (*leaver)(nil)

// departure is how a member ends its part in the cluster.
type departure interface {
	// Leave says good-bye and waits until that has spread.
	Leave(ctx context.Context) error
	// CanHold returns why no restart of this length can be announced, or nil.
	CanHold(d time.Duration) error
	// Hold announces a restart of at most this length and waits until that has
	// spread.
	Hold(ctx context.Context, d time.Duration) error
}

// leaver leaves the cluster once, whoever asks first: a signal or the API.
// What was said cannot be unsaid, so a caller that goes away ends its own wait
// only.
type leaver struct {
	members  departure
	timeout  time.Duration
	once     sync.Once
	restarts atomic.Bool
	begun    chan struct{} // closed when leaving begins
	done     chan struct{} // closed when it is over
	err      error         // of leaving; read after done
}

// newLeaver bounds leaving by a part of the time for the whole stop, so that
// closing has the rest.
func newLeaver(members departure, shutdownTimeout time.Duration) *leaver {
	return &leaver{members: members, timeout: shutdownTimeout * 4 / 5, begun: make(chan struct{}), done: make(chan struct{})}
}

// Leave implements api.Leaver.
func (l *leaver) Leave(ctx context.Context) error { return l.end(ctx, l.members.Leave) }

// Restart implements api.Leaver. It joins an end that is under way, whatever
// that is.
func (l *leaver) Restart(ctx context.Context, hold time.Duration) error {
	if !l.leaving() {
		if err := l.members.CanHold(hold); err != nil {
			return fmt.Errorf("%w: %w", api.ErrNoRestart, err)
		}
	}
	return l.end(ctx, func(ctx context.Context) error {
		l.restarts.Store(true)
		return l.members.Hold(ctx, hold)
	})
}

// end ends this node's part by how, unless that has begun already, and waits
// for it.
func (l *leaver) end(ctx context.Context, how func(context.Context) error) error {
	l.once.Do(func() {
		close(l.begun)
		go func() {
			defer close(l.done)
			ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
			defer cancel()
			l.err = how(ctx)
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

// what says in words what the node does that is leaving.
func (l *leaver) what() string {
	if l.restarts.Load() {
		return "restarts"
	}
	return "leaves its cluster"
}
