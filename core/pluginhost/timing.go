package pluginhost

import (
	"math/rand/v2"
	"time"
)

// Timing are the patience and the rhythm of a Host. DefaultTiming gives what
// DESIGN promises; tests are in more of a hurry.
type Timing struct {
	Start     time.Duration // for the handshake, unless plugins.NAME.start_timeout says else
	Call      time.Duration // for Info, Configure and the like
	Probe     time.Duration // for one probe
	Health    time.Duration // between two questions whether the process answers
	Answer    time.Duration // for the answer
	Misses    int           // in a row, that mean the process hangs
	DataPath  time.Duration // between two checks of the data path
	Shutdown  time.Duration // for the call Shutdown
	Exit      time.Duration // from its answer to the end of the process
	Terminate time.Duration // from SIGTERM to SIGKILL
	Redial    time.Duration // between two looks for a provider that runs by itself
	Look      time.Duration // between two looks for another file of one that does not run
	Follow    time.Duration // between two looks whether one that goes may go, or is gone
	Cleanup   time.Duration // for the call Cleanup
	Drain     time.Duration // for connections through one that goes, if nobody says else
	Backoff   Backoff
}

// Backoff says when a provider that was lost is started again.
type Backoff struct {
	First, Most time.Duration // the delay doubles from First to Most
	Healthy     time.Duration // of being ready, after which it begins at First
	LoopCount   int           // losses within LoopTime that make a crash loop
	LoopTime    time.Duration
}

// DefaultTiming returns the timing of an agent. A stop takes at most 4.5 s: 2 s
// for Shutdown, 0.5 s for the end after it, 1.5 s from SIGTERM to SIGKILL, which
// takes effect at once.
func DefaultTiming() Timing {
	return Timing{
		Start: 10 * time.Second, Call: 5 * time.Second, Probe: 10 * time.Second,
		Health: time.Second, Answer: time.Second, Misses: 3, DataPath: 5 * time.Second,
		Shutdown: 2 * time.Second, Exit: 500 * time.Millisecond, Terminate: 1500 * time.Millisecond,
		Redial: 500 * time.Millisecond, Look: time.Second,
		Follow: 500 * time.Millisecond, Cleanup: 30 * time.Second, Drain: 30 * time.Second,
		Backoff: Backoff{
			First: 100 * time.Millisecond, Most: 30 * time.Second, Healthy: 60 * time.Second,
			LoopCount: 5, LoopTime: 60 * time.Second,
		},
	}
}

// losses decides on the delay before each start. It is a value: time and chance
// are arguments.
type losses struct {
	rule Backoff
	// Invariant: oldest first, at most rule.LoopCount.
	times []time.Time
	next  time.Duration
}

// lost notes that the provider was lost now, after being ready for some time (0:
// it was not), and returns when to start it again, and whether it loops.
func (l *losses) lost(now time.Time, ready time.Duration, rng *rand.Rand) (delay time.Duration, loop bool) {
	if ready >= l.rule.Healthy {
		l.times, l.next = nil, 0
	}
	l.times = append(l.times, now)
	if extra := len(l.times) - l.rule.LoopCount; extra > 0 {
		l.times = l.times[extra:]
	}
	loop = len(l.times) == l.rule.LoopCount && now.Sub(l.times[0]) <= l.rule.LoopTime
	l.next = min(max(l.rule.First, l.next*2), l.rule.Most)
	delay = l.next
	if loop {
		delay = l.rule.Most
	}
	// A fifth less at most, so that what was lost together does not return
	// together.
	return delay - time.Duration(rng.Float64()*float64(delay)/5), loop
}
