package api

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// preface is how every client of HTTP/2 begins.
const preface = "PRI "

// web answers the few things that are asked by HTTP/1.1 on a listener of gRPC: see
// etcd.Front.HTTP. It stands before gRPC, in the handshake of each connection, and
// looks at how the client begins.
type web struct {
	net.Listener
	server  *http.Server
	conns   chan net.Conn // for the server
	stopped chan struct{}
}

func newWeb(l net.Listener, handler http.Handler, log *slog.Logger) *web {
	w := &web{Listener: l, conns: make(chan net.Conn), stopped: make(chan struct{}), server: &http.Server{
		Handler:           handler,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       handshakeTimeout,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}}
	w.server.SetKeepAlivesEnabled(false) // who asks now and then keeps no connection from others
	return w
}

// serve answers until stop.
func (w *web) serve() { _ = w.server.Serve(&webListener{Listener: w.Listener, web: w}) }

// stop lets requests under way finish until ctx ends, then cuts them off.
func (w *web) stop(ctx context.Context) {
	if w.server.Shutdown(ctx) != nil {
		_ = w.server.Close()
	}
}

// webListener gives the server what was not for gRPC.
type webListener struct {
	net.Listener
	web  *web
	once sync.Once
}

// Accept implements net.Listener.
func (l *webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.web.conns:
		return c, nil
	case <-l.web.stopped:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. What gRPC listens on is left to that.
func (l *webListener) Close() error {
	l.once.Do(func() { close(l.web.stopped) })
	return nil
}

// Accept implements net.Listener, for gRPC.
func (w *web) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &accepted{Conn: c}, nil
}

// accepted is a connection as gRPC knows it. Once it was given away, gRPC's
// deadlines are not those of the connection any more.
type accepted struct {
	net.Conn
	given atomic.Bool
}

// SetDeadline implements net.Conn.
func (a *accepted) SetDeadline(t time.Time) error {
	if a.given.Load() {
		return nil
	}
	return a.Conn.SetDeadline(t)
}

// webCredentials are those of a server behind a web.
type webCredentials struct {
	credentials.TransportCredentials
	web *web
}

// ServerHandshake implements credentials.TransportCredentials. gRPC bounds the time
// of it.
func (w webCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	a, ok := raw.(*accepted)
	if !ok {
		return w.TransportCredentials.ServerHandshake(raw)
	}
	conn, info, err := w.TransportCredentials.ServerHandshake(a.Conn)
	if err != nil {
		return conn, info, err
	}
	b := &begun{Conn: conn, head: make([]byte, len(preface))}
	if _, err := io.ReadFull(conn, b.head); err != nil {
		_ = conn.Close()
		return nil, nil, io.EOF // nothing was said: no matter for the log
	}
	if string(b.head) == preface {
		return b, info, nil
	}
	a.given.Store(true)
	_ = a.Conn.SetDeadline(time.Time{})
	select {
	case w.web.conns <- b:
		return nil, nil, credentials.ErrConnDispatched
	case <-w.web.stopped:
		_ = conn.Close()
		return nil, nil, io.EOF
	}
}

// Clone implements credentials.TransportCredentials.
func (w webCredentials) Clone() credentials.TransportCredentials {
	return webCredentials{w.TransportCredentials.Clone(), w.web}
}

// begun is a connection of which the first bytes were read already.
type begun struct {
	net.Conn
	head []byte
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.head) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.head)
	b.head = b.head[n:]
	return n, nil
}
