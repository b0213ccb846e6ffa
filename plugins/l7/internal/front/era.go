package front

import (
	"context"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// era is the time of one version of the settings: an http.Server and the
// connections that began under it.
type era struct {
	server *http.Server
	conns  chan net.Conn
	over   chan struct{} // closed by Close
	once   sync.Once
	open   atomic.Int64 // connections, those on their way to the server included
	served chan struct{}
}

// guardFirst is how much later than the guard the server ends a connection whose
// first head does not come: the guard says 408 to one that has begun, and counts
// it.
const guardFirst = 500 * time.Millisecond

func newEra(s settings.Settings, first time.Duration, handler http.Handler, log *slog.Logger) *era {
	e := &era{conns: make(chan net.Conn), over: make(chan struct{}), served: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(s.H2C)
	e.server = &http.Server{
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the service

		Handler: handler, Protocols: protocols, ConnContext: http1.ConnContext,
		ReadHeaderTimeout: s.Timeouts.Header + first, IdleTimeout: s.Timeouts.Idle, MaxHeaderBytes: s.MaxHeaderBytes,
		ErrorLog: stdlog.New(complaints{log}, "", 0),
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateClosed, http.StateHijacked:
				e.open.Add(-1)
				waits(conn, time.Time{})
			case http.StateIdle:
				waits(conn, time.Now())
			case http.StateActive:
				waits(conn, time.Time{})
			default:
			}
		},
	}
	go func() {
		defer close(e.served)
		_ = e.server.Serve(e) // ends with Close of the era, as it should
	}()
	return e
}

// waits notes since when a connection is without a request; zero: it has one.
func waits(conn net.Conn, since time.Time) {
	g, ok := conn.(*http1.Guard)
	if !ok {
		return
	}
	if c, ok := g.Conn.(*visitor); ok {
		at := int64(0)
		if !since.IsZero() {
			at = since.UnixNano()
		}
		c.waiting.Store(at)
	}
}

// complaints takes what the server writes: mostly of clients that misbehave, which
// is no news, but a handler that panics is.
type complaints struct{ log *slog.Logger }

// Write logs one message.
func (c complaints) Write(b []byte) (int, error) {
	message := strings.TrimSpace(string(b))
	level := slog.LevelDebug
	if strings.Contains(message, "panic serving") {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, message)
	return len(b), nil
}

// take hands a connection, which open counts already, to the server.
func (e *era) take(c net.Conn) {
	select {
	case e.conns <- c:
	case <-e.over:
		e.open.Add(-1)
		_ = c.Close()
	}
}

// Accept implements net.Listener for the server.
func (e *era) Accept() (net.Conn, error) {
	select {
	case c := <-e.conns:
		return c, nil
	case <-e.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: no more connections come.
func (e *era) Close() error {
	e.once.Do(func() { close(e.over) })
	return nil
}

// Addr implements net.Listener.
func (e *era) Addr() net.Addr { return &net.TCPAddr{} }

// end lets requests come to their end until ctx ends, and cuts the rest after a
// call of cut.
func (e *era) end(ctx context.Context, cut func()) {
	_ = e.Close()
	if err := e.server.Shutdown(ctx); err != nil {
		cut()
		_ = e.server.Close()
	}
	<-e.served
}
