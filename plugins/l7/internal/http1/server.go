package http1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Listener returns l with a Guard around each connection.
func Listener(l net.Listener, limits Limits) net.Listener { return &listener{l, limits} }

type listener struct {
	net.Listener
	limits Limits
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewGuard(c, l.limits), nil
}

type guardKey struct{}

// ConnContext is for http.Server: it lets Handler and FromContext find the
// guard.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(*Guard); ok {
		return context.WithValue(ctx, guardKey{}, g)
	}
	return ctx
}

// FromContext returns the guard of the connection that a request came in on, or
// nil.
func FromContext(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// Handler answers refused requests and hands all others to next. refused, if
// not nil, is told of each before it is answered; it must not write. The
// request that it is given is the guard's own: only its RemoteAddr and its
// context mean something.
func Handler(next http.Handler, refused func(*http.Request, *Refusal)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := FromContext(r.Context())
		if g == nil {
			next.ServeHTTP(w, r)
			return
		}
		if refusal := g.Refusal(); refusal != nil && r.Method == refusedMethod {
			if refused != nil {
				refused(r, refusal)
			}
			g.answer(w, refusal)
			return
		}
		if len(r.Header["Upgrade"]) > 0 {
			// Invariant: the guard lets no other Upgrade pass than one it waits
			// behind.
			defer g.over.Add(1)
		}
		next.ServeHTTP(w, r)
	})
}

// Linger ends the answers, and gives a client whose body was refused time to read
// the last one: closing with bytes unread resets the connection. It is for a
// handler that has flushed its answer and is done; nobody else may read.
func (g *Guard) Linger() {
	if g.CloseWrite() != nil {
		return
	}
	_ = g.Conn.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, g.Conn, maxDrainBytes)
}

// answer writes a refusal and gives the client time to read it.
func (g *Guard) answer(w http.ResponseWriter, refusal *Refusal) {
	body := refusal.Reason + "\n"
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Fairlead-Reason", "bad-request")
	w.WriteHeader(refusal.Status)
	if _, err := io.WriteString(w, body); err != nil {
		return
	}
	if http.NewResponseController(w).Flush() != nil || g.CloseWrite() != nil {
		return
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-g.drained: // by the server's background reader
	case <-timer.C:
	}
}
