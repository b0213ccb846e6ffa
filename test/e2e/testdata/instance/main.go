// Command instance is what the tests of the L7 data plane run as an instance of
// a service: it answers with its name, echoes WebSockets, and misbehaves with
// POST in the way that it is told to.
//
// Its log has a line for each POST, written before anything else is done with
// it, so that it holds what the process got also when that is killed:
//
//	took ID       the process took this request
//	FAULT ID      and did this to it
package main

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Faults of POST. Those that begin with die are a kill -9 of the process.
const (
	faultNone        = ""
	faultDieUnread   = "die-unread"   // before a byte of the request is read
	faultDieRead     = "die-read"     // after the whole request was read
	faultDieHalf     = "die-half"     // after a half of the answer
	faultResetUnread = "reset-unread" // the connection is reset
	faultResetRead   = "reset-read"
	faultSlow        = "slow" // the answer takes longer than a try may
)

// slowTime is beyond the proxy's default try_timeout of 250 ms.
const slowTime = 400 * time.Millisecond

func main() {
	name := flag.String("name", "", "what GET is answered with")
	listen := flag.String("listen", "", "address, IP:PORT")
	log := flag.String("log", "", "file to append to")
	fault := flag.String("fault", faultNone, "what to do with a POST")
	every := flag.Uint64("every", 1, "to each of so many")
	after := flag.Duration("after", 0, "how long a GET takes")
	flag.Parse()
	s := &server{name: *name, fault: *fault, every: *every, after: *after}
	if err := s.run(*listen, *log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type server struct {
	name, fault string
	every       uint64
	after       time.Duration
	log         *os.File // nil: none
	posts       atomic.Uint64
}

func (s *server) run(listen, log string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if log != "" {
		if s.log, err = os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if s.after > 0 {
			select {
			case <-time.After(s.after):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, s.name)
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /echo", echo)
	mux.HandleFunc("POST /", s.post)
	server := &http.Server{Handler: mux, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}}
	return server.Serve(listener{l.(*net.TCPListener), s})
}

// note writes a line at once.
func (s *server) note(word, id string) {
	if s.log != nil {
		_, _ = s.log.WriteString(word + " " + id + "\n")
	}
}

// struck reports whether this POST is to suffer.
func (s *server) struck() bool { return s.fault != faultNone && s.posts.Add(1)%s.every == 0 }

func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

func reset(c *net.TCPConn) { _ = errors.Join(c.SetLinger(0), c.Close()) }

func (s *server) post(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Test-Id")
	s.note("took", id)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	unread := s.fault == faultDieUnread || s.fault == faultResetUnread
	if unread || !s.struck() {
		_, _ = io.WriteString(w, s.name)
		return
	}
	s.note(s.fault, id)
	switch s.fault {
	case faultDieRead:
		die()
	case faultResetRead:
		reset(r.Context().Value(connKey{}).(conn).TCPConn)
	case faultDieHalf:
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		die()
	case faultSlow:
		select {
		case <-time.After(slowTime):
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, s.name)
	}
}

// echo sends back what comes over a WebSocket. A proxy does not look into the
// frames, so there are none.
func echo(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer client.Close()
	_, err = fmt.Fprintf(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if err == nil {
		_, _ = io.Copy(client, buffered)
	}
}

type connKey struct{}

// listener takes connections that show a request before it is read.
type listener struct {
	*net.TCPListener
	server *server
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return conn{c, l.server}, nil
}

// conn strikes before a POST is read.
type conn struct {
	*net.TCPConn
	server *server
}

func (c conn) Read(b []byte) (int, error) {
	unread := c.server.fault == faultDieUnread || c.server.fault == faultResetUnread
	if unread && c.next() == "POST " && c.server.struck() {
		c.server.note(c.server.fault, "?")
		if c.server.fault == faultDieUnread {
			die()
		}
		reset(c.TCPConn)
	}
	return c.TCPConn.Read(b)
}

// next is how what waits to be read begins.
func (c conn) next() string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	var b [5]byte
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if err != nil {
		return ""
	}
	return string(b[:max(n, 0)])
}
