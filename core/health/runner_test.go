package health

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// patience bounds every wait of these tests; only a failing test takes it.
const patience = 10 * time.Second

func keyOf(id string) InstanceKey {
	return InstanceKey{Service: model.ServiceKey{Namespace: "default", Name: "web"}, ID: id}
}

func start(t *testing.T, cfg Config) *Runner {
	t.Helper()
	r, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// waiter turns OnChange into something to wait for.
type waiter struct {
	changed chan struct{}
	calls   atomic.Int64
}

func newWaiter() *waiter { return &waiter{changed: make(chan struct{}, 1)} }

func (w *waiter) onChange() {
	w.calls.Add(1)
	signal(w.changed)
}

// until waits for OnChange to come with the instance passing or not.
func (w *waiter) until(t *testing.T, r *Runner, key InstanceKey, passing bool) Status {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		if s, ok := r.State(key); ok && s.Passing == passing {
			return s
		}
		select {
		case <-w.changed:
		case <-limit.C:
			s, _ := r.State(key)
			t.Fatalf("%s is not passing=%v after %s: %+v", key, passing, patience, s)
		}
	}
}

// eventually waits for what no callback tells.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func addrOf(t *testing.T, s *httptest.Server) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// closedPort is one where nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String())
}

func httpCheck(path string, interval time.Duration) Check {
	return Check{Kind: HTTP, Path: path, Interval: interval, Timeout: interval}
}

func TestAnInstanceFollowsItsChecks(t *testing.T) {
	var broken atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "disk full", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, "fine")
	}))
	defer s.Close()
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange})
	in := Instance{Key: keyOf("a"), Addr: addrOf(t, s), Checks: []Check{httpCheck("/healthz", MinInterval), {Kind: TCP, Interval: MinInterval}}}
	r.Set([]Instance{in})
	if got, ok := r.State(in.Key); !ok || got.Passing || !got.Checks[0].At.IsZero() {
		t.Fatalf("just set it is %+v, want critical and not probed", got)
	}
	got := w.until(t, r, in.Key, true)
	if c := got.Checks[0]; !c.OK || c.Output != "200 OK: fine" || c.Successes < 1 || c.Took <= 0 || c.At.IsZero() {
		t.Errorf("the HTTP check is %+v", c)
	}
	if c := got.Checks[1]; !c.OK || c.Output != "connected" {
		t.Errorf("the TCP check is %+v", c)
	}
	broken.Store(true)
	got = w.until(t, r, in.Key, false)
	if c := got.Checks[0]; c.OK || c.Output != "503 Service Unavailable: disk full\n" || c.Failures < 1 || c.Successes != 0 {
		t.Errorf("the failing check is %+v", c)
	}
	if !got.Checks[1].Passing {
		t.Errorf("the TCP check is %+v, want it passing still", got.Checks[1])
	}
	broken.Store(false)
	w.until(t, r, in.Key, true)
	s.Close()
	got = w.until(t, r, in.Key, false)
	if c := got.Checks[0]; c.Passing && got.Checks[1].Passing {
		t.Errorf("with the server gone it is %+v", got)
	}
}

func TestWithoutChecksAnInstancePassesAtOnce(t *testing.T) {
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange})
	r.Set([]Instance{{Key: keyOf("a"), Addr: netip.MustParseAddrPort("127.0.0.1:1")}})
	if got, ok := r.State(keyOf("a")); !ok || !got.Passing {
		t.Fatalf("it is %+v, want passing", got)
	}
	eventually(t, "a call of OnChange", func() bool { return w.calls.Load() > 0 })
	r.Set(nil)
	if all := r.States(); len(all) != 0 {
		t.Errorf("after an empty list there are %v", all)
	}
}
