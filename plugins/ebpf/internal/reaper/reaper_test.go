package reaper

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRateIsOneThatKernelsHave(t *testing.T) {
	for _, c := range []struct {
		jiffies uint64
		d       time.Duration
		want    float64
	}{
		{100, time.Second, 100},
		{251, time.Second, 250},
		{298, time.Second, 300},
		{1010, time.Second, 1000},
		{26, 100 * time.Millisecond, 250},
		{1, 10 * time.Millisecond, 0},
		{0, time.Second, 100},
	} {
		if got := Rate(c.jiffies, c.d); got != c.want {
			t.Errorf("%d jiffies in %v: %v per second, want %v", c.jiffies, c.d, got, c.want)
		}
	}
}

// TestFirstThreadIsLeftAlone: /proc shows its namespaces as those of the process,
// and it does not die with what was changed about it.
func TestFirstThreadIsLeftAlone(t *testing.T) {
	// Everything waits on threads of its own, so the first one is free now and then.
	for range 200 {
		err := <-onOwnThread(func() error {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it ran on the first thread")
			}
			return os.ErrClosed
		})
		if !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}
