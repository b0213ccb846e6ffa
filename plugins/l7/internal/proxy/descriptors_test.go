package proxy

import (
	"io"
	"net/http"
	"os"
	"syscall"
	"testing"
)

// exhaust opens files until the process may open no more, and gives them back
// when the test ends.
func exhaust(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lower := limit
	lower.Cur = min(limit.Cur, 256)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	t.Cleanup(func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		files = append(files, f)
	}
}

// Where no descriptor is left for a connection to a backend, one goes that only
// waits for use at another.
func TestConnectsThatWaitMakeRoom(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	w := newWorld(t, nil, server(t, handler))
	w.serve("api", server(t, handler))
	c, r := w.dial()
	ask := func(host string) string {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		answer, _ := w.answer(http.MethodGet, r)
		return answer.Status
	}
	if status := ask("web"); status != "200 OK" {
		t.Fatal(status)
	}
	if _, idle := w.proxy.connections(); idle != 1 {
		t.Fatalf("%d connections wait, want 1", idle)
	}
	exhaust(t)
	if status := ask("api"); status != "200 OK" {
		t.Errorf("no descriptor was given back: %s", status)
	}
}
