package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// patience bounds one request. It is long: what a busy machine delays is no
// error, and what is lost is one all the same.
const patience = 15 * time.Second

// httpConn is a client of HTTP/1.1 that hides nothing: http.Transport would
// send a request again when its connection was closed.
type httpConn struct {
	node *netns.Node
	at   string

	conn   net.Conn // nil: none is open
	reader *bufio.Reader
}

func newHTTPConn(node *netns.Node, at string) *httpConn { return &httpConn{node: node, at: at} }

func (c *httpConn) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// open connects, unless it is connected.
func (c *httpConn) open(limit time.Duration) error {
	if c.conn == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		conn, err := c.node.DialContext(ctx, "tcp", c.at)
		if err != nil {
			return err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	return c.conn.SetDeadline(time.Now().Add(limit))
}

// do makes one attempt at one request, which is written as it is, and returns
// status and body of the answer.
func (c *httpConn) do(request string, limit time.Duration) (code int, body string, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.open(limit); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		return 0, "", err
	}
	method, _, _ := strings.Cut(request, " ")
	r, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return 0, "", err
	}
	body, err = readAll(r.Body)
	if reason := r.Header.Get("X-Fairlead-Reason"); reason != "" {
		body = reason + ": " + body
	}
	if r.Close {
		c.close()
	}
	return r.StatusCode, body, err
}

// answer is what became of one request.
type answer struct {
	sent time.Time
	took time.Duration
	by   string // the proxy
	from string // the instance
	err  error
}

// load is a steady stream of requests; each is one attempt, and each outcome
// but 200 is an error.
type load struct {
	t       *testing.T
	begun   time.Time
	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	answers []answer
	due     int
}

// loadWorkers bounds how many requests are under way.
const loadWorkers = 32

// newLoad sends GETs from a node, at a rate a second, in turn to proxies at
// these addresses, until the end.
func newLoad(t *testing.T, node *netns.Node, rate int, proxies ...string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, begun: time.Now(), stop: cancel, stopped: make(chan struct{})}
	jobs := make(chan string, rate)
	var all sync.WaitGroup
	all.Go(func() { l.schedule(ctx, rate, proxies, jobs) })
	for range loadWorkers {
		all.Go(func() { l.work(node, jobs) })
	}
	go func() {
		all.Wait()
		close(l.stopped)
	}()
	t.Cleanup(func() {
		cancel()
		<-l.stopped
	})
	return l
}

// schedule says when the next request is due, whatever became of those before.
// Those that a busy machine did not come to are made up for, up to one second's.
func (l *load) schedule(ctx context.Context, rate int, proxies []string, jobs chan<- string) {
	defer close(jobs)
	tick := time.NewTicker(max(time.Second/time.Duration(rate), time.Millisecond))
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			l.mu.Lock()
			l.due = n
			l.mu.Unlock()
			return
		case <-tick.C:
		}
		for want := int(time.Since(l.begun).Seconds() * float64(rate)); n < want; n++ {
			select {
			case jobs <- proxies[n%len(proxies)]:
			default: // a second's requests wait already
			}
		}
	}
}

// work makes requests, some on a connection, over some that are kept, some new.
func (l *load) work(node *netns.Node, jobs <-chan string) {
	conns := map[string]*httpConn{}
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for n := 1; ; n++ {
		at, more := <-jobs
		if !more {
			return
		}
		c := conns[at]
		if c == nil {
			c = newHTTPConn(node, at)
			conns[at] = c
		}
		a := answer{sent: time.Now(), by: at}
		code, body, err := c.do("GET / HTTP/1.1\r\nHost: web\r\n\r\n", patience)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, strings.TrimSpace(body))
		}
		a.took, a.from, a.err = time.Since(a.sent), body, err
		if n%25 == 0 {
			c.close()
		}
		l.mu.Lock()
		l.answers = append(l.answers, a)
		l.mu.Unlock()
	}
}

// flows waits until so many more requests were answered.
func (l *load) flows(n int) {
	l.t.Helper()
	l.mu.Lock()
	want := len(l.answers) + n
	l.mu.Unlock()
	eventually(l.t, 2*patience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.answers) < want {
			return fmt.Errorf("%d of %d", len(l.answers), want)
		}
		return nil
	}, "the load goes on")
}

// sentTo is how many requests were sent after a time and answered by an instance.
func (l *load) sentTo(instance string, after time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.from == instance && a.sent.After(after) {
			n++
		}
	}
	return n
}

// faultless ends the load, fails the test if one request was not answered with
// 200, and returns the answers.
func (l *load) faultless() []answer {
	l.t.Helper()
	l.stop()
	<-l.stopped
	errs := 0
	var worst time.Duration
	from := map[string]int{}
	for _, a := range l.answers {
		worst = max(worst, a.took)
		if a.err == nil {
			from[a.from]++
			continue
		}
		if errs++; errs <= 10 {
			l.t.Errorf("%s, %v after the beginning of the load, in %v: %v", a.by, a.sent.Sub(l.begun).Round(time.Millisecond), a.took.Round(time.Millisecond), a.err)
		}
	}
	n, span := len(l.answers), time.Since(l.begun)
	l.t.Logf("load: %d GET in %v (%.0f/s), %d errors, the longest took %v, answers of %v",
		n, span.Round(time.Millisecond), float64(n)/span.Seconds(), errs, worst.Round(time.Millisecond), from)
	switch {
	case errs > 0:
		l.t.Errorf("%d of %d requests failed, want none", errs, n)
	case n == 0 || n < l.due/2 && scale.Factor() >= 1: // else flows sees to it that there are enough
		l.t.Errorf("%d requests were made, %d were due: the machine is too busy for this test", n, l.due)
	}
	return l.answers
}
