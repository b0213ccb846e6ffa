package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// Whatever happens to requests, goroutines and sockets return to what they were.
func TestNothingStaysBehind(t *testing.T) {
	goroutines, sockets := runtime.NumGoroutine(), descriptors(t)
	t.Run("work", func(t *testing.T) {
		w := newWorld(t, func(o *options) { o.try = 20 * time.Millisecond },
			server(t, ok), says(t, "nonsense\r\n\r\n", true), says(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", true), refusing(t), echoSocket(t))
		client := w.client()
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range scale.N(200) {
					var body io.Reader
					method := http.MethodGet
					if (i+worker)%3 == 0 {
						method, body = http.MethodPost, bytes.NewReader(make([]byte, i*100))
					}
					r, err := http.NewRequest(method, "http://web/", body)
					if err != nil {
						t.Error(err)
						return
					}
					if answer, err := client.Do(r); err == nil {
						_, _ = io.Copy(io.Discard, answer.Body)
						_ = answer.Body.Close()
					}
				}
			})
		}
		all.Wait()
		await.For(t, "no request under way", func() bool { return w.metric("fairlead_l7_requests_in_flight") == 0 })
	})
	await.For(t, "goroutines and sockets as before", func() bool {
		return runtime.NumGoroutine() <= goroutines+2 && descriptors(t) <= sockets
	})
}

// E1, E2: what is known of endpoints survives snapshots, so the load stays
// even while they come.
func TestDistributionDuringUpdates(t *testing.T) {
	// P2C by latency is no even draw, so only what is grossly uneven fails; and on a
	// busy machine, on which latencies are those of chance, what is so each time.
	for try := 1; ; try++ {
		n := scale.N(3000)
		got := distribution(t, n)
		want, chi := float64(n)/3, 0.0
		for _, g := range got {
			chi += math.Pow(float64(g)-want, 2) / want
		}
		if chi <= 0.2*float64(n) {
			return
		}
		if scale.Factor() >= 1 || try == 10 {
			t.Fatalf("try %d: %d requests went %v", try, n, got)
		}
	}
}

// distribution makes n requests to three endpoints while snapshots come, and returns
// how many each got.
func distribution(t *testing.T, n int) (all [3]int64) {
	t.Helper()
	var got [3]atomic.Int64
	var backends []string
	for i := range got {
		backends = append(backends, server(t, func(w http.ResponseWriter, r *http.Request) {
			got[i].Add(1)
			ok(w, r)
		}))
	}
	w := newWorld(t, nil, backends...)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				list := w.services[key("web")].Endpoints.Slice()
				if i%2 == 0 { // one that takes none
					list = append(list, dataplane.Endpoint{ID: 1, Name: "idle", Addr: netip.MustParseAddrPort("127.0.0.1:1")})
				}
				w.proxy.Update(&dataplane.Service{Key: key("web"), Endpoints: dataplane.NewEndpoints(list...)}, nil)
			}
		}
	}()
	client := w.client()
	for range n {
		answer, err := client.Get("http://web/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	close(stop)
	<-stopped
	if c := w.metric("fairlead_l7_connects_total"); c > 3 {
		t.Errorf("%v connects: pools did not survive the updates", c)
	}
	for i := range got {
		all[i] = got[i].Load()
	}
	return all
}

// Endpoints come and go under load, and no request fails.
func TestEndpointsComeAndGo(t *testing.T) {
	a, b, c := server(t, ok), server(t, ok), server(t, ok)
	w := newWorld(t, nil, a, b)
	client := w.client()
	stop := make(chan struct{})
	var all sync.WaitGroup
	var requests atomic.Int64
	for worker := range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				method := http.MethodGet
				if worker%2 == 0 {
					method = http.MethodPost
				}
				r, _ := http.NewRequest(method, "http://web/", nil)
				answer, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("%s: %d %s", method, answer.StatusCode, answer.Header.Get(headerReason))
					return
				}
				requests.Add(1)
			}
		})
	}
	for i := range scale.N(100) {
		set := [][]string{{a, b}, {b, c}, {c, a}, {a, b, c}, {c}}[i%5]
		before := requests.Load()
		w.serve("web", set...)
		await.For(t, "further requests", func() bool { return requests.Load() > before+20 || t.Failed() })
	}
	close(stop)
	all.Wait()
}

func TestStats(t *testing.T) {
	b := server(t, ok)
	w := newWorld(t, nil, b)
	for range 3 {
		w.ask("POST", "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhello")
	}
	got := map[string]uint64{}
	w.proxy.Stats(func(c dataplane.Counter) bool {
		got[fmt.Sprintf("%s %v %s", c.Service, c.Endpoint != 0, c.Name)] += c.Value
		return true
	})
	for name, want := range map[string]uint64{
		"default/web false requests": 3, "default/web false no_endpoint": 0, "default/web true tries": 3, "default/web true failed": 0,
		"default/web true bytes_sent": 15, "default/web true bytes_received": 18,
	} {
		if got[name] != want {
			t.Errorf("%s: %d, want %d", name, got[name], want)
		}
	}
	calls := 0
	w.proxy.Stats(func(dataplane.Counter) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("%d calls after the first said no", calls)
	}
}

func TestSettingsAreTakenWhileRequestsRun(t *testing.T) {
	w := newWorld(t, nil, refusing(t))
	w.get("/", "") // it is left out now
	s := settings.Default()
	s.Retry.Most, s.Ejection.First = 0, time.Minute
	w.proxy.Configure(s)
	if o := w.proxy.options.Load(); o.tries != 0 || o.log != nil {
		t.Errorf("%+v", o)
	}
	w.serve("web", refusing(t), server(t, ok))
	failed := 0
	for range 20 {
		if answer, _ := w.get("/", ""); answer.StatusCode != http.StatusOK {
			failed++
		}
	}
	if failed > 1 {
		t.Errorf("%d requests failed though the endpoint is left out after the first", failed)
	}
}

func TestRemovedServiceAndClosedProxy(t *testing.T) {
	w := newWorld(t, nil, server(t, ok))
	w.get("/", "")
	w.proxy.Remove(key("web"), nil)
	answer, _ := w.get("/", "")
	expect(t, answer, http.StatusServiceUnavailable, ReasonNoEndpoint)
	if n := w.metric("fairlead_l7_backend_connections_idle"); n != 0 {
		t.Errorf("%v connections stay", n)
	}
	w.proxy.Remove(key("web"), nil) // again changes nothing
	w.serve("web", server(t, ok))
	if answer, _ := w.get("/", ""); answer.StatusCode != http.StatusOK {
		t.Errorf("%d after it came back", answer.StatusCode)
	}
	w.proxy.Close()
	answer, _ = w.get("/", "")
	expect(t, answer, http.StatusServiceUnavailable, ReasonNoEndpoint)
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := New(settings.Default(), registry, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(settings.Default(), registry, slog.New(slog.DiscardHandler)); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("the second: %v", err)
	}
}

// As many retries as can be set are made, and none without a budget.
func TestRetrySettings(t *testing.T) {
	var tries atomic.Int64
	var backends []string
	for range settings.MostRetries + 2 {
		backends = append(backends, raw(t, func(_ *net.TCPConn, r *bufio.Reader) {
			if _, err := readHead(r); err == nil {
				tries.Add(1)
			}
		}))
	}
	w := newWorld(t, nil, backends...)
	s := settings.Default()
	s.Retry.Most, s.Timeouts.Try = settings.MostRetries, 0 // however late they end it
	w.proxy.Configure(s)
	answer, _ := w.get("/", "")
	expect(t, answer, http.StatusBadGateway, ReasonBackendReset)
	if n := tries.Swap(0); n != settings.MostRetries+1 {
		t.Errorf("%d tries", n)
	}
	s.Retry.Budget, s.Retry.Floor = 0, 0
	w.proxy.Configure(s)
	for w.proxy.registry.Pool(key("web")).Budget().Retry(time.Now()) { // what was saved up
	}
	answer, _ = w.get("/", "")
	expect(t, answer, http.StatusBadGateway, ReasonBackendReset)
	if n := tries.Load(); n != 1 {
		t.Errorf("%d tries without a budget", n)
	}
}
