package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
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
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
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

// TestConnectionsToTheGoneAreEnded: of a service with two endpoints one goes. What
// was led to it ends, here and in another namespace; what was led elsewhere lives,
// and so does a connection to the same address that nobody led there.
func TestConnectionsToTheGoneAreEnded(t *testing.T) {
	for _, test := range []struct {
		name  string
		why   dataplane.RemovalReason
		drain time.Duration
		quiet bool // nothing was heard since the suspicion
		ends  bool
	}{
		{"dead and silent", dataplane.RemovedDead, time.Hour, true, true},
		{"dead, but it spoke since", dataplane.RemovedDead, time.Hour, false, false},
		{"dead, spoke since, drained", dataplane.RemovedDead, 0, false, true},
		{"drained, at once", dataplane.RemovedDrained, 0, false, true},
		{"drained, time left", dataplane.RemovedDrained, time.Hour, false, false},
		{"left, soon", dataplane.RemovedLeft, 200 * time.Millisecond, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			gone, stays := listenTCP(t, "127.0.0.1:0", "gone"), listenTCP(t, "127.0.0.1:0", "stays")
			only, both := service("a", vip("10.200.4.1:80", dataplane.TCP), gone), service("a", vip("10.200.4.1:80", dataplane.TCP), gone, stays)
			only.DrainTime, both.DrainTime = test.drain, test.drain
			w.good(w.apply(only))
			led := open(t, "tcp", "10.200.4.1:80")
			direct := open(t, "tcp", gone.String())
			since := time.Now().Add(-time.Hour)
			if test.quiet {
				since = time.Now().Add(300 * time.Millisecond)
				netns.Eventually(t, patience, func() bool { return time.Now().After(since.Add(300 * time.Millisecond)) }, "silence")
			}
			w.good(w.apply(both))
			left := *both
			left.Endpoints = dataplane.NewEndpoints(both.Endpoints.Slice()[1])
			w.good(w.applyFor(func(dataplane.Key, dataplane.Endpoint) dataplane.Removal {
				return dataplane.Removal{Reason: test.why, SuspectedSince: since}
			}, &left))
			elsewhere := open(t, "tcp", "10.200.4.1:80")
			if !test.ends {
				lives(t, "the connection", led)
			} else if err := ended(t, led); !errors.Is(err, syscall.ECONNABORTED) {
				t.Errorf("the connection to the endpoint that is gone: %v, want ECONNABORTED", err)
			}
			lives(t, "a direct connection to the same address", direct)
			lives(t, "a connection to the other endpoint", elsewhere)
		})
	}
}

// TestDatagramSocketsToTheGoneAreEnded: connected ones only; others choose anew with
// each datagram.
func TestDatagramSocketsToTheGoneAreEnded(t *testing.T) {
	w := newWorld(t)
	svc := service("a", vip("10.200.4.1:53", dataplane.UDP), listenUDP(t, "127.0.0.1:0", "gone"))
	svc.DrainTime = 0
	w.good(w.apply(svc))
	led := open(t, "udp", "10.200.4.1:53")
	left := *svc
	left.Endpoints = dataplane.NewEndpoints(dataplane.Endpoint{ID: 9, Addr: listenUDP(t, "127.0.0.1:0", "stays"), Weight: 1})
	w.good(w.apply(&left))
	if err := ended(t, led); !errors.Is(err, syscall.ECONNABORTED) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the socket led to the endpoint that is gone: %v", err)
	}
	if got, err := ask("udp", "10.200.4.1:53"); got != "stays" {
		t.Errorf("the next: %q, %v", got, err)
	}
}

func TestConnectionsInOtherNamespacesAreEnded(t *testing.T) {
	w := newWorld(t)
	node := netns.New(t, netns.Options{Nodes: 1}).Node(0)
	l, err := node.Listen("tcp", node.Addr().String()+":7002")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("a"))
		_, _ = c.Read(make([]byte, 1)) // holds it open
		_ = c.Close()
	}()
	// Iterators see a namespace while a process is in it.
	node.Start("/bin/sleep", []string{"60"})
	svc := service("a", vip("10.200.4.1:80", dataplane.TCP), netip.MustParseAddrPort(l.Addr().String()))
	svc.DrainTime = 0
	w.good(w.apply(svc))
	var led net.Conn
	if err := node.Do(func() (err error) { led, err = net.DialTimeout("tcp", "10.200.4.1:80", patience); return err }); err != nil {
		t.Fatal(err)
	}
	defer led.Close()
	if _, err := hear(led); err != nil {
		t.Fatal(err)
	}
	w.good(w.apply())
	if err := ended(t, led); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("in another namespace: %v, want ECONNABORTED", err)
	}
}
