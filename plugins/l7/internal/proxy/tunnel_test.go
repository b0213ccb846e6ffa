package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// echoSocket is a backend that sends every message back.
func echoSocket(t testing.TB) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if c.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	})
}

// socket opens a WebSocket through the proxy.
func (w *world) socket() *gorilla.Conn {
	w.t.Helper()
	dialer := gorilla.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", w.addr)
	}}
	c, answer, err := dialer.Dial("ws://web/", nil)
	if err != nil {
		w.t.Fatalf("%v %v", err, answer)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoes sends a message and expects it back.
func echoes(t testing.TB, c *gorilla.Conn, message []byte) {
	t.Helper()
	if err := echo(c, message); err != nil {
		t.Fatal(err)
	}
}

func echo(c *gorilla.Conn, message []byte) error {
	_ = c.SetReadDeadline(time.Now().Add(await.Patience))
	if err := c.WriteMessage(gorilla.BinaryMessage, message); err != nil {
		return err
	}
	_, got, err := c.ReadMessage()
	if err != nil || !bytes.Equal(got, message) {
		return fmt.Errorf("%d bytes came back as %d: %w", len(message), len(got), err)
	}
	return nil
}

func TestWebSocketMessages(t *testing.T) {
	w := newWorld(t, nil, echoSocket(t))
	c := w.socket()
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, scale.N(16) << 20} {
		echoes(t, c, bytes.Repeat([]byte{7}, n))
	}
	if w.proxy.Tunnels() != 1 {
		t.Errorf("%d tunnels", w.proxy.Tunnels())
	}
	if err := c.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, "bye")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadMessage(); !gorilla.IsCloseError(err, gorilla.CloseNormalClosure) {
		t.Errorf("closed with %v", err)
	}
	_ = c.Close()
	w.logged(`"status":101`, `"tunnel":true`)
	if w.proxy.Tunnels() != 0 {
		t.Error("the tunnel stays")
	}
}

func TestWebSocketOfAnotherClient(t *testing.T) {
	w := newWorld(t, nil, echoSocket(t))
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://web/", &websocket.DialOptions{HTTPClient: w.client(), CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(ctx); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

const handshake = "GET / HTTP/1.1\r\nHost: web\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"

// D5: bytes right behind the handshake are kept, in both directions; C7: names
// are written as RFC 6455 does; D5b: fields of the other connection are not
// passed on.
func TestBytesBehindTheHandshake(t *testing.T) {
	heads := make(chan string, 1)
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		heads <- head
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade, X-Secret\r\nupgrade: websocket\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nSec-WebSocket-Accept: y\r\n\r\nserver first")
		got := make([]byte, len("client first"))
		_, _ = io.ReadFull(r, got)
		_, _ = c.Write(bytes.ToUpper(got))
	})
	w := newWorld(t, nil, b)
	c, r := w.dial()
	_, _ = io.WriteString(c, handshake+"client first")
	if head := <-heads; !strings.Contains(head, "\r\nSec-WebSocket-Key: x\r\n") || !strings.Contains(head, "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n") {
		t.Errorf("the backend was asked\n%s", head)
	}
	head, err := readHead(r)
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "\r\nSec-WebSocket-Accept: y\r\n") {
		t.Fatalf("%q %v", head, err)
	}
	if strings.Contains(head, "Secret") || strings.Contains(head, "Keep-Alive") {
		t.Errorf("passed on:\n%s", head)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "server firstCLIENT FIRST" {
		t.Errorf("%q %v", rest, err)
	}
}

// D4: each side may end first, and the other direction goes on.
func TestHalfClose(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if strings.HasPrefix(head, "GET /server ") {
			_, _ = io.WriteString(c, "mine")
			_ = c.CloseWrite()
			got, _ := io.ReadAll(r)
			if string(got) != "yours" {
				t.Errorf("the backend got %q", got)
			}
			return
		}
		got, _ := io.ReadAll(r)
		_, _ = c.Write(append([]byte("after the end: "), got...))
	})
	w := newWorld(t, func(o *options) { o.halfClosed = 300 * time.Millisecond }, b)
	t.Run("client", func(t *testing.T) {
		c, r := w.dial()
		_, _ = io.WriteString(c, handshake)
		_, _ = readHead(r)
		_, _ = io.WriteString(c, "x")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(r); err != nil || string(got) != "after the end: x" {
			t.Errorf("%q %v", got, err)
		}
	})
	t.Run("server", func(t *testing.T) {
		c, r := w.dial()
		_, _ = io.WriteString(c, strings.Replace(handshake, "GET /", "GET /server", 1))
		_, _ = readHead(r)
		if got, err := io.ReadAll(r); err != nil || string(got) != "mine" {
			t.Errorf("%q %v", got, err)
		}
		_, _ = io.WriteString(c, "yours")
		_ = c.CloseWrite()
	})
	t.Run("reaped", func(t *testing.T) {
		c, r := w.dial()
		_, _ = io.WriteString(c, strings.Replace(handshake, "GET /", "GET /server", 1))
		_, _ = readHead(r)
		_, _ = io.WriteString(c, "yours")
		await.For(t, "no tunnel", func() bool { return w.proxy.Tunnels() == 0 })
	})
}

func TestSilentTunnelEnds(t *testing.T) {
	const idle = 300 * time.Millisecond
	w := newWorld(t, func(o *options) { o.tunnelIdle = idle }, echoSocket(t))
	paced(t, idle, func(beat func()) error {
		c := w.socket()
		for range 6 { // longer than it may be silent
			beat()
			if err := echo(c, []byte("x")); err != nil {
				return err
			}
		}
		if _, _, err := c.ReadMessage(); err == nil {
			t.Error("it goes on")
		}
		return nil
	})
	await.For(t, "no tunnel", func() bool { return w.proxy.Tunnels() == 0 })
}

// D5, D6: upgrades that fail leave nothing behind.
func TestFailedUpgrades(t *testing.T) {
	answers := map[string]struct {
		answer string
		status int
		reason Reason
	}{
		"another protocol": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 502, ReasonBadUpgrade},
		"no protocol":      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, ReasonBadUpgrade},
		"no":               {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403, ReasonNone},
	}
	for name, c := range answers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, says(t, c.answer, false))
			w.get("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
			goroutines, sockets := runtime.NumGoroutine(), descriptors(t)
			for range scale.N(1000) {
				conn, r := w.dial()
				_, _ = io.WriteString(conn, handshake)
				answer, _ := w.answer("GET", r)
				expect(t, answer, c.status, c.reason)
				_ = conn.Close()
			}
			await.For(t, "goroutines and sockets as before", func() bool {
				return runtime.NumGoroutine() <= goroutines+5 && descriptors(t) <= sockets+5
			})
		})
	}
	t.Run("no backend", func(t *testing.T) {
		w := newWorld(t, nil, refusing(t), refusing(t))
		answer, _ := w.ask("GET", handshake)
		expect(t, answer, http.StatusBadGateway, ReasonConnectRefused)
		w.serve("web", refusing(t), echoSocket(t))
		for range 5 { // D13: tried again elsewhere
			echoes(t, w.socket(), []byte("x"))
		}
	})
}

// D7: updates end no tunnel, but for those of endpoints that are gone, after
// their time, or at once if dead.
func TestTunnelsAndUpdates(t *testing.T) {
	first, second := echoSocket(t), echoSocket(t)
	w := newWorld(t, nil, first)
	n := scale.N(200)
	var old, young []*gorilla.Conn
	for range n {
		old = append(old, w.socket())
	}
	w.serve("web", second)
	w.proxy.mu.Lock()
	if len(w.proxy.gone) != 1 {
		t.Errorf("%d endpoints are gone", len(w.proxy.gone))
	}
	w.proxy.mu.Unlock()
	for range n {
		young = append(young, w.socket())
	}
	for i := range scale.N(1000) {
		addr := fmt.Sprintf("127.0.0.1:%d", 1+i%3)
		w.serve("web", second, addr)
	}
	w.serve("web", second)
	for _, c := range append(old, young...) {
		echoes(t, c, []byte("still here"))
	}

	w.remove(second, dataplane.RemovedDead)
	await.For(t, "the tunnels of a dead endpoint have ended", func() bool { return w.proxy.Tunnels() == n })
	for _, c := range young {
		if _, _, err := c.ReadMessage(); err == nil {
			t.Fatal("a tunnel of a dead endpoint goes on")
		}
	}
	for _, c := range old {
		echoes(t, c, []byte("still here"))
	}
	w.proxy.CloseTunnels()
	await.For(t, "all tunnels have ended", func() bool { return w.proxy.Tunnels() == 0 })
}

// An endpoint that left keeps its tunnels until the drain time is over; one that
// is dead, those that heard something since the suspicion began.
func TestDrainTime(t *testing.T) {
	for _, reason := range []dataplane.RemovalReason{dataplane.RemovedLeft, dataplane.RemovedDead} {
		t.Run(reason.String(), func(t *testing.T) {
			const drain = 400 * time.Millisecond
			b := echoSocket(t)
			w := newWorld(t, func(o *options) { o.drain = drain }, b)
			c := w.socket()
			var silentSince time.Time
			if reason == dataplane.RemovedDead {
				silentSince = time.Now()
				echoes(t, c, []byte("x"))
			}
			svc := w.services[key("web")]
			e, _ := svc.Endpoints.Get(svc.Endpoints.Slice()[0].ID)
			start := time.Now()
			w.apply(&dataplane.Service{Key: svc.Key}, []dataplane.Removal{{Endpoint: e, Reason: reason, SuspectedSince: silentSince}})
			if err := echo(c, []byte("still here")); err != nil && time.Since(start) < drain { // else it came too late
				t.Fatal(err)
			}
			await.For(t, "the tunnel has ended", func() bool { return w.proxy.Tunnels() == 0 })
			if took := time.Since(start); took < drain {
				t.Errorf("ended after %v", took)
			}
		})
	}
}

// A request at an endpoint that is found dead goes elsewhere at once, if it may.
func TestRequestAtDeadEndpoint(t *testing.T) {
	hang := raw(t, func(_ *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	w := newWorld(t, func(o *options) { o.try = 0 }, hang)
	c, r := w.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	await.For(t, "a request under way", func() bool { return w.metric("fairlead_l7_backend_connections_busy") == 1 })
	w.serve("web", hang, server(t, ok))
	w.remove(hang, dataplane.RemovedDead)
	if answer, body := w.answer("GET", r); answer.StatusCode != http.StatusOK || body != "GET 0" {
		t.Errorf("%d %q %s", answer.StatusCode, body, answer.Header.Get(headerReason))
	}
}
