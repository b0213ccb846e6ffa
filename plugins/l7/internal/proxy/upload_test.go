package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// endless is a body of n bytes.
func endless(n int64) io.Reader { return io.LimitReader(zeros{}, n) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestBodiesArriveWhole(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	client := w.client()
	for _, n := range []int64{0, 1, bodyBytes - 1, bodyBytes, bodyBytes + 1, 5 << 20} {
		for _, chunked := range []bool{false, true} {
			r, err := http.NewRequest(http.MethodPut, "http://web/", endless(n))
			if err != nil {
				t.Fatal(err)
			}
			if r.ContentLength = n; chunked {
				r.ContentLength = -1
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if want := fmt.Sprintf("PUT %d", n); string(body) != want {
				t.Errorf("chunked %v: %q, want %q", chunked, body, want)
			}
		}
	}
	if n := w.metric("fairlead_l7_connects_total"); n != 1 {
		t.Errorf("%v connections for uploads in a row", n)
	}
}

// Request trailers are dropped: who reads them takes them for headers.
func TestTrailersOfRequestsAreDropped(t *testing.T) {
	got := make(chan string, 1)
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		head, _ := readHead(r)
		rest, _ := readHead(r) // chunks end with an empty line, too
		got <- head + rest
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	w := newWorld(t, nil, b)
	w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\nTrailer: X-Evil\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Evil: 1\r\n\r\n")
	if all := <-got; strings.Contains(all, "X-Evil") || !strings.HasSuffix(all, "3\r\nabc\r\n0\r\n\r\n") {
		t.Errorf("the backend got\n%s", all)
	}
}

// D2: the backend answers 413 early and closes; the client sees that, not a
// reset of ours.
func TestEarlyAnswerToAnUpload(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, r, 1024)
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much")
	})
	w := newWorld(t, nil, b)
	for i := range scale.N(100) {
		c, r := w.dial()
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: %d\r\n\r\n", 100<<20)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.Copy(c, endless(100<<20)) // fails once we close
		}()
		answer, body := w.answer("POST", r)
		if answer.StatusCode != http.StatusRequestEntityTooLarge || body != "too much" || !answer.Close {
			t.Fatalf("upload %d: %d %q, close %v", i, answer.StatusCode, body, answer.Close)
		}
		_ = c.Close()
		<-sent
	}
	await.For(t, "no request under way", func() bool { return w.metric("fairlead_l7_requests_in_flight") == 0 })
}

// B12: a backend that answers before the upload's end and keeps the connection
// must not see the rest of it as another request, nor we as another of ours.
func TestEarlyAnswerEndsTheConnectionToTheBackend(t *testing.T) {
	var conns atomic.Int64
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", conns.Add(1))
		_, _ = io.Copy(io.Discard, r)
	})
	w := newWorld(t, nil, b)
	c, r := w.dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 1000\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: web\r\n\r\n")
	if answer, body := w.answer("POST", r); body != "1" || !answer.Close {
		t.Fatalf("%q, close %v", body, answer.Close)
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("behind the answer came %q (%v)", rest, err)
	}
	if _, body := w.get("/next", ""); body != "2" {
		t.Fatalf("the next request went over connection %q", body)
	}
}

// Answers may begin, and go on, while the request's body does.
func TestFullDuplex(t *testing.T) {
	b := server(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = control.Flush()
		line := bufio.NewReader(r.Body)
		for {
			s, err := line.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+s)
			_ = control.Flush()
		}
	})
	w := newWorld(t, nil, b)
	c, r := w.dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n")
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(answer.Body)
	for i := range 20 {
		s := fmt.Sprintf("line %d\n", i)
		_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(s), s)
		if got, err := body.ReadString('\n'); err != nil || got != "echo "+s {
			t.Fatalf("%q %v", got, err)
		}
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// D1: 100 (Continue) comes from the backend, or after a while.
func TestExpectContinue(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: web\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	for name, c := range map[string]struct {
		backend func(c *net.TCPConn, r *bufio.Reader)
		first   int // status of the first answer
		last    int
	}{
		"yes": {func(c *net.TCPConn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			_, _ = io.CopyN(io.Discard, r, 5)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, 100, 200},
		"no": {func(c *net.TCPConn, _ *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
		}, 401, 401},
		"never heard of it": {func(c *net.TCPConn, r *bufio.Reader) {
			_, _ = io.CopyN(io.Discard, r, 5)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, 100, 200},
		"ends": {func(*net.TCPConn, *bufio.Reader) {}, 502, 502},
	} {
		t.Run(name, func(t *testing.T) {
			b := raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						return
					}
					if !strings.HasPrefix(head, "POST") {
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						continue
					}
					if !strings.Contains(head, "Expect: 100-continue\r\n") {
						t.Errorf("the backend was not asked:\n%s", head)
					}
					if c.backend(conn, r); c.last == 502 {
						return
					}
				}
			})
			w := newWorld(t, nil, b)
			conn, r := w.dial()
			_, _ = io.WriteString(conn, request)
			first, err := http.ReadResponse(r, &http.Request{Method: "HEAD"})
			if err != nil || first.StatusCode != c.first {
				t.Fatalf("%v %v", first, err)
			}
			if first.StatusCode == 100 {
				_, _ = io.WriteString(conn, "hello")
				if last, _ := w.answer("POST", r); last.StatusCode != c.last {
					t.Errorf("at last %d", last.StatusCode)
				}
			}
			// Connections on both sides are in order afterwards.
			if c.last != 502 {
				if answer, _ := w.get("/", ""); answer.StatusCode != http.StatusOK {
					t.Errorf("the next request: %d", answer.StatusCode)
				}
			}
		})
	}
	t.Run("backend down", func(t *testing.T) {
		w := newWorld(t, nil, refusing(t))
		answer, _ := w.ask("POST", request)
		expect(t, answer, http.StatusBadGateway, ReasonConnectRefused)
	})
}

// D15: a client that promises a body and does not send it is given up; one that
// is slow but moves is not.
func TestClientWithoutItsBody(t *testing.T) {
	const idle = 300 * time.Millisecond
	w := newWorld(t, func(o *options) { o.bodyIdle = idle }, server(t, ok))
	for _, fields := range []string{"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"} {
		answer, _ := w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\n"+fields+"\r\n")
		expect(t, answer, http.StatusRequestTimeout, ReasonClientBodyStall)
		if !answer.Close {
			t.Error("the connection stays")
		}
	}
	paced(t, idle, func(beat func()) error {
		c, r := w.dial()
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 8\r\n\r\n")
		for range 8 {
			beat()
			_, _ = io.WriteString(c, "x")
		}
		if answer, body := w.answer("POST", r); body != "POST 8" {
			return fmt.Errorf("%d %q", answer.StatusCode, body)
		}
		return nil
	})
	if n := w.metric("fairlead_l7_failed_tries_total"); n != 0 {
		t.Errorf("the endpoint was blamed %v times", n)
	}
}

// A client that goes in the middle of its body cancels the backend, also while
// that takes nothing.
func TestClientAbortsUpload(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("backend reads %v", reads), func(t *testing.T) {
			ended := make(chan error, 1)
			began := make(chan struct{})
			b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				_, _ = readHead(r)
				close(began)
				var err error
				if reads {
					_, err = io.Copy(io.Discard, r)
				} else {
					// Take nothing, and notice only that the other side ends.
					err = untilEnd(c)
				}
				ended <- err
			})
			w := newWorld(t, nil, b)
			c, _ := w.dial()
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: %d\r\n\r\n", 1<<30)
			<-began
			_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			_, err := io.Copy(c, endless(64<<20)) // until nobody takes more
			if !reads {
				if err == nil {
					t.Fatal("64 MiB went somewhere")
				}
				// An end would wait behind the bytes for which there is no room.
				_ = c.SetLinger(0)
			}
			start := time.Now()
			_ = c.Close()
			<-ended
			if took := time.Since(start); took > scale.Bound(time.Second, 10*time.Second) {
				t.Errorf("the backend was let go after %v", took)
			}
			w.logged(`"status":499`, `"reason":"client-abort"`)
			if n := w.metric("fairlead_l7_failed_tries_total"); n != 0 {
				t.Errorf("the endpoint was blamed %v times", n)
			}
		})
	}
}

// D3: the backend dies while a client's upload stalls; nothing stays behind.
func TestBackendDiesDuringStalledUpload(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = readHead(r)
		_ = c.SetLinger(0)
	})
	w := newWorld(t, nil, b)
	for range scale.N(50) {
		answer, _ := w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 1000\r\n\r\nabc")
		expect(t, answer, http.StatusBadGateway, ReasonBackendReset)
	}
	await.For(t, "no request under way", func() bool { return w.metric("fairlead_l7_requests_in_flight") == 0 })
}

func TestBackendThatTakesNoBody(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = readHead(r)
		_ = untilEnd(c)
	})
	w := newWorld(t, func(o *options) { o.bodyIdle = 300 * time.Millisecond }, b)
	c, r := w.dial()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: %d\r\n\r\n", 1<<30)
		_, _ = io.Copy(c, endless(1<<30))
	}()
	answer, _ := w.answer("POST", r)
	expect(t, answer, http.StatusGatewayTimeout, ReasonBackendStalled)
	_ = c.Close()
	<-sent
}

// A body that is unread when the proxy itself answers neither keeps the request
// from ending nor becomes the next request.
func TestBodyOfRefusedRequest(t *testing.T) {
	w := newWorld(t, nil)
	c, r := w.dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhello")
	if answer, _ := w.answer("POST", r); answer.StatusCode != http.StatusServiceUnavailable || answer.Close {
		t.Errorf("%d, close %v", answer.StatusCode, answer.Close)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	if answer, _ := w.answer("GET", r); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d", answer.StatusCode)
	}
	start := time.Now()
	c, r = w.dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhel")
	w.answer("POST", r)
	if _, err := io.ReadAll(r); err != nil && !errors.Is(err, io.EOF) || time.Since(start) > scale.Bound(3*time.Second, 15*time.Second) {
		t.Errorf("the connection ended after %v: %v", time.Since(start), err)
	}
}

// D14: memory does not follow the size of uploads.
func TestUploadsAreStreamed(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	client := w.client()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	errs := make(chan error, 4)
	n := int64(scale.N(512)) << 20
	for range cap(errs) {
		go func() {
			answer, err := client.Post("http://web/", "x/y", endless(n))
			if err == nil {
				var body []byte
				body, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if !bytes.Equal(body, fmt.Appendf(nil, "POST %d", n)) {
					err = fmt.Errorf("%q", body)
				}
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 32<<20 {
		t.Errorf("memory grew by %d MiB with four uploads of %d MiB", grown>>20, n>>20)
	}
}

// untilEnd waits for the other side's end without reading.
func untilEnd(c *net.TCPConn) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ended(c) {
		<-tick.C
	}
	return nil
}

// What a client takes to send its body is no latency of the endpoint: it would
// get less to do for it.
func TestSlowUploadIsNotTheEndpointsLatency(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	for range 2 { // of two answers the quicker counts
		c, r := w.dial()
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhel")
		<-time.After(glance + glance/2) // so that it ends between two glances
		_, _ = io.WriteString(c, "lo")
		w.answer("POST", r)
	}
	for _, e := range w.proxy.Target(key("web")).endpoints.Load().pool.Endpoints() {
		if took := e.Latency(time.Now()); took >= glance/2 {
			t.Errorf("the latency of %s is %v", e.Name(), took)
		}
	}
}

// A body that is refused in the middle has an answer that says why, also if the
// client sends all of it before it reads.
func TestRefusedBodies(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
		names  string
	}{
		"LF after a chunk":    {"1\r\na\n0\r\n\r\n", 400, "chunk"},
		"LF at the end":       {"1\r\na\r\n0\r\n\n", 400, "LF"},
		"LF in the trailer":   {"0\r\nX: y\n\r\n", 400, "LF"},
		"framing in trailers": {"1\r\na\r\n0\r\nContent-Length: 5\r\n\r\n", 400, "trailer"},
		"long trailers":       {"0\r\nX: " + strings.Repeat("y", 10_000) + "\r\n\r\n", 431, "trailers"},
		"long extension":      {"1;" + strings.Repeat("y", 2<<20) + "\r\na\r\n0\r\n\r\n", 400, "extension"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, server(t, ok))
			answer, body := w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n"+c.body)
			expect(t, answer, c.status, ReasonClientBody)
			if !strings.Contains(body, c.names) || !answer.Close {
				t.Errorf("%q, close %v", body, answer.Close)
			}
			if n := w.metric("fairlead_l7_failed_tries_total"); n != 0 {
				t.Errorf("the endpoint was blamed %v times", n)
			}
		})
	}
}
