package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// What is no answer is told as one clear error, and everything else goes on.
func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		status int
		reason Reason
	}{
		"no status line":         {"hello\r\n\r\n", 502, ReasonBadResponse},
		"another protocol":       {"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", 502, ReasonBadResponse},
		"SSH":                    {"SSH-2.0-OpenSSH_9.2\r\n\r\n", 502, ReasonBadResponse},
		"status 099":             {"HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n", 502, ReasonBadResponse},
		"status 999":             {"HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n", 502, ReasonBadResponse},
		"status of two digits":   {"HTTP/1.1 20 x\r\nContent-Length: 0\r\n\r\n", 502, ReasonBadResponse},
		"field without a colon":  {"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", 502, ReasonBadResponse},
		"bad Content-Length":     {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 502, ReasonBadResponse},
		"two Content-Lengths":    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, ReasonBadResponse},
		"unknown coding":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 502, ReasonBadResponse},
		"end in the head":        {"HTTP/1.1 200 OK\r\nX: ", 502, ReasonBadResponse},
		"head without end":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 200), 502, ReasonBadResponse},
		"101 that nobody wanted": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 502, ReasonBadUpgrade},
		"1xx without end":        {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100), 502, ReasonBadResponse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, says(t, c.answer, true))
			conn, r := w.dial()
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, _ := w.answer("GET", r)
			for answer.StatusCode < 200 {
				answer, _ = w.answer("GET", r)
			}
			expect(t, answer, c.status, c.reason)
			w.logged(fmt.Sprintf(`"status":%d`, c.status), `"reason":"`+string(c.reason)+`"`)
			// The client's connection is still of use.
			w.serve("web", server(t, ok))
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if answer, body := w.answer("GET", r); answer.StatusCode != http.StatusOK || body != "GET 0" {
				t.Errorf("afterwards %d %q", answer.StatusCode, body)
			}
		})
	}
}

func TestHeadThatStalls(t *testing.T) {
	for _, part := range []string{"HTTP/1.1 2", "HTTP/1.1 200 OK\r\nX", "HTTP/1.1 200 OK\r\nX: "} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				_, _ = readHead(r)
				_, _ = io.WriteString(c, part)
				_, _ = io.Copy(io.Discard, r)
			})
			w := newWorld(t, func(o *options) { o.firstByte = 2 * time.Second }, b) // the part has to come by then
			answer, _ := w.get("/", "")
			expect(t, answer, http.StatusGatewayTimeout, ReasonSlowHead)
		})
	}
}

// D8: a body that ends too early must not look whole; what came of it arrives.
func TestBodyThatBreaksOff(t *testing.T) {
	for name, answer := range map[string]string{
		"length":              "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"chunks":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"chunks, no last":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
		"chunks, bad":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n",
		"length, long":        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 100000),
		"chunks, chunk short": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, says(t, answer, true))
			c, r := w.dial()
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			got, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(got.Body)
			if err == nil {
				t.Error("the client takes it for a whole answer")
			}
			if !strings.HasPrefix(string(body), "abc") && len(body) != 100000 {
				t.Errorf("of the body %d bytes came", len(body))
			}
			w.logged(`"reason":"truncated"`)
		})
	}
}

// RFC 9112 section 6.3: where an answer ends, by method, status and fields
// (B11); and B9: a connection with bytes behind the answer is not used again.
func TestWhereAnAnswerEnds(t *testing.T) {
	for _, c := range []struct {
		method, answer string
		ends           bool
		status         int
		body           string
		length         int64 // that the client is told; -1: any, or none
	}{
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, 200, "abc", 3},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false, 200, "abc", -1},
		{"GET", "HTTP/1.1 200 OK\r\n\r\nabc", true, 200, "abc", -1},
		{"GET", "HTTP/1.0 200 OK\r\n\r\nabc", true, 200, "abc", -1},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false, 200, "abc", -1},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", false, 204, "", -1},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", false, 204, "", -1},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", false, 304, "", -1},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc", false, 304, "", -1},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, 200, "", 3},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, 200, "", 3},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, 200, "", -1},
		{"HEAD", "HTTP/1.1 200 OK\r\n\r\n", false, 200, "", -1},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 200, "", 0},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", false, 200, "abc", 3},
		{"GET", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, 200, "abc", 3},
	} {
		t.Run(fmt.Sprintf("%s %.60q", c.method, c.answer), func(t *testing.T) {
			w := newWorld(t, nil, says(t, c.answer, c.ends))
			conn, r := w.dial()
			for range 5 {
				if _, err := io.WriteString(conn, c.method+" / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				answer, body := w.answer(c.method, r)
				for answer.StatusCode < 200 {
					answer, body = w.answer(c.method, r)
				}
				if answer.StatusCode != c.status || body != c.body {
					t.Fatalf("%d %q", answer.StatusCode, body)
				}
				if c.length >= 0 && answer.ContentLength != c.length {
					t.Errorf("length %d, want %d", answer.ContentLength, c.length)
				}
			}
		})
	}
}

// Streams go on at once, whatever the fields say: the backend pauses, so what
// came is sent.
func TestStreamsAreFlushed(t *testing.T) {
	for name, head := range map[string]string{
		"events":       "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
		"chunks":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"until closed": "HTTP/1.1 200 OK\r\n\r\n",
		"length":       "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			steps := make(chan struct{})
			b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				if _, err := readHead(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, head)
				for range steps {
					part := "data: x\n\n"
					if strings.Contains(head, "chunked") {
						part = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
					}
					_, _ = io.WriteString(c, part)
				}
			})
			defer close(steps)
			w := newWorld(t, nil, b)
			c, r := w.dial()
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
			answer, err := http.ReadResponse(r, nil) // the head comes before the first byte of the body
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				steps <- struct{}{}
				got := make([]byte, 9)
				if _, err := io.ReadFull(answer.Body, got); err != nil || string(got) != "data: x\n\n" {
					t.Fatalf("%q %v", got, err)
				}
			}
		})
	}
}

// D10: 103 goes on with its own fields, and leaves none behind; also through two
// proxies.
func TestInformationalAnswers(t *testing.T) {
	b := says(t, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Early: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nHTTP/1.1 200 OK\r\nX-Final: 1\r\nContent-Length: 2\r\n\r\nok", false)
	inner := newWorld(t, nil, b)
	outer := newWorld(t, nil, inner.addr)
	for range 3 {
		c, r := outer.dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
		early, err := http.ReadResponse(r, nil)
		if err != nil || early.StatusCode != http.StatusEarlyHints || early.Header.Get("Link") != "</a.css>" || early.Header.Get("X-Hop") != "" {
			t.Fatalf("%v %v", early, err)
		}
		answer, body := outer.answer("GET", r)
		if answer.StatusCode != http.StatusOK || answer.Header.Get("X-Early") != "" || answer.Header.Get("X-Final") != "1" || body != "ok" {
			t.Errorf("%d %v %q", answer.StatusCode, answer.Header, body)
		}
	}
}

// C4: trailers go on, but for those that would be believed to be headers.
func TestTrailers(t *testing.T) {
	for name, announce := range map[string]string{"announced": "Trailer: Grpc-Status, X-Forwarded-For\r\n", "not announced": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, says(t, "HTTP/1.1 200 OK\r\n"+announce+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nGrpc-Status: 7\r\nX-Forwarded-For: 6.6.6.6\r\nHost: evil\r\nContent-Length: 5\r\n\r\n", false))
			answer, body := w.get("/", "Te: trailers\r\n")
			if body != "ok" || answer.Trailer.Get("Grpc-Status") != "7" {
				t.Errorf("%q, trailer %v", body, answer.Trailer)
			}
			for _, name := range []string{"X-Forwarded-For", "Host", "Content-Length"} {
				if answer.Trailer[name] != nil {
					t.Errorf("%s was passed on in the trailer", name)
				}
			}
		})
	}
}

// D9: a client that goes away while the backend works cancels that within a
// second, and nobody blames the endpoint.
func TestClientAbort(t *testing.T) {
	cancelled := make(chan error, 16)
	b := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
			cancelled <- nil
		case <-time.After(await.Patience):
			cancelled <- errors.New("still at work")
		}
	})
	for path, want := range map[string]string{"/wait": `"status":499`, "/stream": `"status":200`} {
		t.Run(path, func(t *testing.T) {
			w := newWorld(t, nil, b)
			c, r := w.dial()
			_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: web\r\n\r\n")
			if path == "/stream" {
				if _, err := http.ReadResponse(r, nil); err != nil {
					t.Fatal(err)
				}
			} else {
				await.For(t, "a request under way", func() bool { return w.metric("fairlead_l7_backend_connections_busy") == 1 })
			}
			start := time.Now()
			_ = c.Close()
			if err := <-cancelled; err != nil || time.Since(start) > scale.Bound(time.Second, 4*time.Second) {
				t.Errorf("cancelled after %v: %v", time.Since(start), err)
			}
			w.logged(want, `"reason":"client-abort"`)
			if n := w.metric("fairlead_l7_failed_tries_total"); n != 0 {
				t.Errorf("the endpoint was blamed %v times", n)
			}
			if n := w.metric("fairlead_l7_client_aborts_total"); n != 1 {
				t.Errorf("%v aborts counted", n)
			}
		})
	}
}

// A client that takes nothing of its answer is given up.
func TestClientThatStalls(t *testing.T) {
	b := server(t, func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 64<<10)
		for range 1 << 10 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	w := newWorld(t, func(o *options) { o.bodyIdle = 200 * time.Millisecond }, b)
	c, _ := w.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	w.logged(`"reason":"client-stalled"`)
	await.For(t, "no request under way", func() bool { return w.metric("fairlead_l7_requests_in_flight") == 0 })
}

// A stream may be silent for longer than a client may stand still, and end then:
// the end is written all the same.
func TestStreamThatEndsAfterSilence(t *testing.T) {
	idle := 200 * time.Millisecond
	for name, end := range map[string]string{"chunked": "0\r\n\r\n", "trailer": "0\r\nGrpc-Status: 0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				_, _ = readHead(r)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n")
				<-time.After(2 * idle)
				_, _ = io.WriteString(c, end)
			})
			w := newWorld(t, func(o *options) { o.bodyIdle = idle }, b)
			if _, body := w.get("/", ""); body != "data" {
				t.Errorf("%q", body)
			}
		})
	}
}
