package ebpf

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

var epoch = time.Unix(1_000_000, 0)

func removal(id uint64, why dataplane.RemovalReason) dataplane.Removal {
	return dataplane.Removal{Endpoint: dataplane.Endpoint{ID: id}, Reason: why, SuspectedSince: epoch.Add(-time.Second)}
}

// TestEndingsFollowTheReason: "dead = at once if they heard nothing since the
// suspicion began, other reasons = after the drain time".
func TestEndingsFollowTheReason(t *testing.T) {
	k := name("a")
	never := func(dataplane.Key, uint64) bool { return false }
	var e endings
	e.removed(k, 7, time.Minute, []dataplane.Removal{removal(1, dataplane.RemovedDead), removal(2, dataplane.RemovedDrained)}, []uint64{2, 3}, epoch)
	take, next := e.due(epoch, never)
	if w, ok := take[doomed{7, 1, true}]; len(take) != 1 || !ok || !w.since.Equal(epoch.Add(-time.Second)) {
		t.Errorf("at once: %+v, want the dead one, and who heard of it to be spared", take)
	}
	if !next.Equal(epoch.Add(time.Minute)) {
		t.Errorf("the next ones are due at %v", next)
	}
	take, next = e.due(epoch.Add(time.Minute), func(_ dataplane.Key, id uint64) bool { return id == 3 })
	if len(take) != 2 || !take[doomed{7, 1, false}].since.IsZero() || !take[doomed{7, 2, false}].since.IsZero() {
		t.Errorf("after the drain time: %+v, want 1 and 2; 3 is back", take)
	}
	if !next.IsZero() {
		t.Errorf("nothing is left, but due at %v", next)
	}
}

// open connects, and returns a connection on which the other side stays.
func open(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if got, err := hear(c); err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	_ = c.SetDeadline(time.Time{})
	return c
}

// ended waits until a read fails, and returns why.
func ended(t *testing.T, c net.Conn) error {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := c.Read(make([]byte, 8))
	return err
}

func lives(t *testing.T, what string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var wait net.Error
	if _, err := c.Read(make([]byte, 8)); !errors.As(err, &wait) || !wait.Timeout() {
		t.Errorf("%s was ended: %v", what, err)
	}
}

// TestEndedConnectionsReadAborted: of two connections to one address the one that was
// led there is ended, and its application reads why; nobody led the other.
func TestEndedConnectionsReadAborted(t *testing.T) {
	w := newWorld(t)
	gone := listenTCP(t, "127.0.0.1:0", "gone")
	svc := service("a", vip("10.200.4.1:80", dataplane.TCP), gone)
	svc.DrainTime = 0
	w.good(w.apply(svc))
	led, direct := open(t, "tcp", "10.200.4.1:80"), open(t, "tcp", gone.String())
	w.good(w.apply())
	if err := ended(t, led); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("the connection to the endpoint that is gone: %v, want ECONNABORTED", err)
	}
	lives(t, "a direct connection to the same address", direct)
}
