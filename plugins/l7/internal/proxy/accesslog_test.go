package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/transcript"
)

// Whatever a client writes, a line stays one JSON object, and every byte of it
// is printable ASCII.
func FuzzLine(f *testing.F) {
	f.Add("GET", "web", "/a", "id")
	f.Add("G\x00T", "we\nb\"", "/\x1b[31m\xff\u2028", "\U0001f600\\")
	f.Fuzz(func(t *testing.T, method, host, path, id string) {
		e := entry{time: time.Unix(1, 0), method: method, host: host, target: path, requestID: id, client: "127.0.0.1", status: 200, reason: ReasonNoEndpoint, backend: "x", service: "s"}
		line := e.appendTo(nil)
		for _, c := range line[:len(line)-1] {
			if c < ' ' || c > '~' {
				t.Fatalf("byte %#x in %q", c, line)
			}
		}
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for key, text := range map[string]string{"method": method, "host": host, "path": path, "id": id} {
			want := string([]rune(text)) // each byte that is not UTF-8 is U+FFFD
			if len(text) <= textBytes && got[key] != want {
				t.Errorf("%s %q became %q", key, text, got[key])
			}
		}
	})
}

// blocked is a writer that is stuck until it is let go.
type blocked struct{ writing, release chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	select {
	case b.writing <- struct{}{}:
	default:
	}
	<-b.release
	return len(p), nil
}

// Requests never wait for the log: what nobody takes is lost, and counted.
func TestStuckLogDropsLines(t *testing.T) {
	stuck := blocked{writing: make(chan struct{}, 1), release: make(chan struct{})}
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "lost", Help: "."})
	l := newAccessLog(stuck, lost)
	l.put([]byte("the writer has this one\n"))
	<-stuck.writing
	const more = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range waitingLines + more {
			l.put([]byte("line\n"))
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("put waits")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(lost)
	families, err := registry.Gather()
	if err != nil || families[0].GetMetric()[0].GetCounter().GetValue() != more {
		t.Errorf("want %d lost, got %v, %v", more, families, err)
	}
	close(stuck.release)
	l.close()
}

func TestClosedLogWritesWhatWaits(t *testing.T) {
	to := &transcript.Buffer{}
	l := newAccessLog(to, prometheus.NewCounter(prometheus.CounterOpts{Name: "lost", Help: "."}))
	for range 100 {
		l.put([]byte("line\n"))
	}
	l.close()
	await.For(t, "all transcript.Buffer", func() bool { return strings.Count(to.String(), "\n") == 100 })
}

// Secrets in queries and headers are not logged.
func TestLogHoldsNoSecrets(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	w.get("/a?token=hush", "Authorization: Bearer hush\r\nCookie: hush\r\n")
	w.logged(`"path":"/a"`)
	if strings.Contains(w.log.String(), "hush") {
		t.Error(w.log.String())
	}
}

func TestRefusedRequestsAreLogged(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	c, r := w.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\nHost: other\r\n\r\n")
	if answer, _ := w.answer("GET", r); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("%d", answer.StatusCode)
	}
	w.logged(`"status":400`, `"path":"-"`, `"reason":"bad-request","detail":"two Host headers"`)
	if w.metric("fairlead_l7_bad_requests_total", "status", "400") != 1 {
		t.Error("not counted")
	}
}
