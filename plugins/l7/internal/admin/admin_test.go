package admin

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_a_test"}))
	why := "not yet"
	s := New(registry, func() string { return why }, slog.New(slog.DiscardHandler))
	defer s.Close()
	if s.Address() != "" {
		t.Errorf("it listens at %s before Configure", s.Address())
	}
	if err := s.Configure("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	at := s.Address()
	if code, body := get(t, "http://"+at+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, why) {
		t.Errorf("got %d %q", code, body)
	}
	why = ""
	for path, want := range map[string]string{"/readyz": "ok", "/livez": "ok", "/metrics": "of_a_test 0"} {
		if code, body := get(t, "http://"+at+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %q", path, code, body)
		}
	}
	if err := s.Configure("127.0.0.1:0"); err != nil || s.Address() != at {
		t.Errorf("the same again: %v, and it moved from %s to %s", err, at, s.Address())
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{taken.Addr().String(): "in use", "198.51.100.1:1": "another address"} {
		if err := s.Configure(address); err == nil || !strings.Contains(err.Error(), "admin "+address) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	if code, _ := get(t, "http://"+at+"/livez"); code != http.StatusOK {
		t.Errorf("after a refused change: got %d", code)
	}
	if err := s.Configure(settings.Off); err != nil || s.Address() != "" {
		t.Errorf("off: %v, and it listens at %q", err, s.Address())
	}
	if c, err := net.Dial("tcp", at); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

// Connections that say nothing hold no more than their number; who comes then
// waits for one of them to end.
func TestConnectionsAreBounded(t *testing.T) {
	s := New(prometheus.NewRegistry(), func() string { return "" }, slog.New(slog.DiscardHandler))
	defer s.Close()
	if err := s.Configure("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range mostConnections {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	late := &http.Client{Timeout: 100 * time.Millisecond}
	if r, err := late.Get("http://" + s.Address() + "/livez"); err == nil {
		_ = r.Body.Close()
		t.Errorf("connection %d is answered", mostConnections+1)
	}
	_ = silent[0].Close()
	if code, body := get(t, "http://"+s.Address()+"/livez"); code != http.StatusOK {
		t.Errorf("once there is room: %d %q", code, body)
	}
}
