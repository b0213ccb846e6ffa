// Package traffic sends a steady stream of HTTP requests and keeps account of
// each: one attempt, no retries, nothing left out of the figures.
package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config says what to send.
type Config struct {
	Addr  string        // HOST:PORT to connect to
	Host  string        // of the requests
	Rate  float64       // requests a second
	For   time.Duration // how long
	Limit time.Duration // for one request, connecting included
	// Fresh makes a new connection for each request; else they are kept.
	Fresh bool
	// Name is the header of an answer that says who gave it.
	Name string
	// FailHeader is the header of an answer other than 200 that says why.
	FailHeader string
	// Now is the clock, a monotonic one.
	Now func() time.Time
}

// Result is what became of all requests.
type Result struct {
	Requests int
	Errors   int
	Rate     float64           // requests a second that were begun
	Answers  map[string]uint64 // by who gave them; those that are no errors
	Causes   map[string]int    // errors by what was wrong
	P50      time.Duration
	P99      time.Duration
	Max      time.Duration
	// FirstError and LastError are when the first and the last request with an error
	// were begun.
	FirstError, LastError time.Time
}

// Run sends until cfg.For is over, or ctx ends, and returns when the last request
// has ended. A request has its place in time however long those before take, and
// its latency counts from there: a stall is not hidden by what is not sent.
func Run(ctx context.Context, cfg Config) Result {
	r := &run{cfg: cfg, result: Result{Answers: map[string]uint64{}, Causes: map[string]int{}}}
	defer r.close()
	var running sync.WaitGroup
	begin := cfg.Now()
	n := int(cfg.Rate * cfg.For.Seconds())
	pace := time.NewTimer(0)
	defer pace.Stop()
	last := begin
	for i := range n {
		due := begin.Add(time.Duration(float64(i) / cfg.Rate * float64(time.Second)))
		pace.Reset(due.Sub(cfg.Now()))
		select {
		case <-pace.C:
		case <-ctx.Done():
			n = i
		}
		if i == n {
			break
		}
		last = cfg.Now()
		running.Go(func() { r.attempt(due) })
	}
	running.Wait()
	r.result.Requests = n
	// The last request has its place until the next would come.
	if took := last.Sub(begin).Seconds() + 1/cfg.Rate; n > 0 {
		r.result.Rate = float64(n) / took
	}
	slices.Sort(r.took)
	r.result.P50, r.result.P99, r.result.Max = rank(r.took, 0.5), rank(r.took, 0.99), rank(r.took, 1)
	return r.result
}

// rank returns the value below or at which a share of the sorted values are.
func rank(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

type run struct {
	cfg Config

	mu     sync.Mutex // guards the following
	idle   []*conn
	took   []time.Duration
	result Result
}

// conn is a kept connection. One request at a time uses it.
type conn struct {
	net.Conn
	read *bufio.Reader
}

func (r *run) attempt(due time.Time) {
	began := r.cfg.Now()
	name, err := r.ask(began.Add(r.cfg.Limit))
	took := r.cfg.Now().Sub(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, took)
	if err == nil {
		r.result.Answers[name]++
		return
	}
	r.result.Errors++
	r.result.Causes[err.Error()]++
	if r.result.FirstError.IsZero() || began.Before(r.result.FirstError) {
		r.result.FirstError = began
	}
	if began.After(r.result.LastError) {
		r.result.LastError = began
	}
}

var errLimit = errors.New("no answer in time")

// ask sends one request, once.
func (r *run) ask(deadline time.Time) (name string, err error) {
	c, err := r.get(deadline)
	if err != nil {
		return "", shorten("connect", err)
	}
	keep := false
	defer func() {
		if keep {
			r.put(c)
		} else {
			_ = c.Close()
		}
	}()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+r.cfg.Host+"\r\n\r\n"); err != nil {
		return "", shorten("send", err)
	}
	answer, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return "", shorten("receive", err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return "", shorten("receive", err)
	}
	keep = !answer.Close && !r.cfg.Fresh
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("answer %s %s", answer.Status, answer.Header.Get(r.cfg.FailHeader))
	}
	return answer.Header.Get(r.cfg.Name), nil
}

// shorten makes errors of different ports and times the same cause.
func shorten(step string, err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%s: %w", step, errLimit)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("%s: %w", step, err)
}

func (r *run) get(deadline time.Time) (*conn, error) {
	r.mu.Lock()
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return c, nil
	}
	r.mu.Unlock()
	c, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", r.cfg.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, read: bufio.NewReader(c)}, nil
}

func (r *run) put(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
}

func (r *run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.idle {
		_ = c.Close()
	}
	r.idle = nil
}
