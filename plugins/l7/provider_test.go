package l7

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
)

// configured returns a provider with these settings.
func configured(t testing.TB, json string) *Provider {
	t.Helper()
	p := New("test")
	if _, err := p.Configure(t.Context(), dataplane.Config{InstanceID: "i", JSON: []byte(json)}); err != nil {
		t.Fatal(err)
	}
	return p
}

// end ends a provider at once.
func end(p *Provider) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Shutdown(ctx, dataplane.ShutdownKeep)
}

const quick = `{"listen": "127.0.0.1:0", "announce_time": "0s", "grace": "5s"}`

func start(t *testing.T) *Provider {
	t.Helper()
	p := configured(t, quick)
	t.Cleanup(func() { end(p) })
	return p
}

// serviceOf is a service at these addresses, which are its endpoints' ids too.
func serviceOf(name string, addresses ...string) *dataplane.Service {
	var list []dataplane.Endpoint
	for _, a := range addresses {
		at := netip.MustParseAddrPort(a)
		list = append(list, dataplane.Endpoint{ID: uint64(at.Port()), Name: a, Addr: at, Weight: 1})
	}
	return &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: name}, Endpoints: dataplane.NewEndpoints(list...)}
}

// reconciler keeps the last snapshot, as the SDK does.
type reconciler struct {
	t    *testing.T
	p    *Provider
	last *dataplane.Snapshot
}

func (r *reconciler) to(completeness dataplane.Completeness, services ...*dataplane.Service) dataplane.Result {
	r.t.Helper()
	next := snapshotOf(r.last.Generation+1, services...)
	next.Completeness = completeness
	result, err := r.p.Reconcile(r.t.Context(), next, dataplane.Diff(r.last, next, nil))
	if err != nil {
		r.t.Fatal(err)
	}
	r.last = next
	return result
}

func (r *reconciler) status(host string) int {
	r.t.Helper()
	code, _, err := ask(clientOf(r.t, r.p.front.Addresses()[0]), "http://"+host+"/")
	if err != nil {
		r.t.Fatal(err)
	}
	return code
}

func (r *reconciler) want(status int, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		if got := r.status(h); got != status {
			r.t.Errorf("%s: got %d, want %d", h, got, status)
		}
	}
}

func TestReconcile(t *testing.T) {
	p := start(t)
	a := backend(t, "a")
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	shop := serviceOf("shop", address(a))
	shop.Hosts = []string{"shop.example"}
	if got := r.to(dataplane.Exchanged, shop, serviceOf("web", address(a))); got.Operations != 2 || len(got.Statuses) != 0 {
		t.Errorf("got %+v", got)
	}
	r.want(http.StatusOK, "web", "shop", "shop.example")

	// A service that is wrong keeps what it had and is told of, again and again.
	bad := serviceOf("shop", address(a))
	bad.Hosts = []string{"shop.example:80"}
	for range 2 {
		got := r.to(dataplane.Exchanged, bad, serviceOf("web", address(a)))
		if len(got.Statuses) != 1 || got.Statuses[0].Status != dataplane.StatusRejected || !strings.Contains(got.Statuses[0].Message, "shop.example:80") {
			t.Errorf("got %+v", got)
		}
	}
	r.want(http.StatusOK, "shop.example")

	// The host of another: the rest of the service works.
	second := serviceOf("zzz", address(a))
	second.Hosts = []string{"SHOP.example", "own.example"}
	got := r.to(dataplane.Exchanged, shop, second)
	if len(got.Statuses) != 1 || got.Statuses[0].Service != second.Key || got.Statuses[0].Status != dataplane.StatusPartial || got.Statuses[0].Reason != ReasonDuplicateHost {
		t.Errorf("got %+v", got.Statuses)
	}
	r.want(http.StatusOK, "own.example", "shop.example")
	r.want(http.StatusNotFound, "web")

	// Once the host is free, it goes to who waits for it.
	if got := r.to(dataplane.Exchanged, second); len(got.Statuses) != 0 {
		t.Errorf("got %+v", got.Statuses)
	}
	r.want(http.StatusOK, "shop.example")

	// Without endpoints it answers 503 at once; affinity is not kept.
	empty := serviceOf("zzz")
	empty.Affinity = dataplane.Affinity{ByClient: true}
	if got := r.to(dataplane.Exchanged, empty); len(got.Statuses) != 1 || got.Statuses[0].Reason != dataplane.ReasonUnsupported {
		t.Errorf("got %+v", got.Statuses)
	}
	r.want(http.StatusServiceUnavailable, "zzz")
}

// A new agent takes over what is there: nothing goes before it knows all.
func TestAnotherInstance(t *testing.T) {
	p := start(t)
	a := backend(t, "a")
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.to(dataplane.Exchanged, serviceOf("a", address(a)), serviceOf("b", address(a)))
	if _, err := p.Configure(t.Context(), dataplane.Config{InstanceID: "other", JSON: []byte(quick)}); err != nil {
		t.Fatal(err)
	}
	r.last = &dataplane.Snapshot{}
	if got := r.to(dataplane.Incomplete, serviceOf("a", address(a))); got.Operations != 0 {
		t.Errorf("got %+v, want that nothing changes", got)
	}
	r.want(http.StatusOK, "a", "b")
	r.to(dataplane.Exchanged, serviceOf("a", address(a)))
	r.want(http.StatusOK, "a")
	r.want(http.StatusNotFound, "b")
}

func TestConfigure(t *testing.T) {
	p := start(t)
	a := backend(t, "a")
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.to(dataplane.Exchanged, serviceOf("web", address(a)))
	configure := func(json string) error {
		_, err := p.Configure(t.Context(), dataplane.Config{InstanceID: "i", JSON: []byte(json)})
		return err
	}
	if err := configure(`{"zone": "other.test", "listen": "127.0.0.1:0"}`); err != nil {
		t.Fatal(err)
	}
	r.want(http.StatusOK, "web.default.other.test")
	r.want(http.StatusNotFound, "web.default.mesh.internal")
	for json, want := range map[string]error{
		`{"listn": ""}`: dataplane.ErrInvalid, `{"listen": "` + address(a) + `"}`: dataplane.ErrFailed,
		`{"listen": "127.0.0.1:0", "admin": "` + address(a) + `"}`: dataplane.ErrFailed,
	} {
		if err := configure(json); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", json, err, want)
		}
		r.want(http.StatusOK, "web.default.other.test")
	}
}

func TestHealth(t *testing.T) {
	p := New("test")
	if h := p.Health(t.Context()); h.State != dataplane.HealthStarting {
		t.Errorf("got %+v", h)
	}
	listen := `"127.0.0.1:0"`
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil { // not in a container without IPv6
		l.Close()
		listen += `, "[::1]:0"`
	}
	p = configured(t, `{"listen": [`+listen+`], "announce_time": "0s"}`)
	defer end(p)
	healthy(t, p)
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.want(http.StatusServiceUnavailable, "web") // nothing is known yet
	if err := p.Drain(t.Context(), time.Now().Add(time.Second), func(dataplane.DrainProgress) {}); err != nil {
		t.Fatal(err)
	}
	if h := p.Health(t.Context()); h.State != dataplane.HealthDegraded {
		t.Errorf("while it drains: got %+v", h)
	}
	if _, err := p.Configure(t.Context(), dataplane.Config{InstanceID: "i", JSON: []byte(quick)}); err != nil {
		t.Fatal(err)
	}
	healthy(t, p)
	r.want(http.StatusServiceUnavailable, "web")
}

// healthy waits until all listeners have answered in time, which they do not always
// where the machine is busy.
func healthy(t *testing.T, p interface {
	Health(context.Context) dataplane.Health
},
) {
	t.Helper()
	await.Until(t, func() string {
		h := p.Health(t.Context())
		if h.State == dataplane.HealthReady {
			return ""
		}
		return fmt.Sprintf("a proxy that is ready; it is %+v", h)
	})
}

func TestProbe(t *testing.T) {
	report, err := New("test").Probe(t.Context())
	if err != nil || report.Verdict != dataplane.Supported || len(report.Checks) != 1 {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestStats(t *testing.T) {
	p := start(t)
	a := backend(t, "a")
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.to(dataplane.Exchanged, serviceOf("web", address(a)), serviceOf("none"))
	r.want(http.StatusOK, "web")
	var all []dataplane.Counter
	if err := p.Stats(t.Context(), func(c dataplane.Counter) bool { all = append(all, c); return true }); err != nil {
		t.Fatal(err)
	}
	web := dataplane.Key{Namespace: "default", Name: "web"}
	for _, want := range []dataplane.Counter{
		{Name: dataplane.GaugeServices, Value: 2}, {Service: web, Name: dataplane.GaugeEndpoints, Value: 1}, {Service: web, Name: "requests", Value: 1},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("%+v is missing in %+v", want, all)
		}
	}
	n := 0
	if err := p.Stats(t.Context(), func(dataplane.Counter) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("after the second counter nothing was wanted: %d were told, %v", n, err)
	}
}

// A drain tells how far it is, and cuts what is left at its deadline.
func TestDrain(t *testing.T) {
	entered := make(chan struct{}, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stuck := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})}
	go func() { _ = stuck.Serve(l) }()
	defer stuck.Close()
	p := start(t)
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.to(dataplane.Exchanged, serviceOf("web", l.Addr().String()))
	answer := make(chan error, 1)
	go func() {
		_, _, err := ask(clientOf(t, p.front.Addresses()[0]), "http://web/")
		answer <- err
	}()
	<-entered
	var seen []dataplane.DrainProgress
	began := time.Now()
	if err := p.Drain(t.Context(), began.Add(time.Second), func(d dataplane.DrainProgress) { seen = append(seen, d) }); err != nil {
		t.Fatal(err)
	}
	if <-answer == nil {
		t.Error("the request that was cut has an answer")
	}
	last := seen[len(seen)-1]
	if seen[0].Active != 1 || last.Active != 0 || last.Forced != 1 {
		t.Errorf("got %+v", seen)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// Cleanup takes away what is there, of its own instance only.
func TestCleanup(t *testing.T) {
	p := start(t)
	a := backend(t, "a")
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	if why := p.ready(); why == "" {
		t.Error("it is ready without a snapshot")
	}
	r.to(dataplane.Exchanged, serviceOf("web", address(a)))
	if why := p.ready(); why != "" {
		t.Errorf("it is not ready: %s", why)
	}
	for _, what := range []dataplane.CleanupOptions{{InstanceID: "other"}, {InstanceID: "i", DryRun: true}} {
		if items, err := p.Cleanup(t.Context(), what); err != nil || len(items) != 0 {
			t.Errorf("%+v: got %v, %v", what, items, err)
		}
		r.want(http.StatusOK, "web")
	}
	if _, err := p.Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: "i"}); err != nil {
		t.Fatal(err)
	}
	r.want(http.StatusServiceUnavailable, "web") // nothing is known any more
	r.last = &dataplane.Snapshot{}
	r.to(dataplane.Exchanged, serviceOf("web", address(a)))
	r.want(http.StatusOK, "web")
}

// A process that is started for Cleanup alone is never configured.
func TestCleanupWithoutConfigure(t *testing.T) {
	for _, what := range []dataplane.CleanupOptions{{AllKnown: true}, {InstanceID: "i"}, {}} {
		if items, err := New("test").Cleanup(t.Context(), what); err != nil || len(items) != 0 {
			t.Errorf("%+v: got %v, %v", what, items, err)
		}
	}
}

// A process that runs by itself keeps its own settings, and its own end.
func TestGuest(t *testing.T) {
	g := guest{start(t)}
	if _, err := g.Configure(t.Context(), dataplane.Config{InstanceID: instance, JSON: []byte("{}")}); err != nil {
		t.Error(err)
	}
	for _, c := range []dataplane.Config{{InstanceID: instance, JSON: []byte(`{"grace": "1s"}`)}, {InstanceID: "other"}} {
		if _, err := g.Configure(t.Context(), c); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if err := g.Shutdown(t.Context(), dataplane.ShutdownRemove); err != nil {
		t.Error(err)
	}
	healthy(t, g) // after an agent's Shutdown
}
