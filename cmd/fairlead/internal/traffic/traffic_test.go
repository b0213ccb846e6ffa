package traffic

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/port"
)

// server answers with f and counts what it is asked.
func server(t *testing.T, f http.HandlerFunc) (addr string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), asked
}

func config(addr string) Config {
	return Config{
		Addr: addr, Host: "web", Rate: 200, For: 500 * time.Millisecond, Limit: 5 * time.Second,
		Name: "Instance", FailHeader: "Why", Now: time.Now,
	}
}

func TestAnswers(t *testing.T) {
	addr, asked := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "web" || r.Method != http.MethodGet {
			t.Errorf("%s of host %s", r.Method, r.Host)
		}
		w.Header().Set("Instance", "web-1")
	})
	r := Run(context.Background(), config(addr))
	if r.Requests != 100 || r.Errors != 0 || r.Answers["web-1"] != 100 || asked.Load() != 100 || !r.FirstError.IsZero() || !r.LastError.IsZero() {
		t.Errorf("%+v, asked %d times", r, asked.Load())
	}
	if r.P50 <= 0 || r.P99 < r.P50 || r.Max < r.P99 {
		t.Errorf("latencies %v, %v, %v", r.P50, r.P99, r.Max)
	}
	// It began on time, so the rate is at most what was asked for.
	if r.Rate <= 0 || r.Rate > 200.001 {
		t.Errorf("%g a second", r.Rate)
	}
}

// Whatever goes wrong is an error, and nothing is sent twice: also not where a
// kept connection is closed without an answer, which net/http sends again.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		cause  string
	}{
		"status": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Why", "no-endpoint")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "answer 503 Service Unavailable no-endpoint"},
		"closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "receive: unexpected EOF"},
		"short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("x"))
		}, "receive: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			addr, asked := server(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%2 == 0 {
					c.answer(w, r)
				}
			})
			r := Run(context.Background(), config(addr))
			if r.Errors != 50 || r.Causes[c.cause] != 50 || r.Answers[""] != 50 || asked.Load() != 100 || r.FirstError.IsZero() || !r.LastError.After(r.FirstError) {
				t.Errorf("%+v, asked %d times", r, asked.Load())
			}
		})
	}
}

func TestLimit(t *testing.T) {
	addr, _ := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := config(addr)
	c.Limit, c.For = 100*time.Millisecond, 50*time.Millisecond
	r := Run(context.Background(), c)
	if r.Requests != 10 || r.Errors != 10 || r.P50 < c.Limit {
		t.Errorf("%+v", r)
	}
	for cause := range r.Causes { // a busy machine may not even come to send
		if !strings.HasSuffix(cause, ": no answer in time") {
			t.Errorf("cause %q", cause)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	r := Run(context.Background(), config(port.Free(t)))
	if r.Errors != 100 {
		t.Errorf("%+v", r)
	}
	for cause := range r.Causes {
		if !strings.HasPrefix(cause, "connect: ") || !strings.HasSuffix(cause, "connection refused") {
			t.Errorf("cause %q", cause)
		}
	}
}

// A slow answer delays no other request, and what was late counts as such.
func TestStall(t *testing.T) {
	var n, held atomic.Int64
	others := make(chan struct{})
	addr, _ := server(t, func(_ http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			began := time.Now()
			select {
			case <-others:
			case <-r.Context().Done():
			}
			held.Store(int64(time.Since(began)))
		case 100:
			close(others)
		}
	})
	r := Run(context.Background(), config(addr))
	if r.Errors != 0 || r.Max < time.Duration(held.Load()) || r.P50 >= r.Max {
		t.Errorf("%+v, one answer was held for %v", r, time.Duration(held.Load()))
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	addr, asked := server(t, func(http.ResponseWriter, *http.Request) { cancel() })
	c := config(addr)
	c.For = time.Hour
	r := Run(ctx, c)
	if int64(r.Requests) != asked.Load() || r.Requests == 0 {
		t.Errorf("%+v, asked %d times", r, asked.Load())
	}
}

func TestRank(t *testing.T) {
	var took []time.Duration
	if rank(took, 0.5) != 0 {
		t.Error("of nothing")
	}
	for i := range 200 {
		took = append(took, time.Duration(i+1))
	}
	for share, want := range map[float64]time.Duration{0.5: 101, 0.99: 199, 1: 200} {
		if got := rank(took, share); got != want {
			t.Errorf("rank %g: %d, want %d", share, got, want)
		}
	}
}
