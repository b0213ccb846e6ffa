package api

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// maxHandshakes bounds the connections that have not shown yet who they are: more
// are closed at once. Clients try again by themselves.
const maxHandshakes = 1 << 10

// complainEvery bounds how often refused connections are logged.
const complainEvery = 10 * time.Second

var errManyHandshakes = errors.New("too many connections have not finished their TLS handshake yet")

// gate bounds TLS handshakes, and says why they fail.
type gate struct {
	net.Listener
	slots chan struct{}
	log   *slog.Logger

	mu     sync.Mutex
	saidAt time.Time
	unsaid int // refused since then
}

func newGate(l net.Listener, log *slog.Logger) *gate {
	return &gate{Listener: l, slots: make(chan struct{}, maxHandshakes), log: log}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.slots <- struct{}{}:
			return &entering{Conn: c, leave: sync.OnceFunc(func() { <-g.slots })}, nil
		default:
		}
		_ = c.Close()
		g.refused(c, errManyHandshakes)
	}
}

// refused logs why a connection was not taken, unless that was said just now.
func (g *gate) refused(c net.Conn, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.saidAt.IsZero() && time.Since(g.saidAt) < complainEvery {
		g.unsaid++
		return
	}
	g.log.Warn("a client's TLS handshake failed", "listener", g.Addr().String(), "from", c.RemoteAddr().String(), "error", err, "more_before", g.unsaid)
	g.saidAt, g.unsaid = time.Now(), 0
}

// entering is a connection that has a slot of the gate, until its handshake is
// over or it was closed.
type entering struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (e *entering) Close() error {
	e.leave()
	return e.Conn.Close()
}

// gateCredentials are those of a server behind a gate.
type gateCredentials struct {
	credentials.TransportCredentials
	gate *gate
}

// ServerHandshake implements credentials.TransportCredentials.
func (g gateCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if e, ok := raw.(*entering); ok {
		defer e.leave()
	}
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		g.gate.refused(raw, err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (g gateCredentials) Clone() credentials.TransportCredentials {
	return gateCredentials{g.TransportCredentials.Clone(), g.gate}
}
