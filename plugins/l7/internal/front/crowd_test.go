package front

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/test/await"
)

// dial opens a connection and sends text over it.
func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

func answerOf(t *testing.T, c net.Conn) *http.Response {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetGauge().GetValue() + out.GetCounter().GetValue()
}

// bounded is a front with room for n connections; requests for /held stay until
// the test ends.
func bounded(t *testing.T, n int) *Front {
	t.Helper()
	held := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-held
		}
		ok(w, r)
	})
	t.Cleanup(func() { close(held) })
	s := at("127.0.0.1:0")
	s.MaxConnections = n
	if err := f.Configure(s); err != nil {
		t.Fatal(err)
	}
	return f
}

const (
	askHeld = "GET /held HTTP/1.1\r\nHost: web\r\n\r\n"
	askNow  = "GET / HTTP/1.1\r\nHost: web\r\n\r\n"
)

// Requests that go on keep their connections; who comes above the bound is told
// so, until the bound is a higher one.
func TestTooManyConnections(t *testing.T) {
	f := bounded(t, 3)
	address := f.Addresses()[0]
	for range 3 {
		dial(t, address, askHeld)
	}
	await.For(t, "three requests under way", func() bool { return f.Requests() == 3 })
	r := answerOf(t, dial(t, address, askNow))
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("X-Fairlead-Reason") != reasonFull || !r.Close || r.Header.Get("Retry-After") == "" {
		t.Errorf("above the bound: %s %v", r.Status, r.Header)
	}
	if wrong, down := f.Check(t.Context()); len(wrong) != 1 || down != 0 || !strings.Contains(wrong[0], "max_connections") {
		t.Errorf("the health of a full listener: %q, %d down", wrong, down)
	}
	if open, refused := value(t, f.metrics.clients), value(t, f.metrics.refused); open != 3 || refused != 2 {
		t.Errorf("metrics say %v open, %v refused; want 3 and 2", open, refused)
	}
	if err := f.Configure(at(f.doors[0].wanted)); err != nil {
		t.Fatal(err)
	}
	if r := answerOf(t, dial(t, address, askNow)); r.StatusCode != http.StatusOK {
		t.Errorf("with a higher bound: %s", r.Status)
	}
}

// whoWait returns the connections that wait, once there are so many whose bytes are
// all read: a client has its answer before the connection waits for the next request.
func whoWait(t *testing.T, f *Front, n int) (all []*visitor) {
	t.Helper()
	crowd := &f.doors[0].crowd
	await.For(t, "the connections that wait", func() bool {
		crowd.mu.Lock()
		defer crowd.mu.Unlock()
		all = nil
		for c := range crowd.all {
			if c.waiting.Load() != 0 && !c.unread() {
				all = append(all, c)
			}
		}
		return len(all) == n
	})
	return all
}

// waitSince has the connections wait for so much longer, or less long.
func waitSince(f *Front, all []*visitor, longer time.Duration) {
	crowd := &f.doors[0].crowd
	crowd.mu.Lock()
	defer crowd.mu.Unlock()
	crowd.searched = time.Time{}
	for _, c := range all {
		c.waiting.Add(-int64(longer))
	}
}

// Connections that wait for their next request, or for a head that does not end,
// make room for others, those first that wait longest.
func TestWhoWaitsMakesRoom(t *testing.T) {
	f := bounded(t, 3)
	address := f.Addresses()[0]
	slow := dial(t, address, "GET / HTTP/1.1\r\nHost: w")
	idle := dial(t, address, askNow)
	if r := answerOf(t, idle); r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
	dial(t, address, askHeld)
	await.For(t, "a request under way", func() bool { return f.Requests() == 1 })
	waiting := whoWait(t, f, 2)
	waitSince(f, waiting, -time.Hour) // however long this takes
	if r := answerOf(t, dial(t, address, askNow)); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("beside connections that wait for a moment only: %s", r.Status)
	}
	waitSince(f, waiting, time.Hour+reclaimAfter)
	for i, victim := range []net.Conn{slow, idle} {
		if r := answerOf(t, dial(t, address, askNow)); r.StatusCode != http.StatusOK {
			t.Fatalf("newcomer %d: %s", i, r.Status)
		}
		if n, err := victim.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after newcomer %d, the longest waiting is still there and says %d bytes", i, n)
		}
	}
	if f.Requests() != 1 {
		t.Error("a request under way was cut")
	}
	if reclaimed, open := value(t, f.metrics.reclaimed), value(t, f.metrics.clients); reclaimed != 2 || open != 3 {
		t.Errorf("metrics say %v reclaimed, %v open; want 2 and 3", reclaimed, open)
	}
}

// What was taken over from the server counts until it is closed, once.
func TestTunnelsCount(t *testing.T) {
	taken := make(chan net.Conn, 1)
	f := start(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		taken <- c
	})
	dial(t, f.Addresses()[0], askNow)
	c := <-taken
	if n := value(t, f.metrics.clients); n != 1 {
		t.Errorf("%v connections are open, want 1", n)
	}
	_, _ = c.Close(), c.Close()
	if n := value(t, f.metrics.clients); n != 0 {
		t.Errorf("%v connections are open, want 0", n)
	}
}
