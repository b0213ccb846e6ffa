package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
)

// Clients may speak HTTP/2 by prior knowledge: the same proxy, the same rules.
func TestHTTP2Clients(t *testing.T) {
	const idle = 300 * time.Millisecond
	b := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		case "/pauses":
			for range 2 {
				_, _ = io.WriteString(w, "data\n")
				_ = http.NewResponseController(w).Flush()
				<-time.After(2 * idle)
			}
			return
		case "/dies":
			_, _ = w.Write(make([]byte, 1<<20))
			panic(http.ErrAbortHandler)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = fmt.Fprintf(w, "%s %d %s %s", r.Method, n, r.Host, r.Header.Get("X-Forwarded-For"))
		w.Header().Set("Grpc-Status", "0")
	})
	w := newWorld(t, func(o *options) { o.try = 0 }, b)
	w.serveHTTP2()
	client := w.client()
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	client.Transport.(*http.Transport).Protocols = only

	ask := func(method, path string, body io.Reader) (*http.Response, string, error) {
		r, err := http.NewRequest(method, "http://web"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return nil, "", err
		}
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		return answer, string(got), err
	}
	for _, c := range []struct {
		method string
		n      int64
	}{{"GET", 0}, {"POST", 5}, {"PUT", 3 << 20}} {
		var body io.Reader
		if c.n > 0 {
			body = endless(c.n)
		}
		answer, got, err := ask(c.method, "/", body)
		if err != nil || answer.ProtoMajor != 2 || got != fmt.Sprintf("%s %d web 127.0.0.1", c.method, c.n) || answer.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%s: %v %q %v", c.method, answer, got, err)
		}
	}
	if answer, _, err := ask("POST", "/early", endless(64<<20)); err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("early: %v %v", answer, err)
	}
	was := w.proxy.options.Load().bodyIdle
	w.adjust(func(o *options) { o.bodyIdle = idle })
	if _, got, err := ask("GET", "/pauses", nil); err != nil || got != "data\ndata\n" {
		t.Errorf("pauses: %q %v", got, err)
	}
	w.adjust(func(o *options) { o.bodyIdle = was })
	if _, got, err := ask("GET", "/dies", nil); err == nil {
		t.Errorf("an answer of %d bytes that broke off looks whole", len(got))
	}
	r, _ := http.NewRequest(http.MethodGet, "http://nobody.example/", nil)
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	expect(t, answer, http.StatusNotFound, ReasonUnknownHost)
	if !strings.Contains(string(body), "nobody.example") {
		t.Errorf("%q", body)
	}
}

// serveHTTP2 puts a server in front of the proxy that takes HTTP/2 too.
func (w *world) serveHTTP2() {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler: http1.Handler(w.proxy, nil), ConnContext: http1.ConnContext, Protocols: protocols,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(http1.Listener(l, http1.Limits{H2C: true}))
	}()
	w.t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	w.addr = l.Addr().String()
}

// HTTP/2 has no request line, so blanks in a method or a query must not get into
// the one that the backend reads. Nor may a head name two hosts or two lengths, of
// which a proxy in front may have read the other one.
func TestHTTP2CannotBeReadInTwoWays(t *testing.T) {
	var got atomic.Int64
	w := newWorld(t, nil, raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := readHead(r); err == nil {
			got.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
	}))
	w.serveHTTP2()
	type fields = [][2]string
	for name, c := range map[string]struct {
		method, path string
		fields       fields
	}{
		"method with a target": {"GET /admin HTTP/1.1", "/", nil},
		"method of no token":   {"GE(T", "/", nil},
		"blank in the path":    {"GET", "/ HTTP/1.1", nil},
		"blank in the query":   {"GET", "/?a HTTP/1.1", nil},
		"bytes in the query":   {"GET", "/?\xff", nil},
		"URL":                  {"GET", "http://other.example/", nil},
		"another Host":         {"GET", "/", fields{{"host", "other.example"}}},
		"no valid Host":        {"GET", "/", fields{{"host", "web,web"}}},
		"two Hosts":            {"GET", "/", fields{{"host", "web"}, {"host", "web"}}},
		"two lengths":          {"GET", "/", fields{{"content-length", "0"}, {"content-length", "5"}}},
	} {
		if status := w.askHTTP2(c.method, c.path, c.fields...); status != "400" {
			t.Errorf("%s: status %q", name, status)
		}
	}
	if n := got.Load(); n > 0 {
		t.Errorf("%d of them reached the backend", n)
	}
	for _, proper := range []string{"web", "WEB.:80"} {
		if status := w.askHTTP2("GET", "/?a%20b", [2]string{"host", proper}, [2]string{"content-length", "0"}); status != "200" {
			t.Errorf("status %q of a proper one, with the Host %s", status, proper)
		}
	}
	if status := w.askHTTP2("OPTIONS", "*"); status != "200" {
		t.Errorf("status %q of OPTIONS *", status)
	}
}

// askHTTP2 sends a request that no client of net/http would, and returns the
// status of the answer.
func (w *world) askHTTP2(method, path string, fields ...[2]string) string {
	w.t.Helper()
	c, r := w.dial()
	_, _ = io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range append([][2]string{{":method", method}, {":path", path}, {":scheme", "http"}, {":authority", "web"}}, fields...) {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			return head.PseudoValue("status")
		}
	}
}
