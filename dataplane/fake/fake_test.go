package fake

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

func snapshot(generation uint64, completeness dataplane.Completeness, services ...*dataplane.Service) *dataplane.Snapshot {
	e := (&dataplane.Snapshot{Session: dataplane.Session{AgentID: "a", BootEpoch: 1}, Generation: generation, Completeness: completeness}).Edit()
	for _, s := range services {
		e.Set(s)
	}
	return e.Done()
}

func service(name string) *dataplane.Service {
	return &dataplane.Service{
		Key: dataplane.Key{Namespace: "default", Name: name}, Balance: dataplane.BalanceHash, DrainTime: time.Second, Hosts: []string{"h"},
		Affinity: dataplane.Affinity{ByClient: true, TTL: time.Minute}, Routes: []dataplane.Route{{Host: "h", PathPrefix: "/p", Methods: []string{"GET"}}},
		Frontends: []dataplane.Frontend{{Addr: netip.MustParseAddrPort("127.0.0.1:8001"), Protocol: dataplane.UDP, Kind: dataplane.FrontendIntercept}},
		Endpoints: dataplane.NewEndpoints(dataplane.Endpoint{
			ID: 1, Name: name + "-1", Addr: netip.MustParseAddrPort("127.0.0.1:9001"), AddrForeign: netip.MustParseAddrPort("10.9.0.1:19001"),
			State: dataplane.Draining, Weight: 3, Zone: "z", DrainUntil: time.Unix(0, 0),
		}),
	}
}

func reconcile(t *testing.T, p *Provider, from, to *dataplane.Snapshot) dataplane.Result {
	t.Helper()
	r, err := p.Reconcile(t.Context(), to, dataplane.Diff(from, to, nil))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func configure(t *testing.T, p *Provider, instance, json string) {
	t.Helper()
	if _, err := p.Configure(t.Context(), dataplane.Config{InstanceID: instance, JSON: []byte(json)}); err != nil {
		t.Fatal(err)
	}
}

var nothing = &dataplane.Snapshot{}

func TestStringIsTheState(t *testing.T) {
	p := New()
	configure(t, p, "i", "")
	reconcile(t, p, nothing, snapshot(3, dataplane.Incomplete, service("web")))
	const want = `generation 3 of a/1, incomplete
default/web balance hash affinity 1m0s drain 1s host h
  route h/p headers map[] methods [GET]
  intercept 127.0.0.1:8001/udp on empty pass
  endpoint 0000000000000001 web-1 127.0.0.1:9001 draining weight 3 foreign 10.9.0.1:19001 zone z until 1970-01-01T00:00:00Z
`
	if got := p.String(); got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
}

// In memory and in a directory it is the same; in the latter a new process finds
// it, and an incomplete snapshot takes nothing away there.
func TestDirectory(t *testing.T) {
	dir, memory := t.TempDir(), New()
	p := NewIn(dir)
	one := snapshot(1, dataplane.Exchanged, service("a"), service("b"))
	for _, p := range []*Provider{memory, p} {
		configure(t, p, "i/1", "")
		if r := reconcile(t, p, nothing, one); r.Operations != 2 {
			t.Fatalf("got %+v", r)
		}
		if r := reconcile(t, p, one, one); r.Operations != 0 {
			t.Fatalf("again: got %+v", r)
		}
	}
	if p.String() != memory.String() {
		t.Fatalf("got\n%s\nand\n%s", p, memory)
	}
	next := NewIn(dir)
	configure(t, next, "i/1", "")
	if next.String() != memory.String() {
		t.Fatalf("found\n%s", next)
	}
	if r := reconcile(t, next, nothing, snapshot(1, dataplane.Incomplete, service("a"))); r.Operations != 0 || !strings.Contains(next.String(), "default/b") {
		t.Fatalf("got %+v\n%s", r, next)
	}
	if r := reconcile(t, next, nothing, snapshot(2, dataplane.Exchanged, service("a"))); r.Operations != 1 || strings.Contains(next.String(), "default/b") {
		t.Fatalf("got %+v\n%s", r, next)
	}
	items, err := NewIn(dir).Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: "i/1"})
	if err != nil || len(items) != 1 || items[0].Result != dataplane.Removed {
		t.Fatal(items, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("left %v", left)
	}
}

// A crash between services leaves no claim that all is applied.
func TestACrashInBetween(t *testing.T) {
	dir := t.TempDir()
	p := NewIn(dir)
	configure(t, p, "i", "")
	reconcile(t, p, nothing, snapshot(1, dataplane.Exchanged, service("a")))
	if err := p.kernel.unmark(); err != nil {
		t.Fatal(err)
	}
	next := NewIn(dir)
	configure(t, next, "i", "")
	if st, err := next.State(t.Context()); err != nil || st.Generation != 0 {
		t.Fatal(st, err)
	}
}

func TestADirectoryThatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := NewIn(dir)
	if r, err := p.Probe(t.Context()); err != nil || r.Verdict != dataplane.Unsupported || r.Checks[0].Remedy == "" {
		t.Fatal(r, err)
	}
	configure(t, p, "i", "")
	_, err := p.Reconcile(t.Context(), snapshot(1, dataplane.Exchanged, service("a")), dataplane.Delta{})
	if !errors.Is(err, dataplane.ErrFailed) {
		t.Fatalf("got %v", err)
	}
}

func TestAServiceThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	p := NewIn(dir)
	configure(t, p, "i", "")
	if err := os.MkdirAll(filepath.Join(dir, "i", serviceFile(service("a").Key), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := reconcile(t, p, nothing, snapshot(1, dataplane.Exchanged, service("a"), service("b")))
	if len(r.Statuses) != 1 || r.Statuses[0].Reason != dataplane.ReasonApplyFailed || r.Operations != 1 {
		t.Fatalf("got %+v", r)
	}
}

func TestOptions(t *testing.T) {
	p := New()
	for _, bad := range []string{"[]", `{"delay": "x"}`, `{"delay": "-1s"}`} {
		if _, err := p.Configure(t.Context(), dataplane.Config{JSON: []byte(bad)}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
	if _, err := p.Reconcile(t.Context(), nothing, dataplane.Delta{}); !errors.Is(err, dataplane.ErrNotConfigured) {
		t.Errorf("got %v", err)
	}
	configure(t, p, "i", `{"delay": "1h", "refuse": ["default/a", "default/gone", "/"]}`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Reconcile(ctx, nothing, dataplane.Delta{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	configure(t, p, "i", `{"delay": "1ms", "refuse": ["default/a", "default/gone", "/"]}`)
	s := snapshot(1, dataplane.Exchanged, service("a"), service("b"))
	for range 2 {
		if r := reconcile(t, p, s, s); len(r.Statuses) != 1 || r.Statuses[0].Status != dataplane.StatusUnsupported {
			t.Fatalf("got %+v", r)
		}
	}
	if h := p.Health(t.Context()); h.State != dataplane.HealthReady {
		t.Fatalf("got %+v", h)
	}
	if err := p.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil || !strings.Contains(p.String(), "default/b") {
		t.Fatal(err)
	}
	if err := p.Shutdown(t.Context(), dataplane.ShutdownRemove); err != nil || p.String() != "nothing applied\n" {
		t.Fatal(err, p)
	}
}

func TestPlaysTrafficForThoseWhoWatchIt(t *testing.T) {
	p := New()
	for _, bad := range []string{"0s", "x", "-1s"} {
		if _, err := p.Configure(t.Context(), dataplane.Config{JSON: []byte(`{"traffic": "` + bad + `"}`)}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("traffic %q: %v", bad, err)
		}
	}
	if _, err := p.Configure(t.Context(), dataplane.Config{JSON: []byte(`{"traffic": "1ms"}`)}); err != nil {
		t.Fatal(err)
	}
	full, empty := service("a"), service("empty") // whose endpoint drains
	full.Endpoints = dataplane.NewEndpoints(dataplane.Endpoint{ID: 1, Addr: netip.MustParseAddrPort("127.0.0.1:9001"), Weight: 1})
	next := (&dataplane.Snapshot{}).Edit()
	next.Set(full)
	next.Set(empty)
	snapshot := next.Done()
	if _, err := p.Reconcile(t.Context(), snapshot, dataplane.Diff(&dataplane.Snapshot{}, snapshot, nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	flows := make(chan dataplane.Flow, 1)
	done := make(chan error, 1)
	go func() {
		done <- p.Watch(ctx, &dataplane.FlowOptions{SampleOneIn: 3}, func(e dataplane.Event) {
			select {
			case flows <- *e.Flow:
			default:
			}
		})
	}()
	seen := map[dataplane.Key]dataplane.Flow{}
	for len(seen) < 2 {
		f := <-flows
		seen[f.Service] = f
	}
	if got := p.Wanted(); len(got) != 1 || got[0].SampleOneIn != 3 {
		t.Errorf("wanted %+v", got)
	}
	if f := seen[full.Key]; f.Verdict != "forwarded" || f.Endpoint == 0 || !f.Frontend.Addr.IsValid() || !f.Destination.Addr.IsValid() {
		t.Errorf("played %+v", f)
	}
	if f := seen[empty.Key]; f.Verdict != "refused" || f.Endpoint != 0 || f.Reason == "" {
		t.Errorf("played %+v", f)
	}
	cancel()
	if err := <-done; err != nil || len(p.Wanted()) != 0 {
		t.Errorf("in the end %v, wanted %v", err, p.Wanted())
	}
}

func TestTraffic(t *testing.T) {
	p := New()
	events := make(chan dataplane.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Watch(ctx, nil, func(e dataplane.Event) { events <- e }) }()
	for p.Watching() == 0 {
		runtime.Gosched()
	}
	p.Connect(dataplane.Flow{Service: service("a").Key})
	p.Emit(dataplane.Event{ResyncWanted: "x"})
	if e := <-events; e.ResyncWanted != "x" {
		t.Fatalf("got %+v", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var got []dataplane.Counter
	if err := p.Stats(t.Context(), func(c dataplane.Counter) bool { got = append(got, c); return true }); err != nil || len(got) != 2 || got[1].Name != "connections" || got[1].Value != 1 {
		t.Fatal(got, err)
	}
	p.Open(1)
	var last dataplane.DrainProgress
	if err := p.Drain(t.Context(), time.Now(), func(d dataplane.DrainProgress) { last = d }); err != nil || last.Forced != 1 {
		t.Fatal(last, err)
	}
	p.Open(1)
	if err := p.Drain(ctx, time.Now().Add(time.Hour), func(dataplane.DrainProgress) {}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	p.CloseOne()
	if err := p.Drain(t.Context(), time.Now().Add(time.Hour), func(dataplane.DrainProgress) {}); err != nil {
		t.Fatal(err)
	}
}
