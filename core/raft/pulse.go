package raft

import "time"

// pulse is the ticks of a loop, which rest while nothing waits for time to pass. A
// server that is all of its group would wake ten times a second for nothing.
type pulse struct {
	every   time.Duration
	ticker  *time.Ticker
	resting bool
}

func newPulse(every time.Duration) *pulse {
	return &pulse{every: every, ticker: time.NewTicker(every)}
}

func (p *pulse) c() <-chan time.Time { return p.ticker.C }

func (p *pulse) stop() { p.ticker.Stop() }

// follow is called at the end of each turn of the loop. A turn that gave it something
// to wait for begins the ticks again; they rest from a tick on, so that a server with
// work does not stop and go.
func (p *pulse) follow(rests func() bool, ticked bool) {
	switch {
	case p.resting && !rests():
		p.ticker.Reset(p.every)
		p.resting = false
	case !p.resting && ticked && rests():
		p.ticker.Stop()
		p.resting = true
	}
}

// rests reports whether a tick would do nothing, as long as nothing comes in. What
// comes in makes a turn of the loop, which looks again.
func (l *loopState) rests() bool {
	h := l.h
	return h.replica.Rests() && l.announced == h.replica.State().Term && l.writing == nil && !l.saving &&
		!h.replica.NeedsSnapshot() && l.readers.none() && h.waiters.none()
}
