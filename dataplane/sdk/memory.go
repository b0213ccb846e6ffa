package sdk

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// largeChange is the number of services that changed in a generation whose
	// garbage is worth a thought: some kilobytes for each.
	largeChange = 1000
	// freeDelay leaves a row of such generations in peace.
	freeDelay = 500 * time.Millisecond
)

// freeMemory returns what was garbage after large generations to the system,
// once they have come to an end. A collection of its own accord comes only with
// more garbage, which a provider at rest does not make for long, and most of
// its memory would be that of its first snapshot. It concerns the whole
// process, so only Serve does it.
func freeMemory() Option {
	return func(s *settings) {
		s.afterLarge, s.largeOver = restart(freeDelay, func() {
			runtime.GC() // pools give up what they hold at the second collection
			debug.FreeOSMemory()
		})
	}
}

// restart returns a function that lets f run after d, anew with each call, and
// one that ends that.
func restart(d time.Duration, f func()) (again, stop func()) {
	timer := time.AfterFunc(time.Hour, f)
	timer.Stop()
	return func() { timer.Reset(d) }, func() { timer.Stop() }
}
