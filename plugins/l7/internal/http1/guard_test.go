package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
)

// start runs a server on loopback and returns its address.
func start(t *testing.T, limits Limits, h http.HandlerFunc, refused func(*http.Request, *Refusal)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(limits.H2C)
	srv := &http.Server{Handler: Handler(h, refused), ConnContext: ConnContext, Protocols: protocols}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(Listener(l, limits)) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

type client struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.Fatal(err)
	}
}

// expect reads one answer.
func (c *client) expect(status int, body string) {
	c.Helper()
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.Fatalf("no answer: %v", err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || !strings.Contains(string(got), body) {
		c.Fatalf("%d %q, %v; want %d %q", res.StatusCode, got, err, status, body)
	}
}

func (c *client) expectEnd() {
	c.Helper()
	if b, err := c.r.ReadByte(); err != io.EOF {
		c.Fatalf("byte %q, %v; want the end", b, err)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		var refusal *Refusal
		if errors.As(err, &refusal) {
			http.Error(w, refusal.Reason, refusal.Status)
		}
		return
	}
	fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
}

func TestARefusedRequestIsAnswered(t *testing.T) {
	var told atomic.Pointer[Refusal]
	addr := start(t, Limits{}, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }, func(r *http.Request, refusal *Refusal) {
		if r.RemoteAddr == "" {
			t.Error("nobody was refused")
		}
		told.Store(refusal)
	})
	c := dial(t, addr)
	c.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\nGET / HTTP/1.1\r\n")
	c.expect(400, "two Host headers\n")
	c.expectEnd()
	if r := told.Load(); r == nil || r.Status != 400 {
		t.Error(r)
	}
}

func TestGoodRequestsAreAsWithoutAGuard(t *testing.T) {
	addr := start(t, Limits{HeaderTimeout: await.Patience}, echo, nil) // a head in bytes takes its time
	large := strings.Repeat("0123456789", 100_000)
	for _, piece := range []int{1, 50, 1 << 20} {
		c := dial(t, addr)
		stream := good + post("Content-Length: 3\r\n", "abc") + chunked("3\r\nabc\r\n2;x\r\nde\r\n0\r\nX: y\r\n\r\n") +
			"GET /long HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n"
		if piece > 1 {
			stream += post(fmt.Sprintf("Content-Length: %d\r\n", len(large)), large)
		}
		go func() {
			for len(stream) > 0 {
				n := min(piece, len(stream))
				if _, err := io.WriteString(c.Conn, stream[:n]); err != nil {
					t.Error(err)
					return
				}
				stream = stream[n:]
			}
		}()
		c.expect(200, "GET / ")
		c.expect(200, "POST /x abc")
		c.expect(200, "POST /x abcde")
		c.expect(200, "GET /long ")
		if piece > 1 {
			c.expect(200, large)
		}
		c.Close()
	}
}

// The refusal of a request that came behind another one waits for the answer
// to that, and does not end it.
func TestARefusalKeepsItsPlace(t *testing.T) {
	release := make(chan struct{})
	addr := start(t, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("a", 5000))
		http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the request behind ended this one")
		}
		fmt.Fprint(w, "end")
	}, nil)
	for _, split := range []bool{false, true} {
		c := dial(t, addr)
		c.send(good)
		if split {
			if _, err := c.r.Peek(4000); err != nil { // the handler runs, and the server reads in the background
				t.Fatal(err)
			}
		}
		c.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
		if _, err := c.r.Peek(4000); err != nil {
			t.Fatal(err)
		}
		release <- struct{}{}
		c.expect(200, "aend")
		c.expect(400, "both Transfer-Encoding and Content-Length")
		c.expectEnd()
	}
}

func TestARefusedBodyIsAnErrorOfItsRead(t *testing.T) {
	addr := start(t, Limits{}, echo, nil)
	c := dial(t, addr)
	c.send(chunked("3\r\nabc\r\n"))
	c.send("1\na\r\n0\r\n\r\n" + good)
	c.expect(400, "LF without CR")
	c.expectEnd()
}

// The client of a header of 1 MiB writes all of it before it reads.
func TestARefusalIsNotLostWithWhatIsUnread(t *testing.T) {
	addr := start(t, Limits{}, echo, nil)
	for range 5 {
		c := dial(t, addr)
		if err := c.Conn.(*net.TCPConn).SetWriteBuffer(32 << 10); err != nil {
			t.Fatal(err)
		}
		c.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")
		c.expect(431, "32768 bytes")
		c.expectEnd()
	}
}

func TestASlowHead(t *testing.T) {
	addr := start(t, Limits{HeaderTimeout: 100 * time.Millisecond}, echo, nil)
	c := dial(t, addr)
	c.send(good)
	c.expect(200, "GET / ")
	began := time.Now()
	c.send("GET / HTTP/1.1\r\nHo")
	c.expect(408, "in time")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("refused after %v", took)
	}
	c.expectEnd()

	// A body may take its time, and so may the next request.
	c = dial(t, addr)
	c.send(post("Content-Length: 3\r\n", "a"))
	wait(t, 150*time.Millisecond)
	c.send("bc")
	c.expect(200, "abc")
	c.send(chunked("3"))
	wait(t, 150*time.Millisecond)
	c.send("\r\nabc\r\n0\r\n\r\n")
	c.expect(200, "abc")
	wait(t, 150*time.Millisecond)
	c.send(good)
	c.expect(200, "GET / ")
}

// wait lets a time limit pass that must not apply.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

const handshake = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"

func TestUpgrade(t *testing.T) {
	addr := start(t, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		FromContext(r.Context()).Upgrade()
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		io.Copy(rw, rw)
		rw.Flush()
	}, nil)
	for _, first := range []string{"", "\x81\x85frame\n", strings.Repeat("\r\n \x00", 5000)} {
		c := dial(t, addr)
		c.send(handshake + first)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil || res.StatusCode != 101 {
			t.Fatal(res, err)
		}
		want := first + "GET / HTTP/1.1\nHost: a\n\n" + strings.Repeat("\xff", 10000)
		c.send(strings.TrimPrefix(want, first))
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c.r); err != nil || string(got) != want {
			t.Errorf("%d bytes came back, want %d: %v", len(got), len(want), err)
		}
	}
}

func TestAnUpgradeThatTheHandlerRefuses(t *testing.T) {
	addr := start(t, Limits{}, echo, nil)
	c := dial(t, addr)
	for range 3 { // also behind others
		c.send(good + handshake + good)
		c.expect(200, "GET / ")
		c.expect(200, "GET /ws ")
		c.expect(200, "GET / ")
	}
	c.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n") // which the server answers by itself
	c.expect(200, "")
	c.send(handshake + "\x81\x85frame")
	c.expect(200, "GET /ws ")
	c.expect(400, "method")
	c.expectEnd()
}

func TestTheHandlerLearnsThatTheClientLeft(t *testing.T) {
	left := make(chan string, 1)
	addr := start(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		left <- r.URL.Path
	}, nil)
	for _, request := range []string{good, handshake, good + "GET / HT", handshake + "frame", handshake + strings.Repeat("x", 1<<20)} {
		c := dial(t, addr)
		io.WriteString(c.Conn, request)
		c.Close()
		select {
		case <-left:
		case <-time.After(await.Patience):
			t.Fatalf("the handler of %.80q was not told", request)
		}
	}
}

func TestHTTP2(t *testing.T) {
	addr := start(t, Limits{H2C: true}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, r.Method, FromContext(r.Context()).Refusal())
	}, func(*http.Request, *Refusal) { t.Error("refused") })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequest(refusedMethod, "http://"+addr, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "HTTP/2.0"+refusedMethod+"<nil>" {
		t.Errorf("%q, %v", body, err)
	}
}

func TestWithoutAGuard(t *testing.T) {
	called := false
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }), nil)
	r, err := http.NewRequest(refusedMethod, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if h.ServeHTTP(nil, r); !called {
		t.Error("a request on a connection without a guard was refused")
	}
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	if ctx := ConnContext(t.Context(), conn); FromContext(ctx) != nil {
		t.Error("a guard out of nothing")
	}
	if g := NewGuard(conn, Limits{}); !errors.Is(g.CloseWrite(), errors.ErrUnsupported) {
		t.Error("a pipe has no half to close")
	}
}

// endless is a connection that sends the same request for ever.
type endless struct {
	net.Conn
	request []byte
}

func (c *endless) Read(p []byte) (int, error) { return copy(p, c.request), nil }

func TestGuardDoesNotAllocate(t *testing.T) {
	g := NewGuard(&endless{request: []byte(browser)}, Limits{})
	p := make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() {
		if n, err := g.Read(p); err != nil || !bytes.Equal(p[:n], []byte(browser)) {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGuard(b *testing.B) {
	for name, request := range map[string]string{"small": "GET /1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: wrk\r\n\r\n", "browser": browser} {
		b.Run(name, func(b *testing.B) {
			g := NewGuard(&endless{request: []byte(request)}, Limits{})
			p := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Read(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
