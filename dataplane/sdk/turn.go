package sdk

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// turn lets one call at a time into the provider. The others are not queued:
// a host that is told to try again decides itself whether it still wants to.
type turn struct {
	free chan struct{} // holds a token while nobody is in
	now  *atomic.Pointer[visit]
}

type visit struct {
	call  string
	since time.Time
}

func newTurn() turn {
	t := turn{free: make(chan struct{}, 1), now: new(atomic.Pointer[visit])}
	t.free <- struct{}{}
	return t
}

// try takes the turn, or says who has it (ErrBusy).
func (t turn) try(call string) (release func(), err error) {
	select {
	case <-t.free:
		return t.enter(call), nil
	default:
		return nil, fmt.Errorf("%w: %s while %s is under way: try again", dataplane.ErrBusy, call, t.holder())
	}
}

// wait takes the turn as soon as it is free, unless ctx ends before.
func (t turn) wait(ctx context.Context, call string) (release func(), err error) {
	select {
	case <-t.free:
		return t.enter(call), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s waited for %s: %w", dataplane.ErrBusy, call, t.holder(), ctx.Err())
	}
}

func (t turn) enter(call string) func() {
	t.now.Store(&visit{call: call, since: time.Now()})
	return func() {
		t.now.Store(nil)
		t.free <- struct{}{}
	}
}

// holder names the call under way, and since when.
func (t turn) holder() string {
	v := t.now.Load()
	if v == nil {
		return "another call"
	}
	return fmt.Sprintf("%s (for %v)", v.call, time.Since(v.since).Round(time.Millisecond))
}

// take is try for calls of a host.
func (s *Service) take(call string) (release func(), err error) {
	release, err = s.turn.try(call)
	if err != nil {
		return nil, err
	}
	if s.shut {
		release()
		return nil, fmt.Errorf("%w: %s after Shutdown: this process ends", dataplane.ErrBusy, call)
	}
	return release, nil
}
