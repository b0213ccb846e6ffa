package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fairlead/fairlead/test/await"
)

// serve hands each connection to a listener of its own to do, until the test is
// over.
func serve(t *testing.T, do func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() { do(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// once makes a Runner check c at addr, and returns what its first probe gave.
func once(t *testing.T, addr netip.AddrPort, c Check) CheckStatus {
	t.Helper()
	r := start(t, Config{})
	defer r.Close()
	c.Interval = patience
	if c.Timeout == 0 {
		c.Timeout = c.Interval // for a busy machine
	}
	r.Set([]Instance{{Key: keyOf("a"), Addr: addr, Checks: []Check{c}}})
	var s Status
	await.For(t, "a first probe", func() bool {
		s, _ = r.State(keyOf("a"))
		return !s.Checks[0].At.IsZero()
	})
	return s.Checks[0]
}

// answer is a server that reads a request and writes text.
func answer(text string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1024)); err == nil {
			_, _ = io.WriteString(c, text)
		}
		_ = c.Close()
	}
}

// drip is a server that writes head, then piece for ever, with a pause or not.
func drip(head, piece string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1024)); err != nil {
			return
		}
		_, err := io.WriteString(c, head)
		tick := time.NewTicker(max(pause, time.Nanosecond))
		defer tick.Stop()
		for err == nil {
			if pause > 0 {
				<-tick.C
			}
			_, err = io.WriteString(c, piece)
		}
		_ = c.Close()
	}
}

func TestHTTPAnswers(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\n"
	big := strings.Repeat("x", 100_000)
	for _, test := range []struct {
		name   string
		server func(net.Conn)
		ok     bool
		output string // begins with it
	}{
		{"with a length", answer(ok + "Content-Length: 4\r\n\r\nfine"), true, "200 OK: fine"},
		{"without a length", answer(ok + "\r\nfine"), true, "200 OK: fine"},
		{"chunked", answer(ok + "Transfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n"), true, "200 OK: fine"},
		{"HTTP/1.0", answer("HTTP/1.0 200 OK\r\n\r\nfine"), true, "200 OK: fine"},
		{"no body", answer("HTTP/1.1 204 No Content\r\n\r\n"), true, "204 No Content"},
		{"a redirect, not followed", answer("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), true, "302 Found"},
		{"399", answer("HTTP/1.1 399 Odd\r\nContent-Length: 0\r\n\r\n"), true, "399 Odd"},
		{"400", answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), false, "400 Bad Request"},
		{"429", answer("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow"), false, "429 Too Many Requests: slow"},
		{"500", answer("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"), false, "500 Oh"},
		{"101", answer("HTTP/1.1 101 Switching Protocols\r\n\r\n"), false, "101 Switching Protocols"},
		{"interim answers first", answer("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n"), true, "200 OK"},
		{"interim answers without end", drip("", "HTTP/1.1 103 Early Hints\r\n\r\n", 0), false, "more than 8 interim answers"},
		{"a large body", answer(ok + "Content-Length: 100000\r\n\r\n" + big), true, "200 OK: xxxx"},
		{"a body without end", drip(ok+"\r\n", big, 0), true, "200 OK: xxxx"},
		{"chunks without end", drip(ok+"Transfer-Encoding: chunked\r\n\r\n", "4\r\nfine\r\n", 0), true, "200 OK: finefine"},
		{"chunks that are mostly frame", drip(ok+"Transfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("e", 3000)+"\r\nx\r\n", 0), false, "after 200 OK, the body broke off"},
		{"a header without end", drip(ok, "X-A: "+strings.Repeat("b", 1000)+"\r\n", 0), false, "the header is longer than 65536 bytes"},
		{"a line without end", drip("", strings.Repeat("HTTP", 300), 0), false, "the header is longer than 65536 bytes"},
		{"a slow header", drip("HTTP/1.1 200 OK\r\nX: ", "a", 5*time.Millisecond), false, "no complete answer in time"},
		{"a slow status", drip("HT", "T", 5*time.Millisecond), false, "no complete answer in time"},
		{"a header in two parts", func(c net.Conn) {
			if _, err := c.Read(make([]byte, 1024)); err == nil {
				_, _ = io.WriteString(c, ok+"Content-")
				<-time.After(2 * laneWait)
				_, _ = io.WriteString(c, "Length: 4\r\n\r\nfine")
			}
		}, true, "200 OK: fine"},
		{"a slow body", drip(ok+"Content-Length: 4000\r\n\r\n", "a", 5*time.Millisecond), false, "no complete answer in time"},
		{"a body cut short", answer(ok + "Content-Length: 400\r\n\r\nfine"), false, "after 200 OK, the body broke off"},
		{"a header cut short", answer(ok + "Content-"), false, "the connection ended before the answer did"},
		{"nothing", answer(""), false, "the connection ended before the answer did"},
		{"no HTTP", answer("SSH-2.0-OpenSSH\r\n"), false, "the answer cannot be read"},
		{"a status of letters", answer("HTTP/1.1 OK fine\r\n\r\n"), false, "the answer cannot be read"},
		{"silence", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false, "no complete answer in time"},
		{"control characters", answer("HTTP/1.1 500 \x1b[31mOh\r\nContent-Length: 3\r\n\r\n\xff\x00a"), false, "500 [31mOh: a"},
		{"a reset", func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}, false, ""},
		{"in two parts", func(c net.Conn) {
			if _, err := c.Read(make([]byte, 1024)); err == nil {
				_, _ = io.WriteString(c, ok+"Content-Length: 4\r\n\r\nfi")
				<-time.After(2 * laneWait)
				_, _ = io.WriteString(c, "ne")
			}
		}, true, "200 OK: fine"},
		{"after a while", func(c net.Conn) {
			<-time.After(2 * laneWait)
			answer(ok + "Content-Length: 4\r\n\r\nfine")(c)
		}, true, "200 OK: fine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := Check{Kind: HTTP, Path: "/healthz"}
			if strings.Contains(test.output, "in time") {
				c.Timeout = 300 * time.Millisecond
			}
			got := once(t, serve(t, test.server), c)
			if got.OK != test.ok || !strings.HasPrefix(got.Output, test.output) {
				t.Errorf("it is ok=%v %.120q, want ok=%v %q", got.OK, got.Output, test.ok, test.output)
			}
			if len(got.Output) > MaxOutputBytes || !utf8.ValidString(got.Output) {
				t.Errorf("the output has %d bytes", len(got.Output))
			}
		})
	}
}

func TestTheRequestNamesTheAddress(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	seen := make(chan *http.Request, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r:
		default:
		}
	}))
	defer s.Close()
	addr := addrOf(t, s)
	c, err := ParseHTTP("http://" + addr.String() + "/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	if got := once(t, closedPort(t), c); !got.OK {
		t.Errorf("at the check's own address it is %+v", got)
	}
	if r := <-seen; r.Method != http.MethodGet || r.Host != addr.String() || r.URL.String() != "/a?b=c" || r.UserAgent() != "fairlead-health" || !r.Close {
		t.Errorf("the request is %+v", r)
	}
}

func TestTCPAnswers(t *testing.T) {
	if got := once(t, serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), Check{Kind: TCP}); !got.OK || got.Output != "connected" {
		t.Errorf("a listener is %+v", got)
	}
	if got := once(t, closedPort(t), Check{Kind: TCP}); got.OK || !strings.Contains(got.Output, "refused") {
		t.Errorf("a closed port is %+v", got)
	}
	if got := once(t, closedPort(t), Check{Kind: HTTP, Path: "/"}); got.OK || !strings.Contains(got.Output, "refused") {
		t.Errorf("a closed port, by HTTP, is %+v", got)
	}
	if got := once(t, fullListener(t), Check{Kind: TCP, Timeout: 50 * time.Millisecond}); got.OK || !strings.Contains(got.Output, "in time") {
		t.Errorf("a listener that takes no more is %+v", got)
	}
	if got := once(t, fullListener(t), Check{Kind: HTTP, Path: "/", Timeout: 50 * time.Millisecond}); got.OK || !strings.Contains(got.Output, "in time") {
		t.Errorf("a listener that takes no more, by HTTP, is %+v", got)
	}
}

// A server whose first read fails may log it or end; the end of a stream is what
// each has to expect.
func TestATCPProbeLooksLikeAnEnd(t *testing.T) {
	read := make(chan error, 100)
	addr := serve(t, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		read <- err
	})
	once(t, addr, Check{Kind: TCP})
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %v, want EOF", err)
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this kernel has no IPv6 loopback: %v", err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	if got := once(t, addrOf(t, s), Check{Kind: TCP}); !got.OK {
		t.Errorf("tcp: %+v", got)
	}
	if got := once(t, addrOf(t, s), Check{Kind: HTTP, Path: "/"}); got.OK || !strings.HasPrefix(got.Output, "404") {
		t.Errorf("http: %+v", got)
	}
}

// fullListener is one that accepts nothing and whose backlog is full.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(name.(*unix.SockaddrInet4).Port)) //nolint:gosec // a port
	var all []*conn
	for range 10 {
		c, err := open(addr, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		all = append(all, c)
	}
	// Which of them has the only place is not known at once on a busy machine.
	await.For(t, "the backlog to be full", func() bool {
		return slices.ContainsFunc(all, func(c *conn) bool { done, _ := c.try(); return done })
	})
	return addr
}

func TestASocketConnectedToItselfIsNobody(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	self := closedPort(t)
	addr, _, err := sockaddr(self)
	if err != nil {
		t.Fatal(err)
	}
	f := &flight{probe: probe{kind: TCP, target: self}, conn: &conn{fd: fd, addr: addr}}
	defer f.end()
	if err := unix.Bind(fd, addr); err != nil {
		t.Fatal(err)
	}
	if _, err := f.conn.try(); err != nil {
		t.Fatal(err)
	}
	await.For(t, "it to be connected to itself", func() bool {
		done, err := f.conn.try()
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
	if out := f.connected(nil); out.result != resultRefused {
		t.Errorf("it is %+v, want refused", out)
	}
}

func TestGRPCAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	state := grpchealth.NewServer()
	state.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
	state.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, state)
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	none := grpc.NewServer()
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	all.Go(func() { _ = none.Serve(bare) })
	defer all.Wait()
	defer s.Stop()
	defer none.Stop()
	for _, test := range []struct {
		name, service string
		addr          netip.AddrPort
		ok            bool
		output        string
	}{
		{"the server", "", addr, true, "SERVING"},
		{"a service", "up", addr, true, "SERVING"},
		{"a service that is down", "down", addr, false, "NOT_SERVING"},
		{"an unknown service", "other", addr, false, "the server does not know this service"},
		{"no health service", "", netip.MustParseAddrPort(bare.Addr().String()), false, "the server has no grpc.health.v1.Health"},
		{"nobody", "", closedPort(t), false, "connection refused"},
		{"an HTTP/1 server", "", serve(t, answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")), false, "the answer is not HTTP/2"},
		{"noise without end", "", serve(t, drip("", strings.Repeat("\x00\x00\x00\x0b\x00\x00\x00\x00\x00", 100), 0)), false, "the answer is longer than 65536 bytes"},
		{"half a frame", "", serve(t, answer("\x00\x00\x09\x04")), false, "the connection ended before the answer did"},
		{"silence", "", serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), false, "no complete answer in time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
			c := Check{Kind: GRPC, Service: test.service}
			if strings.Contains(test.output, "in time") {
				c.Timeout = 300 * time.Millisecond
			}
			got := once(t, test.addr, c)
			if got.OK != test.ok || !strings.HasPrefix(got.Output, test.output) {
				t.Errorf("it is ok=%v %q, want ok=%v %q", got.OK, got.Output, test.ok, test.output)
			}
		})
	}
}

// A probe that cannot be ended by its own means is ended by Close.
func TestResumeEndsWithItsContext(t *testing.T) {
	addr := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, kind := range []Kind{HTTP, GRPC} {
		e := &entry{check: Check{Kind: kind, Path: "/", Interval: time.Hour, Timeout: time.Hour}, target: addr}
		e.request = request(e)
		f := &flight{probe: e.probe(), began: time.Now()}
		if out, ended := f.start(); ended {
			t.Fatalf("%s: it ended with %+v", kind, out)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan outcome)
		go func() { ended <- f.resume(ctx, newReader()) }()
		cancel()
		select {
		case out := <-ended:
			if out.ok() {
				t.Errorf("%s: it is %+v", kind, out)
			}
		case <-time.After(patience):
			t.Fatalf("%s: it goes on", kind)
		}
		f.end()
	}
}

func TestFailuresAreSorted(t *testing.T) {
	for err, want := range map[error]result{
		syscall.ECONNREFUSED:                       resultRefused,
		context.DeadlineExceeded:                   resultTimeout,
		fmt.Errorf("read: %w", syscall.ECONNRESET): resultError,
	} {
		if got := failure(err); got.result != want || got.output == "" {
			t.Errorf("%v is %+v, want %s", err, got, want)
		}
	}
}

// What a backend says cannot steer the terminal that shows it.
func TestOutputIsPlainText(t *testing.T) {
	const said = "a\x1b[31mb\x9bc\u009b2Jd\u202ee\u2028f\x7f\n\tä 1"
	if got, want := clip(said), "a[31mbc2Jdef\n\tä 1"; got != want {
		t.Errorf("shown as %q, want %q", got, want)
	}
}
