package netns

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// errNoReturn reports that a function left its goroutine (t.Fatal, runtime.Goexit) instead of returning.
var errNoReturn = errors.New("netns: the function ended its goroutine instead of returning: return an error, do not call t.Fatal in it")

// outcome is how a function on another thread ended.
type outcome struct {
	err      error
	panicked any
	stack    []byte
}

// onOwnThread runs f on an operating system thread that nothing else uses and that dies afterwards, so that whatever f changed
// about its thread (its network namespace) cannot leak into other goroutines. A panic of f comes out in the caller.
func onOwnThread(f func() error) error {
	out := <-launch(f)
	if out.panicked != nil {
		panic(fmt.Sprintf("%v\n\non its own thread:\n%s", out.panicked, out.stack))
	}
	return out.err
}

func launch(f func() error) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		// Never unlocked: a goroutine that ends locked takes its thread with it.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot die and stands for the whole process in /proc. While this goroutine
			// occupies it, the next one gets another.
			defer runtime.UnlockOSThread()
			ended <- <-launch(f)
			return
		}
		out := outcome{err: errNoReturn}
		defer func() {
			if r := recover(); r != nil {
				out = outcome{panicked: r, stack: debug.Stack()}
			}
			ended <- out
		}()
		out.err = f()
	}()
	return ended
}
