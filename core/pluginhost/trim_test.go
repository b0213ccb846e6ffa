package pluginhost

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// A log that does not grow is looked at rarely, and one that does often enough.
func TestLogIsLookedAtWhileItGrows(t *testing.T) {
	run := &runDir{path: t.TempDir()}
	path := logPath(run, "good")
	write := func(n int) {
		t.Helper()
		f, err := openLog(path)
		if err == nil {
			_, err = f.Write(make([]byte, n))
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(filepath.Base(path), err)
		}
		return info.Size()
	}
	write(1)
	synctest.Test(t, func(t *testing.T) {
		s := &supervisor{host: &Host{run: run}, name: "good"}
		i := &instance{ctx: t.Context(), lost: make(chan struct{})}
		ended := make(chan struct{})
		go func() { defer close(ended); s.trimLog(i) }()
		passes := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		passes(time.Minute + trimRest/2) // it rests since the first looks
		write(handshake.MaxLogBytes)
		if passes(trimInterval + trimInterval/5); size() == 0 {
			t.Error("while nothing came it was looked at as often as ever")
		}
		if passes(trimRest); size() != 0 {
			t.Errorf("after %v it has %d bytes", trimRest, size())
		}
		for range 10 { // until it is noticed that it grows
			write(1)
			passes(trimInterval - time.Millisecond)
		}
		for range 10 {
			write(handshake.MaxLogBytes + 1)
			if passes(trimInterval + time.Millisecond); size() != 0 {
				t.Errorf("while it grows it has %d bytes after %v", size(), trimInterval)
			}
		}
		close(i.lost)
		<-ended
	})
}
