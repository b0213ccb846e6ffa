package health

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
)

// patience bounds every wait of these tests; only a failing test takes it.
const patience = await.Patience

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

func addrOf(t *testing.T, s *httptest.Server) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// closedPort is one where nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort(port.Free(t))
}

func httpCheck(path string, interval time.Duration) Check {
	return Check{Kind: HTTP, Path: path, Interval: interval, Timeout: interval}
}

// lenient is a check that a machine does not fail that runs something else for a while,
// so that a probe is late now and then.
func lenient(c Check) Check {
	c.FailuresBeforeCritical = 100
	return c
}

func TestAnInstanceFollowsItsChecks(t *testing.T) {
	var broken atomic.Bool
	looked := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-looked
		if broken.Load() {
			http.Error(w, "disk full", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, "fine")
	}))
	defer s.Close()
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange})
	in := Instance{Key: keyOf("a"), Addr: addrOf(t, s), Checks: []Check{httpCheck("/healthz", time.Hour), {Kind: TCP, Interval: MinInterval}}}
	r.Set([]Instance{in})
	got, ok := r.State(in.Key)
	close(looked) // a first probe may have come at once, and has to wait for this
	if !ok || got.Passing || !got.Checks[0].At.IsZero() {
		t.Fatalf("just set it is %+v, want critical and not probed", got)
	}
	in.Checks = []Check{httpCheck("/healthz", MinInterval), in.Checks[1]}
	r.Set([]Instance{in})
	got = w.until(t, r, in.Key, true)
	if c := got.Checks[0]; !c.OK || c.Output != "200 OK: fine" || c.Successes < 1 || c.Took <= 0 || c.At.IsZero() {
		t.Errorf("the HTTP check is %+v", c)
	}
	if c := got.Checks[1]; !c.OK || c.Output != "connected" {
		t.Errorf("the TCP check is %+v", c)
	}
	broken.Store(true)
	await.Until(t, func() string { // a probe that came late fails for another reason
		got, _ := r.State(in.Key)
		if c := got.Checks[0]; got.Passing || c.OK || c.Output != "503 Service Unavailable: disk full\n" || c.Failures < 1 || c.Successes != 0 {
			return fmt.Sprintf("the failing check is %+v", c)
		}
		if !got.Checks[1].Passing {
			return fmt.Sprintf("the TCP check is %+v, want it passing still", got.Checks[1])
		}
		return ""
	})
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
	await.For(t, "a call of OnChange", func() bool { return w.calls.Load() > 0 })
	r.Set(nil)
	if all := r.States(); len(all) != 0 {
		t.Errorf("after an empty list there are %v", all)
	}
}

func TestHangingInstancesDoNotStopTheOthers(t *testing.T) {
	var open, most atomic.Int64
	hang := serve(t, func(c net.Conn) {
		n := open.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		_, _ = io.Copy(io.Discard, c)
		open.Add(-1)
	})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	w := newWaiter()
	const room = 8
	r := start(t, Config{OnChange: w.onChange, MaxProbes: room})
	var list []Instance
	for i := range 10 * room {
		list = append(list, Instance{Key: keyOf(fmt.Sprint("hang", i)), Addr: hang, Checks: []Check{{Kind: HTTP, Path: "/", Interval: 200 * time.Millisecond, Timeout: 50 * time.Millisecond}}})
	}
	list = append(list, Instance{Key: keyOf("up"), Addr: addrOf(t, s), Checks: []Check{lenient(httpCheck("/", 200*time.Millisecond))}})
	r.Set(list)
	w.until(t, r, keyOf("up"), true)
	await.For(t, "every instance was probed", func() bool {
		for _, s := range r.States() {
			if s.Checks[0].At.IsZero() {
				return false
			}
		}
		return true
	})
	for key, s := range r.States() {
		if s.Passing != (key == keyOf("up")) {
			t.Errorf("%s is %+v", key, s)
		}
	}
	began := time.Now()
	r.Close()
	if took := time.Since(began); took > patience {
		t.Errorf("Close took %s", took)
	}
	// A reset takes a moment to be seen by the other side.
	if n := most.Load(); n > 4*room {
		t.Errorf("%d connections were open at once, want about %d", n, room)
	}
	await.For(t, "all connections are closed", func() bool { return open.Load() == 0 })
}

// Checks that hang for a minute each, more than there is room for, take nothing
// from one that is answered.
func TestLongHangsLeaveRoom(t *testing.T) {
	hang := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer s.Close()
	w := newWaiter()
	const room = 8
	r := start(t, Config{OnChange: w.onChange, MaxProbes: room})
	list := []Instance{{Key: keyOf("up"), Addr: addrOf(t, s), Checks: []Check{httpCheck("/", 100*time.Millisecond)}}}
	r.Set(list)
	w.until(t, r, keyOf("up"), true)
	for i := range 10 * room {
		list = append(list, Instance{Key: keyOf(fmt.Sprint("hang", i)), Addr: hang, Checks: []Check{{Kind: HTTP, Path: "/", Interval: time.Minute, Timeout: time.Minute}}})
	}
	r.Set(list)
	await.For(t, "the hanging fill their part", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.patient == room*3/4
	})
	before := asked.Load()
	await.For(t, "the other is asked on", func() bool { return asked.Load() >= before+10 })
	if r.mu.Lock(); r.patient != room*3/4 {
		t.Errorf("%d that hang run at once, want %d", r.patient, room*3/4)
	}
	r.mu.Unlock()
}

func TestCloseEndsProbesAndKeepsStates(t *testing.T) {
	accepted := make(chan struct{}, 100)
	addr := serve(t, func(c net.Conn) {
		signal(accepted)
		_, _ = io.Copy(io.Discard, c)
	})
	for _, kind := range []Kind{HTTP, GRPC} {
		r := start(t, Config{})
		r.Set([]Instance{{Key: keyOf("a"), Addr: addr, Checks: []Check{{Kind: kind, Path: "/", Interval: time.Hour, Timeout: time.Hour}}}})
		<-accepted
		began := time.Now()
		r.Close()
		if took := time.Since(began); took > patience {
			t.Errorf("%s: Close took %s", kind, took)
		}
		if s, ok := r.State(keyOf("a")); !ok || s.Passing || !s.Checks[0].At.IsZero() {
			t.Errorf("%s: afterwards it is %+v, want it without an outcome", kind, s)
		}
		r.Set(nil)
		if len(r.States()) != 1 {
			t.Errorf("%s: a closed Runner takes a list", kind)
		}
		r.Close()
	}
}

func TestOnChangeMaySetAndRead(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	a := Instance{Key: keyOf("a"), Addr: addrOf(t, s), Checks: []Check{httpCheck("/", MinInterval)}}
	b := Instance{Key: keyOf("b"), Addr: addrOf(t, s), Checks: []Check{{Kind: TCP, Interval: MinInterval}}}
	ready := make(chan struct{})
	var r *Runner
	r = start(t, Config{OnChange: func() {
		<-ready
		if r.States()[a.Key].Passing {
			r.Set([]Instance{a, b})
		}
	}})
	close(ready)
	r.Set([]Instance{a})
	await.For(t, "what OnChange set passes", func() bool { s, _ := r.State(b.Key); return s.Passing })
}

// Setting the same again and again, as a level-triggered caller does, neither
// delays probes nor tells of changes.
func TestSettingTheSameAgainChangesNothing(t *testing.T) {
	var probes atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { probes.Add(1) }))
	defer s.Close()
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange})
	in := Instance{Key: keyOf("a"), Addr: addrOf(t, s), Checks: []Check{lenient(httpCheck("/", MinInterval))}}
	r.Set([]Instance{in})
	first := w.until(t, r, in.Key, true)
	calls := w.calls.Load()
	seen := probes.Load()
	await.For(t, "five more probes while it is set all the time", func() bool {
		r.Set([]Instance{in})
		return probes.Load() > seen+5
	})
	if s, _ := r.State(in.Key); !s.Passing || !s.Since.Equal(first.Since) {
		t.Errorf("it is %+v, want it passing since %s", s, first.Since)
	}
	// The call for the change that was waited for may come late.
	if more := w.calls.Load() - calls; more > 1 {
		t.Errorf("%d more calls of OnChange", more)
	}
}

func TestManyCallersAtOnce(t *testing.T) {
	addrs := backends(t, 4)
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange, Path: t.TempDir() + "/health.json"})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1)) //nolint:gosec // a test
			for range 100 {
				var list []Instance
				for i := range rnd.IntN(40) {
					list = append(list, Instance{Key: keyOf(fmt.Sprint(i)), Addr: addrs[rnd.IntN(4)], Checks: []Check{{Kind: Kind(1 + rnd.IntN(2)), Path: "/", Interval: MinInterval}}})
				}
				r.Set(list)
				r.States()
			}
		})
	}
	all.Wait()
	r.mu.Lock()
	for _, in := range r.table.instances {
		for _, e := range in.entries {
			if e.place < 0 && !e.running {
				t.Errorf("%s of %s will never be probed", e.id, in.key)
			}
		}
	}
	r.mu.Unlock()
	last := Instance{Key: keyOf("last"), Addr: addrs[0], Checks: []Check{httpCheck("/", MinInterval)}}
	r.Set([]Instance{last})
	w.until(t, r, last.Key, true)
}

func TestMetricsTellWhatIsChecked(t *testing.T) {
	reg := prometheus.NewRegistry()
	addr := backends(t, 1)[0]
	w := newWaiter()
	r := start(t, Config{OnChange: w.onChange, Metrics: reg})
	r.Set([]Instance{
		{Key: keyOf("up"), Addr: addr, Checks: []Check{lenient(httpCheck("/", MinInterval)), lenient(Check{Kind: TCP, Interval: MinInterval})}},
		{Key: keyOf("down"), Addr: closedPort(t), Checks: []Check{{Kind: TCP, Interval: MinInterval}}},
	})
	w.until(t, r, keyOf("up"), true)
	await.For(t, "the metrics", func() bool {
		got := gather(t, reg)
		return got["fairlead_health_checks passing"] == 2 && got["fairlead_health_checks critical"] == 1 &&
			got["fairlead_health_instances passing"] == 1 && got["fairlead_health_instances critical"] == 1 &&
			got["fairlead_health_probes_total http pass"] >= 1 && got["fairlead_health_probes_total tcp refused"] >= 1 &&
			got["fairlead_health_probe_seconds http"] >= 1 && got["fairlead_health_transitions_total passing"] == 1
	})
	if _, err := Start(Config{Metrics: reg}); err == nil {
		t.Error("metrics are registered twice")
	}
	r.Close()
	if got := gather(t, reg); len(got) != 0 {
		t.Errorf("after Close there are %v", got)
	}
}

// gather returns values, of histograms counts, by name and labels.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}
