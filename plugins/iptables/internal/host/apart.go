package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Apart runs f on a thread of its own, in a network namespace of its own if this
// process may make one, else where it is. Both are gone when f is done.
func Apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and stands for the process in /proc: while
			// it is held here, the next one is another.
			defer runtime.UnlockOSThread()
			Apart(f)
			return
		}
		_ = unix.Unshare(unix.CLONE_NEWNET) // not permitted: f leaves nothing behind either
		f()
	}()
	<-done
}
