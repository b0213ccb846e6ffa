package transport

import (
	"testing"
	"time"
)

// A server that was away for long is reached before an election would begin, which by
// default is after a second: until then its clients wait.
func TestWhoIsBackIsReachedSoon(t *testing.T) {
	const jitter = 1.3 // of gRPC's wait, which may have begun just before the lane's ended
	longest := time.Duration(0)
	for range 1000 {
		var r retry
		now := time.Now()
		for range 20 {
			r.failed(now)
		}
		longest = max(longest, r.at.Sub(now))
	}
	if both := longest + time.Duration(jitter*float64(lastRetry)); both >= time.Second {
		t.Errorf("a lane waits for %v, and that may be %v with the wait of its connection", longest, both)
	}
}
