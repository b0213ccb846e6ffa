package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/api"
)

func TestHTTP(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_test_total", Help: "A test."})
	registry.MustRegister(counter)
	counter.Inc()
	var live, ready error
	l, err := api.ListenTCP("http.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := api.ServeHTTP(l, registry, api.Health{Live: func() error { return live }, Ready: func() error { return ready }}, slog.New(slog.DiscardHandler))
	transport := &http.Transport{DisableKeepAlives: true}
	get := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	check := func(method, path string, code int, body string) {
		t.Helper()
		if c, b := get(method, path); c != code || !strings.Contains(b, body) {
			t.Errorf("%s %s: %d %q, want %d with %q", method, path, c, b, code, body)
		}
	}

	check("GET", "/livez", 200, "ok\n")
	check("GET", "/readyz", 200, "ok\n")
	ready = errors.New("the node leaves")
	check("GET", "/livez", 200, "ok\n")
	check("GET", "/readyz", 503, "the node leaves\n")
	live = errors.New("stuck")
	check("GET", "/livez", 503, "stuck\n")
	check("GET", "/metrics", 200, "fairlead_test_total 1")
	check("GET", "/", 404, "")
	check("POST", "/metrics", 405, "")

	h.Stop(context.Background())
	if _, err := transport.RoundTrip(mustRequest(t, "http://"+l.Addr().String()+"/livez")); err == nil {
		t.Error("it still answers after Stop")
	}
}

// A request that never ends does not hold up a bounded stop.
func TestHTTPStopIsBounded(t *testing.T) {
	asked := make(chan struct{})
	release := make(chan struct{})
	stuck := func() error { close(asked); <-release; return nil }
	l, err := api.ListenTCP("http.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := api.ServeHTTP(l, prometheus.NewRegistry(), api.Health{Live: stuck, Ready: stuck}, slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		transport := &http.Transport{DisableKeepAlives: true}
		if resp, err := transport.RoundTrip(mustRequest(t, "http://"+l.Addr().String()+"/livez")); err == nil {
			resp.Body.Close()
			t.Error("a request that was cut off got an answer")
		}
	}()
	<-asked
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.Stop(ctx)
	<-ended
	close(release)
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
