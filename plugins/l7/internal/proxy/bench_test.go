package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkGet is a keep-alive GET of 1 KB through the proxy, and through a bare
// httputil.ReverseProxy that has a pool of buffers and keeps its connections.
// Client and backend are as cheap as can be, but run in this process too:
// compare with direct.
func BenchmarkGet(b *testing.B) {
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n\r\n" + strings.Repeat("x", 1024)
	backend := says(b, answer, false)
	b.Run("direct", func(b *testing.B) { load(b, backend, len(answer)) })
	b.Run("proxy", func(b *testing.B) {
		w := newWorld(b, func(o *options) { o.log = nil }, backend)
		load(b, w.addr, 0)
	})
	b.Run("proxy with access log", func(b *testing.B) {
		w := newWorld(b, func(o *options) { o.log = newAccessLog(io.Discard, nil) }, backend)
		load(b, w.addr, 0)
	})
	b.Run("httputil", func(b *testing.B) {
		to := &url.URL{Scheme: "http", Host: backend}
		transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
		defer transport.CloseIdleConnections()
		p := &httputil.ReverseProxy{
			Transport: transport, BufferPool: &buffers{}, Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.SetXForwarded()
			},
		}
		load(b, server(b, p.ServeHTTP), 0)
	})
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// load makes b.N requests over one connection and reports the CPU time that the
// process spent. size is the length of an answer; 0: as the first one.
func load(b *testing.B, addr string, size int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const request = "GET /some/path?q=1 HTTP/1.1\r\nHost: web\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n\r\n"
	if size == 0 {
		_, _ = io.WriteString(c, request)
		r := bufio.NewReader(c)
		head, err := readHead(r)
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") {
			b.Fatal(head, err)
		}
		if _, err := r.Discard(1024); err != nil {
			b.Fatal(err)
		}
		size = len(head) + 1024
	}
	buffer := make([]byte, size)
	out := []byte(request)
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpu is the CPU time of this process in ns.
func cpu(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(fmt.Errorf("getrusage: %w", err))
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
