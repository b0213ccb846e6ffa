package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// silent is a backend that takes requests and never answers. It counts them.
func silent(t testing.TB, got *atomic.Int64) string {
	return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := readHead(r); err == nil {
			got.Add(1)
		}
		_, _ = io.Copy(io.Discard, r)
	})
}

func ok(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%s %d", r.Method, n)
}

// D13: nothing was sent, so any request goes to the next endpoint, with all of
// its body.
func TestRefusedConnectIsTriedElsewhere(t *testing.T) {
	w := newWorld(t, nil, refusing(t), server(t, ok))
	body := bytes.Repeat([]byte("x"), 1<<20)
	for range scale.N(100) {
		answer, err := w.client().Post("http://web/", "text/plain", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || string(got) != "POST 1048576" {
			t.Fatalf("%d %q", answer.StatusCode, got)
		}
	}
	// The endpoint is left out after its first refusal, but for trials.
	if n := w.metric("fairlead_l7_retries_total", "reason", string(ReasonConnectRefused)); n > 5 {
		t.Errorf("%v tries at a port that refuses", n)
	}
}

func TestRefusedByAll(t *testing.T) {
	w := newWorld(t, nil, refusing(t))
	answer, body := w.get("/", "")
	expect(t, answer, http.StatusBadGateway, ReasonConnectRefused)
	if !strings.Contains(body, "default/web") {
		t.Errorf("%q does not name the service", body)
	}
	w.logged(`"status":502`, `"reason":"connect-refused"`)
}

// A try without a first byte in time is given up where another endpoint exists
// and the request may be repeated; the endpoint is left out afterwards.
func TestSilentEndpointIsAbandoned(t *testing.T) {
	var got atomic.Int64
	w := newWorld(t, func(o *options) { o.try = time.Second }, silent(t, &got), server(t, ok)) // longer than a busy machine takes
	for range 20 {
		answer, _ := w.get("/", "")
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("status %d", answer.StatusCode)
		}
	}
	if n := got.Load(); n < 1 || n > 3 {
		t.Errorf("the silent endpoint got %d of 20 requests", n)
	}
	w.logged(`"tries":2`, `"status":200`)
	if n := w.metric("fairlead_l7_retries_total", "reason", string(ReasonNoFirstByte)); n < 1 {
		t.Error("no retry was counted")
	}
}

// An endpoint that was given up because it is slow is asked again, and waited for, if
// the one in its place fails. The budget pays for what is sent, and only for that.
func TestSlowEndpointIsBetterThanNone(t *testing.T) {
	for _, c := range []struct {
		name    string
		resets  bool // the other one, that takes the request; else it refuses connects
		tokens  int
		want    int // status
		refused float64
	}{
		{"the other one refuses", false, 1, http.StatusOK, 0},
		{"the other one resets", true, 2, http.StatusOK, 0},
		{"the other one resets, and nothing is left of the budget", true, 1, http.StatusBadGateway, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := refusing(t)
			if c.resets {
				other = raw(t, func(c *net.TCPConn, r *bufio.Reader) {
					_, _ = readHead(r)
					_ = c.SetLinger(0)
				})
			}
			var begun atomic.Bool
			var got atomic.Int64 // since then
			slow := server(t, func(w http.ResponseWriter, r *http.Request) {
				if begun.Load() && got.Add(1) == 1 {
					<-r.Context().Done() // it is given up
				}
				fmt.Fprint(w, "slow")
			})
			w := newWorld(t, nil, other, slow)
			s := settings.Default()
			s.Ejection.First, s.Ejection.Most = time.Hour, time.Hour
			s.Retry.Budget, s.Retry.Floor = 100, 0 // a token for each request
			w.proxy.registry.Configure(balanceOf(s))
			// As the other one is ejected, the slow one comes first.
			await.For(t, "the other one to be left out", func() bool {
				w.get("/", "")
				return w.metric("fairlead_l7_failed_tries_total") > 0
			})
			budget := w.proxy.targets[key("web")].endpoints.Load().pool.Budget()
			for budget.Retry(time.Now()) {
			}
			for range c.tokens - 1 { // the request brings one itself
				budget.Request()
			}
			w.adjust(func(o *options) { o.try = 20 * time.Millisecond })
			begun.Store(true)

			if answer, _ := w.get("/", ""); answer.StatusCode != c.want {
				t.Errorf("status %d, want %d", answer.StatusCode, c.want)
			}
			if n := w.metric("fairlead_l7_retries_refused_total"); n != c.refused {
				t.Errorf("the budget refused %v tries, want %v", n, c.refused)
			}
			if c.want == http.StatusOK {
				w.logged(`"tries":3`, `"status":200`)
				if n := got.Load(); n != 2 {
					t.Errorf("the slow endpoint got %d requests, want 2", n)
				}
			}
		})
	}
}

func TestSilentEndpointIsWaitedForWhereNobodyElseIs(t *testing.T) {
	var got atomic.Int64
	w := newWorld(t, func(o *options) { o.try, o.firstByte = 20*time.Millisecond, 300*time.Millisecond }, silent(t, &got))
	start := time.Now()
	answer, _ := w.get("/", "")
	expect(t, answer, http.StatusGatewayTimeout, ReasonNoFirstByte)
	took := time.Since(start)
	await.For(t, "the request at the endpoint", func() bool { return got.Load() > 0 }) // the answer does not wait for that
	if took < 300*time.Millisecond || got.Load() != 1 {
		t.Errorf("after %v, %d requests", took, got.Load())
	}
}

// A POST is never executed twice: neither after silence nor after a reset, on
// new connections and on old ones.
func TestPostIsSentOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(c *net.TCPConn)
		want Reason
	}{
		{"reset", func(c *net.TCPConn) { _ = c.SetLinger(0) }, ReasonBackendReset},
		{"end", func(*net.TCPConn) {}, ReasonBackendReset},
		{"silence", func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }, ReasonNoFirstByte},
	} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, old connection %v", c.name, old), func(t *testing.T) {
				var posts atomic.Int64
				backend := func() string {
					return raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
						for {
							head, err := readHead(r)
							if err != nil {
								return
							}
							if strings.HasPrefix(head, "GET") {
								_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
								continue
							}
							posts.Add(1)
							_, _ = io.CopyN(io.Discard, r, 3)
							c.end(conn)
							return
						}
					})
				}
				w := newWorld(t, func(o *options) {
					if o.try = 20 * time.Millisecond; c.want == ReasonNoFirstByte {
						o.firstByte = 200 * time.Millisecond
					}
				}, backend(), backend())
				if old {
					for range 8 {
						w.get("/", "")
					}
				}
				answer, _ := w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 3\r\n\r\nabc")
				if answer.StatusCode < 500 || Reason(answer.Header.Get(headerReason)) != c.want {
					t.Errorf("%d %q", answer.StatusCode, answer.Header.Get(headerReason))
				}
				await.For(t, "a backend that got it", func() bool { return posts.Load() > 0 }) // the answer does not wait for that
				if n := posts.Load(); n != 1 {
					t.Errorf("backends got it %d times", n)
				}
			})
		}
	}
}

// Requests without a body and with a method that changes things are sent once,
// unless the client says that it may be repeated.
func TestWhatMayBeRepeated(t *testing.T) {
	for _, c := range []struct {
		method, fields string
		again          bool
	}{
		{"GET", "", true},
		{"HEAD", "", true},
		{"OPTIONS", "", true},
		{"POST", "", false},
		{"PUT", "", false},
		{"DELETE", "", false},
		{"PATCH", "", false},
		{"PURGE", "", false},
		{"POST", "Idempotency-Key: k\r\n", true},
		{"DELETE", "Idempotency-Key: k\r\n", true},
		{"GET", "Transfer-Encoding: chunked\r\n", false},
	} {
		var got atomic.Int64
		backend := func() string {
			return raw(t, func(_ *net.TCPConn, r *bufio.Reader) {
				if _, err := readHead(r); err == nil {
					got.Add(1)
				}
			})
		}
		w := newWorld(t, nil, backend(), backend(), backend(), backend(), backend())
		body := ""
		if strings.Contains(c.fields, "chunked") {
			body = "0\r\n\r\n"
		}
		answer, _ := w.ask(c.method, c.method+" / HTTP/1.1\r\nHost: web\r\n"+c.fields+"\r\n"+body)
		expect(t, answer, http.StatusBadGateway, ReasonBackendReset)
		want := int64(1)
		if c.again {
			want = 3
		}
		if got.Load() != want {
			t.Errorf("%s %q: sent %d times, want %d", c.method, c.fields, got.Load(), want)
		}
	}
}

// D11: a backend closes idle connections at about the moment at which they are
// used. No GET fails, with one endpoint too.
func TestIdleConnectionsThatEnd(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		}
	})
	w := newWorld(t, nil, b)
	client := w.client()
	tick := time.NewTicker(9900 * time.Microsecond)
	defer tick.Stop()
	for i := range scale.N(1000) {
		<-tick.C
		answer, err := client.Get("http://web/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %d %s", i, answer.StatusCode, answer.Header.Get(headerReason))
		}
		tick.Reset(9500*time.Microsecond + time.Duration(i%11)*100*time.Microsecond)
	}
}

// E6: all backends fail every time; the budget keeps the tries near the
// requests.
func TestRetryBudget(t *testing.T) {
	var got atomic.Int64
	backend := func() string {
		return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
			if _, err := readHead(r); err == nil {
				got.Add(1)
			}
			_ = c.SetLinger(0)
		})
	}
	w := newWorld(t, nil, backend(), backend(), backend())
	s := settings.Default()
	s.Retry.Budget, s.Retry.Floor = 10, 1
	w.proxy.Configure(s)
	n := scale.N(3000)
	for range n {
		w.get("/", "")
	}
	most := int64(float64(n)*1.1) + 150 // what a burst may take
	if got.Load() > most {
		t.Errorf("%d tries for %d requests, at most %d were expected", got.Load(), n, most)
	}
	if w.metric("fairlead_l7_retries_refused_total") == 0 {
		t.Error("nothing was refused by the budget")
	}
}

// A connect that gets no answer is given up sooner where another endpoint
// exists.
func TestConnectTimeout(t *testing.T) {
	// A listener whose queue is full takes no further connects.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	full := fill(t, l)
	w := newWorld(t, func(o *options) { o.connect, o.connectAgain = 400*time.Millisecond, 100*time.Millisecond }, full)
	start := time.Now()
	answer, _ := w.get("/", "")
	expect(t, answer, http.StatusGatewayTimeout, ReasonConnectTimeout)
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("after %v", took)
	}
	w = newWorld(t, func(o *options) { o.connect, o.connectAgain = time.Minute, 100*time.Millisecond }, full, server(t, ok))
	for range 10 {
		start = time.Now()
		answer, err := w.client().Post("http://web/", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || time.Since(start) > time.Minute/2 {
			t.Errorf("%d after %v", answer.StatusCode, time.Since(start))
		}
	}
}

// A client that goes away before a connect makes no failed connect.
func TestNoConnectForAClientThatIsGone(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w.proxy.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodGet, "http://web/", nil))
	w.logged(`"status":499`)
	await.For(t, "no request under way", func() bool { return w.metric("fairlead_l7_requests_in_flight") == 0 })
	if n := w.metric("fairlead_l7_connects_total", "result", "failed"); n != 0 {
		t.Errorf("%v failed connects", n)
	}
}
