package http1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBytes = 4 << 10
	// maxAwaitBytes is what may come behind a request for an upgrade before
	// the answer to it. A websocket client has to wait for that (RFC 6455,
	// section 4.1).
	maxAwaitBytes = 16 << 10
	// maxDrainBytes and drainTime are what is read of a refused connection
	// before it is closed: closing with bytes unread resets it, and the client
	// might never see the answer.
	maxDrainBytes = 4 << 20
	drainTime     = 2 * time.Second
)

// Guard is a server's side of a connection whose requests are checked. Read is
// for one goroutine at a time, as http.Server uses it, all else for any.
type Guard struct {
	net.Conn

	// Of Read.
	scanner *Scanner
	held    []byte // read and not handed out
	ready   int    // of held: may be handed out
	err     error  // to be told when held is handed out
	drain   int64  // bytes discarded after a refusal
	clock   bool   // headBy is set

	raw     atomic.Bool  // Upgrade was called
	over    atomic.Int64 // requests for an upgrade whose handler has returned
	refusal atomic.Pointer[Refusal]
	drained chan struct{} // closed when there is nothing left to discard

	mu       sync.Mutex
	deadline time.Time // as the server set it
	headBy   time.Time // when the head of which a part is held has to be whole
}

// NewGuard checks the requests that come in on conn.
func NewGuard(conn net.Conn, limits Limits) *Guard {
	return &Guard{Conn: conn, scanner: NewScanner(limits), drained: make(chan struct{})}
}

// Upgrade ends the checks: what follows is no HTTP/1. Call it before the
// connection is hijacked for a 101 (Switching Protocols). What the client sent
// behind its request is read first.
func (g *Guard) Upgrade() { g.raw.Store(true) }

// Refusal returns why the last request of the connection was refused, or nil.
func (g *Guard) Refusal() *Refusal { return g.refusal.Load() }

// Read hands out bytes that were found good. Its error is a *net.OpError with
// the *Refusal if a body was refused.
func (g *Guard) Read(p []byte) (int, error) {
	n, err := g.read(p)
	g.stopClock()
	return n, err
}

func (g *Guard) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if g.raw.Load() {
			g.ready = len(g.held)
		}
		switch {
		case g.ready > 0:
			return g.handOut(p), nil
		case g.err != nil:
			return 0, g.err
		case g.raw.Load():
			return g.Conn.Read(p)
		case g.refusal.Load() != nil:
			return 0, g.discard()
		}
		if g.scanner.Awaiting() && g.over.Load() >= g.scanner.Upgrades() {
			g.scanner.Resume()
			g.feed()
			continue
		}
		if n, err := g.more(p); n > 0 || err != nil {
			return n, err
		}
	}
}

// more reads from the connection and feeds the scanner. The bytes are in p, or
// held.
func (g *Guard) more(p []byte) (int, error) {
	if len(g.held) == 0 {
		n, err := g.Conn.Read(p)
		if err != nil && n > 0 {
			g.err, err = err, nil
		}
		if err != nil || g.raw.Load() {
			return n, err
		}
		pass, refusal := g.scanner.Feed(p[:n])
		g.held = append(g.held, p[pass:n]...)
		g.settle(0, refusal)
		return pass, nil
	}
	if g.scanner.Awaiting() && len(g.held) > maxAwaitBytes {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: errTooEager}
	}
	n := len(g.held)
	if cap(g.held)-n < readBytes/2 {
		g.held = append(make([]byte, 0, 2*cap(g.held)+readBytes), g.held...)
	}
	if !g.scanner.Awaiting() && g.scanner.BetweenRequests() {
		g.startClock()
	}
	got, err := g.Conn.Read(g.held[n:cap(g.held)])
	g.held = g.held[:n+got]
	switch {
	case got > 0:
		g.err = err
		if !g.raw.Load() {
			g.feed()
		}
		return 0, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && g.headIsLate():
		g.settle(0, &Refusal{http.StatusRequestTimeout, "the header did not come in time"})
		return 0, nil
	}
	return 0, err
}

var errTooEager = errors.New("http1: data behind a request for an upgrade, before the answer")

func (g *Guard) feed() {
	pass, refusal := g.scanner.Feed(g.held)
	g.settle(pass, refusal)
}

// settle takes in what the scanner said of held.
func (g *Guard) settle(pass int, refusal *Refusal) {
	g.ready = pass
	if refusal == nil {
		return
	}
	g.refusal.Store(refusal)
	g.held = g.held[:pass]
	if g.scanner.BetweenRequests() {
		g.held = append(g.held, refusedMethod+" / HTTP/1.1\r\nHost: refused\r\n\r\n"...)
		g.ready = len(g.held)
		return
	}
	g.err = &net.OpError{Op: "read", Net: "tcp", Source: g.LocalAddr(), Addr: g.RemoteAddr(), Err: refusal}
}

func (g *Guard) handOut(p []byte) int {
	n := copy(p, g.held[:g.ready])
	g.held, g.ready = g.held[n:], g.ready-n
	if len(g.held) == 0 {
		g.held = nil // an idle connection needs no buffer
	}
	return n
}

// discard reads what a refused client still sends, for the server's background
// reader.
func (g *Guard) discard() error {
	buf := make([]byte, 8*readBytes)
	for g.drain < maxDrainBytes {
		n, err := g.Conn.Read(buf)
		g.drain += int64(n)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				g.endDrain(err)
			}
			return err
		}
	}
	g.endDrain(io.EOF)
	return io.EOF
}

func (g *Guard) endDrain(err error) {
	g.err = err
	close(g.drained)
}

// startClock gives the head of which a part is held its time. It ends with the
// call of Read: while nobody reads, the client is not late.
func (g *Guard) startClock() {
	if g.clock {
		return
	}
	g.clock = true
	g.mu.Lock()
	defer g.mu.Unlock()
	g.headBy = time.Now().Add(g.scanner.limits.HeaderTimeout)
	_ = g.Conn.SetReadDeadline(earlier(g.deadline, g.headBy)) // fails on a closed connection only, as Read will
}

func (g *Guard) stopClock() {
	if !g.clock {
		return
	}
	g.clock = false
	g.mu.Lock()
	defer g.mu.Unlock()
	g.headBy = time.Time{}
	_ = g.Conn.SetReadDeadline(g.deadline)
}

// headIsLate tells the end of a head's time from a deadline of the server's.
func (g *Guard) headIsLate() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clock && earlier(g.deadline, g.headBy).Equal(g.headBy) && !time.Now().Before(g.headBy)
}

// SetReadDeadline is net.Conn's.
func (g *Guard) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = t
	return g.Conn.SetReadDeadline(earlier(t, g.headBy))
}

// SetDeadline is net.Conn's.
func (g *Guard) SetDeadline(t time.Time) error {
	return errors.Join(g.SetReadDeadline(t), g.SetWriteDeadline(t))
}

// earlier compares deadlines, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ReadFrom lets the connection use sendfile and splice.
func (g *Guard) ReadFrom(r io.Reader) (int64, error) { return io.Copy(g.Conn, r) }

// CloseWrite ends the answers, as TCP can.
func (g *Guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
