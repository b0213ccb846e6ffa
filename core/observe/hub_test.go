package observe_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/observe"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a hub with providers behind sockets.
type world struct {
	t       *testing.T
	hub     *observe.Hub
	metrics *prometheus.Registry
	second  atomic.Int64 // of the hub's clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, metrics: prometheus.NewRegistry()}
	m := observe.NewMetrics()
	if err := m.Register(w.metrics); err != nil {
		t.Fatal(err)
	}
	w.hub = observe.New(observe.Config{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: m, Now: func() time.Time { return time.Unix(w.second.Load(), 0) },
	})
	t.Cleanup(w.hub.Close)
	return w
}

// provider adds one. lose makes the hub take it for lost.
func (w *world) provider(name string) (p *fake.Provider, lose func()) {
	w.t.Helper()
	p = fake.New()
	return p, w.add(name, p)
}

func (w *world) add(name string, p dataplane.Provider) (lose func()) {
	w.t.Helper()
	service, err := sdk.NewService(p, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(service.Close)
	path := filepath.Join(w.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterDataPlaneProviderServer(server, service)
	go func() { _ = server.Serve(l) }() // ends with Stop
	w.t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	client := pb.NewDataPlaneProviderClient(conn)
	if _, err := client.Configure(w.t.Context(), &pb.ConfigureRequest{InstanceId: "test"}); err != nil {
		w.t.Fatal(err)
	}
	lost := make(chan struct{})
	w.hub.Add(name, client, lost)
	return func() { close(lost) }
}

// watching is one observer, read by hand.
type watching struct {
	t    *testing.T
	next func() (observe.Item, error, bool)
	stop func()
}

// observe begins to observe, and waits until the providers are asked for it.
func (w *world) observe(o observe.Options) *watching {
	w.t.Helper()
	next, stop := iter.Pull2(w.hub.Observe(w.t.Context(), o))
	v := &watching{t: w.t, next: next, stop: stop}
	w.t.Cleanup(stop)
	if item, err, ok := next(); err != nil || !ok || item.Flow != nil || item.Lost.Any() {
		w.t.Fatalf("the first item is %+v, %v, %v", item, err, ok)
	}
	return v
}

func (v *watching) item() observe.Item {
	v.t.Helper()
	item, err, ok := v.next()
	if err != nil || !ok {
		v.t.Fatalf("the end: %v, %v", err, ok)
	}
	return item
}

// flow is the next item, which has to be a flow.
func (v *watching) flow() observe.Flow {
	v.t.Helper()
	item := v.item()
	if item.Flow == nil {
		v.t.Fatalf("%+v is no flow", item)
	}
	return *item.Flow
}

func asked(p *fake.Provider, want ...dataplane.FlowOptions) func() bool {
	return func() bool { return slices.Equal(p.Wanted(), want) }
}

func key(name string) dataplane.Key { return dataplane.Key{Namespace: "default", Name: name} }

func flow(name, verdict string) dataplane.Flow {
	return dataplane.Flow{Service: key(name), Verdict: verdict, Endpoint: 7}
}

func TestNothingIsAskedWhileNobodyObserves(t *testing.T) {
	w := newWorld(t)
	p, _ := w.provider("a")
	usual := dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 111}
	for range 3 {
		if p.Watching() != 0 {
			t.Fatalf("%d calls of Watch while nobody observes", p.Watching())
		}
		v := w.observe(observe.Options{})
		await.For(t, "the provider is asked", asked(p, usual))
		p.Connect(flow("web", "forwarded"))
		if f := v.flow(); f.Service != key("web") || f.Provider != "a" || f.Verdict != "forwarded" || f.Endpoint != 7 {
			t.Errorf("got %+v", f)
		}
		v.stop()
		await.For(t, "the Watch to end with the observer", func() bool { return p.Watching() == 0 })
	}
}

func TestProvidersComeAndGo(t *testing.T) {
	w := newWorld(t)
	v := w.observe(observe.Options{})
	a, lose := w.provider("a")
	b, _ := w.provider("b")
	all := func() bool { return len(a.Wanted()) == 1 && len(b.Wanted()) == 1 }
	await.For(t, "both are asked", all)
	if got := w.hub.Providers(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("providers %q", got)
	}
	a.Connect(flow("web", "forwarded"))
	if f := v.flow(); f.Provider != "a" {
		t.Errorf("got %+v", f)
	}
	b.Connect(flow("web", "refused"))
	if f := v.flow(); f.Provider != "b" {
		t.Errorf("got %+v", f)
	}
	lose()
	await.For(t, "the lost one is left alone", func() bool { return a.Watching() == 0 && len(w.hub.Providers()) == 1 })
	again, _ := w.provider("a")
	await.For(t, "its next life is asked", func() bool { return len(again.Wanted()) == 1 })
	again.Connect(flow("web", "denied"))
	if f := v.flow(); f.Provider != "a" || f.Verdict != "denied" {
		t.Errorf("got %+v", f)
	}
}

func TestSeveralObserversShareOneStream(t *testing.T) {
	w := newWorld(t)
	p, _ := w.provider("a")
	coarse := w.observe(observe.Options{OneIn: 10, Rate: 1000})
	await.For(t, "asked for the coarse one", asked(p, dataplane.FlowOptions{SampleOneIn: 10, MaxPerSecond: 1101}))
	fine := w.observe(observe.Options{OneIn: 4, Rate: 500})
	await.For(t, "asked for the finest and the fastest", asked(p, dataplane.FlowOptions{SampleOneIn: 4, MaxPerSecond: 1101}))
	const n = 200
	for i := range n {
		p.Connect(dataplane.Flow{Service: key("web"), Endpoint: uint64(i + 1)})
	}
	p.Connect(dataplane.Flow{Service: key("web"), Endpoint: n + 1})
	count := func(v *watching, want int) {
		last := uint64(0)
		for range want {
			f := v.flow()
			if f.Endpoint <= last {
				t.Errorf("flow %d after %d", f.Endpoint, last)
			}
			last = f.Endpoint
		}
		if last != n { // or the sample is no even one
			t.Errorf("flow %d of the sample is %d, want %d", want, last, n)
		}
	}
	count(fine, n/4)
	count(coarse, n/10)
	fine.stop()
	await.For(t, "asked for the coarse one only", asked(p, dataplane.FlowOptions{SampleOneIn: 10, MaxPerSecond: 1101}))
}

func TestFilters(t *testing.T) {
	w := newWorld(t)
	p, _ := w.provider("a")
	web := w.observe(observe.Options{Service: key("web")})
	refused := w.observe(observe.Options{Verdict: "refused"})
	await.For(t, "all flows are asked for", asked(p, dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 11001}))
	for _, f := range []dataplane.Flow{flow("db", "forwarded"), flow("web", "forwarded"), flow("db", "refused"), flow("web", "refused")} {
		p.Connect(f)
	}
	for v, want := range map[*watching][]string{web: {"web forwarded", "web refused"}, refused: {"db refused", "web refused"}} {
		for _, want := range want {
			if f := v.flow(); f.Service.Name+" "+f.Verdict != want {
				t.Errorf("got %s %s, want %s", f.Service.Name, f.Verdict, want)
			}
		}
	}
}

func TestRateIsKeptAndTold(t *testing.T) {
	w := newWorld(t)
	p, _ := w.provider("a")
	v := w.observe(observe.Options{Rate: 20})
	await.For(t, "asked", asked(p, dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 23}))
	for range 21 {
		p.Connect(flow("web", "forwarded"))
	}
	flows, lost := 0, observe.Lost{}
	for range 21 {
		if item := v.item(); item.Flow != nil {
			flows++
		} else {
			lost = item.Lost
		}
	}
	if flows != 20 || lost != (observe.Lost{OverRate: 1}) {
		t.Errorf("%d flows, and told of %+v; want one beyond the rate", flows, lost)
	}
	w.second.Add(1)
	p.Connect(flow("web", "refused"))
	if f := v.flow(); f.Verdict != "refused" {
		t.Errorf("got %+v in the next second", f)
	}
	if got := counter(t, w, "fairlead_observe_lost_total"); got != 1 {
		t.Errorf("%v lost are counted", got)
	}
	if got := counter(t, w, "fairlead_observe_flows_total"); got != 22 {
		t.Errorf("%v flows are counted", got)
	}
}

// counter sums up a metric's series.
func counter(t *testing.T, w *world, name string) float64 {
	t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestSlowObserverLosesAndDelaysNobody(t *testing.T) {
	w := newWorld(t)
	p, _ := w.provider("a")
	slow := w.observe(observe.Options{Rate: observe.MaxRate})
	quick := w.observe(observe.Options{Rate: observe.MaxRate})
	await.For(t, "asked", asked(p, dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 11001}))
	// The quick one reads along, so no buffer in front of it runs over.
	n := 1024 + scale.N(2000)
	for i := range n {
		if i > 0 && i%5000 == 0 {
			w.second.Add(1)
		}
		p.Connect(dataplane.Flow{Service: key("web"), Endpoint: uint64(i + 1)})
		if f := quick.flow(); f.Endpoint != uint64(i+1) {
			t.Fatalf("flow %d is %+v", i+1, f)
		}
	}
	got, lost := 0, uint64(0)
	for uint64(got)+lost < uint64(n) {
		switch item := slow.item(); {
		case item.Flow != nil:
			got++
		default:
			lost += item.Lost.Slow
		}
	}
	if got != 1024 || lost != uint64(n-1024) {
		t.Errorf("the slow one got %d and was told of %d lost, of %d", got, lost, n)
	}
}

// bursty emits many flows at once to whom asks for them.
type bursty struct {
	*fake.Provider
	burst chan int
}

func (b bursty) Watch(ctx context.Context, flows *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	for {
		select {
		case n := <-b.burst:
			for range n {
				emit(dataplane.Event{Flow: &dataplane.Flow{Verdict: "own-word"}})
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func TestLossesBeforeTheHubAreTold(t *testing.T) {
	w := newWorld(t)
	p := bursty{fake.New(), make(chan int)}
	w.add("a", p)
	v := w.observe(observe.Options{Rate: observe.MaxRate})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // the SDK keeps 256 for a stream that lags; a later number shows what is missing
		defer close(done)
		for {
			select {
			case p.burst <- 1000:
			case <-ctx.Done():
				return
			}
		}
	}()
	for v.item().Lost.Provider == 0 {
	}
	cancel()
	<-done
	w.metricIs("fairlead_observe_flows_total", "other")
}

// metricIs demands that the only series of a metric has a label of that value.
func (w *world) metricIs(name, value string) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		if text := f.String(); len(f.GetMetric()) != 1 || !strings.Contains(text, value) {
			w.t.Errorf("%s is %s", name, text)
		}
		return
	}
	w.t.Errorf("no %s", name)
}

func TestObserversAreBounded(t *testing.T) {
	w := newWorld(t)
	var all []*watching
	for range observe.MaxObservers {
		all = append(all, w.observe(observe.Options{}))
	}
	if got := counter(t, w, "fairlead_observe_observers"); got != observe.MaxObservers {
		t.Errorf("%v observers are counted", got)
	}
	end := func() error {
		for _, err := range w.hub.Observe(t.Context(), observe.Options{}) {
			return err
		}
		return nil
	}
	if err := end(); !errors.Is(err, observe.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	all[0].stop()
	if err := end(); err != nil {
		t.Errorf("after one left: %v", err)
	}
	w.hub.Close()
	if _, err, _ := all[1].next(); !errors.Is(err, observe.ErrClosed) {
		t.Errorf("when the hub closed: %v", err)
	}
	if err := end(); !errors.Is(err, observe.ErrClosed) {
		t.Errorf("after the hub closed: %v", err)
	}
}

func TestContextEndsAnObserver(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for item, err := range w.hub.Observe(ctx, observe.Options{}) {
		if err == nil && item.Flow == nil {
			cancel()
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestStatsOfAllProviders(t *testing.T) {
	w := newWorld(t)
	b, _ := w.provider("b")
	a, _ := w.provider("a")
	a.Connect(flow("web", "forwarded"))
	b.Connect(flow("web", "forwarded"))
	b.Connect(flow("db", "forwarded"))
	list := w.hub.Stats(t.Context(), dataplane.Key{})
	if len(list) != 2 || list[0].Provider != "a" || list[1].Provider != "b" || list[0].Err != nil || list[1].Err != nil {
		t.Fatalf("got %+v", list)
	}
	if got := list[1].Counters; len(got) != 3 || got[0].Name != dataplane.GaugeServices {
		t.Errorf("all of b: %+v", got)
	}
	list = w.hub.Stats(t.Context(), key("web"))
	want := []dataplane.Counter{{Service: key("web"), Name: "connections", Value: 1}}
	if !slices.Equal(list[0].Counters, want) || !slices.Equal(list[1].Counters, want) {
		t.Errorf("of one service: %+v", list)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if list := w.hub.Stats(ctx, dataplane.Key{}); len(list) != 2 || list[0].Err == nil {
		t.Errorf("of a call that was given up: %+v", list)
	}
}
