package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
	"github.com/fairlead/fairlead/test/transcript"
)

// world is a proxy behind a server, with its services.
type world struct {
	t        testing.TB
	proxy    *Proxy
	registry *prometheus.Registry
	addr     string // of the server
	log      *transcript.Buffer
	editor   *route.Table[*Target]
	services map[dataplane.Key]*dataplane.Service
}

// newWorld starts a proxy with the service web, default namespace, at backends.
func newWorld(t testing.TB, adjust func(*options), backends ...string) *world {
	t.Helper()
	w := &world{t: t, registry: prometheus.NewRegistry(), log: &transcript.Buffer{}, services: map[dataplane.Key]*dataplane.Service{}}
	s := settings.Default()
	p, err := New(s, w.registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = p
	w.adjust(func(o *options) {
		o.log = newAccessLog(w.log, p.metrics.dropped)
		o.connect, o.connectAgain, o.try = await.Patience, await.Patience, await.Patience // however busy the machine is
		if adjust != nil {
			adjust(o)
		}
	})
	w.editor = route.New[*Target](s.Zone)
	w.serve("web", backends...)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	server := &http.Server{
		Handler: http1.Handler(p, p.Refused), ConnContext: http1.ConnContext, ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(http1.Listener(l, http1.Limits{}))
	}()
	t.Cleanup(func() {
		p.Close()
		_ = server.Close()
		<-served
	})
	return w
}

func (w *world) adjust(f func(*options)) {
	o := *w.proxy.options.Load()
	f(&o)
	w.proxy.options.Store(&o)
}

func key(name string) dataplane.Key { return dataplane.Key{Namespace: "default", Name: name} }

// serve makes a service of these addresses. The id of an endpoint follows from
// its address.
func (w *world) serve(name string, backends ...string) {
	w.t.Helper()
	var list []dataplane.Endpoint
	for _, b := range backends {
		addr := netip.MustParseAddrPort(b)
		list = append(list, dataplane.Endpoint{ID: uint64(addr.Port()), Name: name + "-" + b, Addr: addr, Weight: 1})
	}
	w.apply(&dataplane.Service{Key: key(name), Endpoints: dataplane.NewEndpoints(list...)}, nil)
}

func (w *world) apply(svc *dataplane.Service, removed []dataplane.Removal) {
	w.t.Helper()
	edit := w.editor.Edit()
	if err := edit.Set(route.Service[*Target]{Key: svc.Key, Hosts: svc.Hosts, Routes: svc.Routes, Target: w.proxy.Target(svc.Key)}); err != nil {
		w.t.Fatal(err)
	}
	w.services[svc.Key] = svc
	w.proxy.Update(svc, removed)
	w.editor, _ = edit.Done()
	w.proxy.Swap(w.editor)
}

// remove takes the endpoint at an address out of the service web.
func (w *world) remove(backend string, reason dataplane.RemovalReason) {
	w.t.Helper()
	old := w.services[key("web")]
	var rest []dataplane.Endpoint
	var removed []dataplane.Removal
	for e := range old.Endpoints.All() {
		if e.Addr.String() == backend {
			removed = append(removed, dataplane.Removal{Endpoint: e, Reason: reason})
		} else {
			rest = append(rest, e)
		}
	}
	w.apply(&dataplane.Service{Key: old.Key, Endpoints: dataplane.NewEndpoints(rest...), DrainTime: old.DrainTime}, removed)
}

// logged waits for a line with all of these.
func (w *world) logged(parts ...string) {
	w.t.Helper()
	await.For(w.t, fmt.Sprintf("a line of the log with %q", parts), func() bool {
		for line := range strings.Lines(w.log.String()) {
			found := true
			for _, part := range parts {
				found = found && strings.Contains(line, part)
			}
			if found {
				return true
			}
		}
		return false
	})
}

// metric is the sum of all series of a metric whose labels are these.
func (w *world) metric(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := true
			for i := 0; i < len(labels); i += 2 {
				has := false
				for _, l := range m.GetLabel() {
					has = has || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				match = match && has
			}
			if match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// server is a backend of net/http that ends with the test.
func server(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// raw is a backend that speaks in bytes: each connection is handled by f. It ends
// with the test.
func raw(t testing.TB, f func(c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			all.Go(func() {
				f(c.(*net.TCPConn), bufio.NewReader(c))
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// says is a raw backend that reads a head and answers with these bytes, for each
// request anew until the client goes; if ends, it closes after the first.
func says(t testing.TB, answer string, ends bool) string {
	return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil || ends {
				return
			}
		}
	})
}

// readHead reads a head with its empty line.
func readHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return head.String(), err
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String(), nil
		}
	}
}

// refusing is an address at which nobody listens.
func refusing(t testing.TB) string {
	t.Helper()
	return port.Free(t)
}

// dial opens a connection to the proxy.
func (w *world) dial() (*net.TCPConn, *bufio.Reader) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	w.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// ask sends bytes over a new connection and reads an answer to a request with
// this method.
func (w *world) ask(method, request string) (*http.Response, string) {
	w.t.Helper()
	c, r := w.dial()
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	return w.answer(method, r)
}

func (w *world) answer(method string, r *bufio.Reader) (*http.Response, string) {
	w.t.Helper()
	answer, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatalf("the body after %q: %v", body, err)
	}
	return answer, string(body)
}

// get asks for a path with fields of the head, each ending in CRLF.
func (w *world) get(path, fields string) (*http.Response, string) {
	w.t.Helper()
	return w.ask(http.MethodGet, "GET "+path+" HTTP/1.1\r\nHost: web\r\n"+fields+"\r\n")
}

// client is a client of net/http that dials the proxy whatever the URL says.
func (w *world) client() *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", w.addr)
		},
		DisableCompression: true,
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// paced does what moves often enough for a limit of silence: beat waits for the next
// third of that. If it fails and the machine did not keep that pace, silence may have
// been noticed rightly, and it is done again.
func paced(t testing.TB, limit time.Duration, f func(beat func()) error) {
	t.Helper()
	for try := 1; ; try++ {
		tick := time.NewTicker(limit / 3)
		last, longest := time.Now(), time.Duration(0)
		beat := func() {
			longest = max(longest, time.Since(last))
			<-tick.C
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		err := f(beat)
		tick.Stop()
		longest = max(longest, time.Since(last))
		if err == nil {
			return
		}
		if longest <= limit/2 || try == 20 {
			t.Fatalf("try %d, no pause longer than %v of %v: %v", try, longest, limit, err)
		}
	}
}

// expect checks status and reason.
func expect(t testing.TB, answer *http.Response, status int, reason Reason) {
	t.Helper()
	if got := Reason(answer.Header.Get(headerReason)); answer.StatusCode != status || got != reason {
		t.Errorf("status %d, reason %q; want %d, %q", answer.StatusCode, got, status, reason)
	}
}

// descriptors counts the open sockets of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
