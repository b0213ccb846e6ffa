package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

const probeHost = "nobody-knows.fairlead.invalid"

func at(addresses ...string) settings.Settings {
	s := settings.Default()
	s.Listen = addresses
	return s
}

func newFront(t *testing.T, handler http.HandlerFunc) *Front {
	t.Helper()
	f, err := New(handler, nil, nil, probeHost, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.refusal, f.check = await.Patience, await.Patience // however busy the machine is
	return f
}

// start returns a front that answers by handler at 127.0.0.1, any port.
func start(t *testing.T, handler http.HandlerFunc) *Front {
	t.Helper()
	f := newFront(t, handler)
	if err := f.Configure(at("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.Close(ctx)
	})
	return f
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// client returns a client with connections of its own.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: await.Patience}
}

func get(c *http.Client, address string) (*http.Response, error) {
	r, err := c.Get("http://" + address + "/")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || string(body) != "ok") {
		err = fmt.Errorf("got %s, %q", r.Status, body)
	}
	return r, err
}

func TestABusyPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f := start(t, ok)
	before := f.Addresses()
	err = f.Configure(at("127.0.0.1:0", taken.Addr().String(), "[::1]:0"))
	var port *Taken
	if !errors.As(err, &port) || port.Address != taken.Addr().String() {
		t.Fatalf("got %v, want that the port is taken", err)
	}
	for _, part := range []string{"listen " + taken.Addr().String(), "in use", "ss -ltnp"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
	if got := f.Addresses(); strings.Join(got, " ") != strings.Join(before, " ") {
		t.Errorf("after a refused change it listens at %v, before at %v", got, before)
	}
	if _, err := get(client(t), before[0]); err != nil {
		t.Error(err)
	}
}

func TestAnAddressThatIsNotHere(t *testing.T) {
	f := newFront(t, ok)
	err := f.Configure(at("198.51.100.1:8080"))
	if err == nil || !strings.Contains(err.Error(), "198.51.100.1:8080") || !strings.Contains(err.Error(), "no such address") {
		t.Errorf("got %v", err)
	}
}

// Settings and listeners change a hundred times under load; a connection that is
// open stays, one that is new finds a listener, and nobody sees an error.
func TestChangesDropNothing(t *testing.T) {
	f := start(t, ok)
	address := f.Addresses()[0]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var requests [4]atomic.Int64
	for i := range requests {
		load.Go(func() {
			c := client(t)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if i == 0 {
					c.CloseIdleConnections() // each request on a new connection
				}
				if _, err := get(c, address); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				requests[i].Add(1)
			}
		})
	}
	for i := range scale.N(200) {
		s := at("127.0.0.1:0", "127.0.0.1:0")
		s.MaxHeaderBytes += i % 3
		if i%2 == 0 {
			s = at("127.0.0.1:0")
		}
		if err := f.Configure(s); err != nil {
			t.Error(err)
		}
	}
	await.For(t, "a request of each client", func() bool {
		for i := range requests {
			if requests[i].Load() == 0 && !t.Failed() {
				return false
			}
		}
		return true
	})
	close(stop)
	load.Wait()
	// A connection that its client closed counts until its server has noticed.
	await.For(t, "no more servers than connections", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.retire()
		return len(f.eras) <= 2+len(requests)
	})
	// The address for all and the one for loopback cannot both be open.
	if err := f.Configure(at("0.0.0.0:" + port)); err != nil {
		t.Fatal(err)
	}
	if err := f.Configure(at("127.0.0.1:" + port)); err != nil {
		t.Fatal(err)
	}
	if _, err := get(client(t), "127.0.0.1:"+port); err != nil {
		t.Error(err)
	}
}

func TestLeaveAsksClientsToGo(t *testing.T) {
	f := start(t, ok)
	c := client(t)
	if r, err := get(c, f.Addresses()[0]); err != nil || r.Close {
		t.Fatalf("got %v, close %v", err, r.Close)
	}
	f.Leave()
	if r, err := get(c, f.Addresses()[0]); err != nil || !r.Close {
		t.Errorf("got %v, close %v; want an answer that closes the connection", err, r.Close)
	}
}

func TestCloseWaitsAndCuts(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		ok(w, r)
	})
	address := f.Addresses()[0]
	answers := make(chan error, 2)
	ask := func() {
		_, err := get(client(t), address)
		answers <- err
	}
	go ask()
	<-entered
	if f.Requests() != 1 {
		t.Errorf("%d requests are under way, want 1", f.Requests())
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		f.Close(context.Background())
	}()
	await.For(t, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case <-closed:
		t.Error("Close did not wait for a request")
	default:
	}
	close(release)
	if err := <-answers; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
	<-closed

	// Again, with nobody who lets the request go.
	release = make(chan struct{})
	if err := f.Configure(at("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	address = f.Addresses()[0]
	go ask()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.Close(ctx)
	if err := <-answers; err == nil {
		t.Error("a request outlived the end of the grace")
	}
}

func TestCheck(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	if err := f.Configure(at("127.0.0.1:0", "[::]:0")); err != nil {
		t.Fatal(err)
	}
	if wrong, _ := f.Check(t.Context()); len(wrong) > 0 {
		t.Errorf("got %q", wrong)
	}
	f.doors[1].discard() // as if the system had taken it away
	wrong, _ := f.Check(t.Context())
	if len(wrong) != 1 || !strings.Contains(wrong[0], f.doors[1].Addr().String()) {
		t.Errorf("got %q, want that the second listener does not answer", wrong)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Close(ctx)
	if wrong, _ := f.Check(t.Context()); len(wrong) != 1 {
		t.Errorf("of a closed front: got %q", wrong)
	}
}

func TestSomebodyElseAnswers(t *testing.T) {
	f, other := start(t, ok), start(t, ok)
	other.probe = "another.invalid"
	f.doors[0], other.doors[0] = other.doors[0], f.doors[0]
	if wrong, _ := f.Check(t.Context()); len(wrong) != 1 || !strings.Contains(wrong[0], "somebody else") {
		t.Errorf("got %q", wrong)
	}
	f.doors[0], other.doors[0] = other.doors[0], f.doors[0]
}

func TestH2C(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusTeapot)
		}
		ok(w, r)
	})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: await.Patience}
	if _, err := get(c, f.Addresses()[0]); err == nil {
		t.Error("HTTP/2 was taken although it is off")
	}
	s := at("127.0.0.1:0")
	s.H2C = true
	if err := f.Configure(s); err != nil {
		t.Fatal(err)
	}
	if _, err := get(c, f.Addresses()[0]); err != nil {
		t.Error(err)
	}
	if _, err := get(client(t), f.Addresses()[0]); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("HTTP/1.1 beside it: got %v", err)
	}
}

// net/http would answer OPTIONS * in the name of a service that it never asked.
func TestOptionsOfTheWholeServer(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	c, err := net.Dial("tcp", f.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	_, _ = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "\r\n\r\n*") {
		t.Errorf("%q %v", answer, err)
	}
}

// A head that has begun and does not end is answered with 408, also the first
// one of a connection; a connection on which nothing comes is closed.
func TestHeadsThatAreLate(t *testing.T) {
	listen := func(first time.Duration) (address string) {
		f := start(t, ok)
		f.first = first
		s := at("127.0.0.1:0")
		s.Timeouts.Header = 100 * time.Millisecond
		if err := f.Configure(s); err != nil {
			t.Fatal(err)
		}
		return f.Addresses()[0]
	}
	address := listen(await.Patience) // however late the first byte is sent
	second := dial(t, address, askNow)
	if r := answerOf(t, second); r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
	_, _ = io.WriteString(second, "GET / HTTP/1.1\r\nHo")
	for name, c := range map[string]net.Conn{"first": dial(t, address, "GET / HTTP/1.1\r\nHo"), "second": second} {
		if r := answerOf(t, c); r.StatusCode != http.StatusRequestTimeout {
			t.Errorf("the %s head: %s, want 408", name, r.Status)
		}
	}
	if n, err := dial(t, listen(guardFirst), "").Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection on which nothing comes: %d %v, want its end", n, err)
	}
}
