package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
)

// tunnelBytes is the size of the buffer of one direction.
const tunnelBytes = 8 << 10

// tunnel is a WebSocket: two directions that end on their own.
type tunnel struct {
	x       *exchange
	client  net.Conn
	backend *backend.Conn
	heard   atomic.Int64 // unix ns of the last byte in either direction
	half    atomic.Bool  // one direction has ended
}

// switched handles a 101 (Switching Protocols). On a failure the client still
// waits for an answer.
func (x *exchange) switched(c *backend.Conn, answer *http.Response) *failure {
	if !x.head.upgrade || !strings.EqualFold(answer.Header.Get(headerUpgrade), "websocket") {
		x.answer.unwatch()
		_ = x.quit(c)
		return &failure{reason: ReasonBadUpgrade, err: errors.New("101 to something that the client did not ask for")}
	}
	if !x.answer.unwatch() {
		_ = x.quit(c)
		x.reason = ReasonClientAbort
		return nil
	}
	if guard := http1.FromContext(x.r.Context()); guard != nil {
		guard.Upgrade()
	}
	client, rw, err := x.control.Hijack()
	if err != nil {
		c.Discard()
		return &failure{reason: ReasonBadUpgrade, err: err}
	}
	defer client.Close()
	defer c.Discard()
	x.status, x.tunnel = http.StatusSwitchingProtocols, true
	c.SetReadDeadline(time.Time{})

	t := &tunnel{x: x, client: client, backend: c}
	x.p.open(t)
	defer x.p.end(t)
	if _, err := client.Write(appendSwitch(make([]byte, 0, 512), answer.Header)); err != nil {
		x.reason = ReasonClientAbort
		return nil
	}
	t.run(rw.Reader)
	return nil
}

// appendSwitch writes the head of the 101, without what concerned the
// connection to the backend only.
func appendSwitch(b []byte, h http.Header) []byte {
	b = append(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"...)
	kept := http.Header{}
	copyHeader(kept, h)
	for name, values := range kept {
		if name == headerContentLength {
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v, true)
		}
	}
	return append(b, "\r\n"...)
}

// open notes a tunnel.
func (p *Proxy) open(t *tunnel) {
	p.tunnelsMu.Lock()
	defer p.tunnelsMu.Unlock()
	p.tunnels[t] = struct{}{}
}

func (p *Proxy) end(t *tunnel) {
	p.tunnelsMu.Lock()
	defer p.tunnelsMu.Unlock()
	delete(p.tunnels, t)
}

// Tunnels is the number of WebSockets that are open.
func (p *Proxy) Tunnels() int {
	p.tunnelsMu.Lock()
	defer p.tunnelsMu.Unlock()
	return len(p.tunnels)
}

// CloseTunnels ends all WebSockets that are open.
func (p *Proxy) CloseTunnels() {
	p.tunnelsMu.Lock()
	defer p.tunnelsMu.Unlock()
	for t := range p.tunnels {
		t.cut()
	}
}

// run copies both ways until both have ended. Bytes that came right behind the
// handshake are in the buffered readers of both sides (golang#80875).
func (t *tunnel) run(fromClient io.Reader) {
	t.heard.Store(time.Now().UnixNano())
	up := make(chan struct{})
	go func() {
		defer close(up)
		n := t.copy(t.backend, t.backend.TCP().CloseWrite, fromClient, t.client.SetReadDeadline, t.backend.SetWriteDeadline, t.backend.SetReadDeadline)
		t.x.in = n
	}()
	t.x.out = t.copy(t.client, func() error { return closeWrite(t.client) }, t.backend.Reader(), readDeadline(t.backend), setClient(t.client.SetWriteDeadline), setClient(t.client.SetReadDeadline))
	<-up
	t.x.at.received.Add(uint64(t.x.out))
	t.x.at.sent.Add(uint64(t.x.in))
}

func readDeadline(c *backend.Conn) func(time.Time) error {
	return func(at time.Time) error {
		c.SetReadDeadline(at)
		return nil
	}
}

func setClient(set func(time.Time) error) func(time.Time) {
	return func(at time.Time) { _ = set(at) }
}

// copy passes one direction on until it ends: by its end, which is passed on
// too; by silence; or by an error, which ends the other direction as well.
// wake sets the time at which the other direction's read ends.
func (t *tunnel) copy(
	to io.Writer, closeWrite func() error, from io.Reader,
	readUntil func(time.Time) error, writeUntil func(time.Time), wake func(time.Time),
) (n int64) {
	buffer := make([]byte, tunnelBytes)
	for {
		half := t.half.Load()
		_ = readUntil(t.until())
		// Invariant: the deadline of a tunnel that was cut is in the past. cut
		// sets its mark before the deadline, this reads the mark after it.
		if t.backend.Interrupted() {
			t.cut()
			return n
		}
		if t.half.Load() != half {
			continue // the other direction has ended meanwhile
		}
		got, err := from.Read(buffer)
		if got > 0 {
			now := time.Now()
			t.heard.Store(now.UnixNano())
			if idle := t.x.options.bodyIdle; idle > 0 {
				writeUntil(now.Add(idle))
			}
			sent, werr := to.Write(buffer[:got])
			n += int64(sent)
			if werr != nil {
				t.cut()
				return n
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if closeWrite() != nil {
				t.cut()
				return n
			}
			t.half.Store(true)
			wake(t.until())
			return n
		case timeout(err) && !t.backend.Interrupted() && time.Now().Before(t.until()):
			// The other direction has heard something.
		default:
			t.cut()
			return n
		}
	}
}

// until is when silence has lasted too long; zero: never.
func (t *tunnel) until() time.Time {
	idle := t.x.options.tunnelIdle
	if t.half.Load() && (idle <= 0 || t.x.options.halfClosed < idle) {
		idle = t.x.options.halfClosed
	}
	if idle <= 0 {
		return time.Time{}
	}
	return time.Unix(0, t.heard.Load()).Add(idle)
}

// cut ends both directions.
func (t *tunnel) cut() {
	t.backend.Interrupt()
	_ = t.client.SetDeadline(time.Unix(1, 0))
}
