package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// listen serves what register registers on a socket and returns a connection.
func listen(tb testing.TB, register func(*grpc.Server)) *grpc.ClientConn {
	tb.Helper()
	return listenOn(tb, "unix", filepath.Join(tb.TempDir(), "s"), register)
}

func listenOn(tb testing.TB, network, address string, register func(*grpc.Server)) *grpc.ClientConn {
	tb.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	register(server)
	go func() { _ = server.Serve(l) }() // ends with Stop
	tb.Cleanup(server.Stop)
	target := map[string]string{"unix": "unix:", "tcp": "passthrough:///"}[network] + l.Addr().String()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sdkProvider is the fake provider behind the SDK, configured.
func sdkProvider(tb testing.TB) (*fake.Provider, pb.DataPlaneProviderClient) {
	tb.Helper()
	p := fake.New()
	service, err := sdk.NewService(p, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	client := pb.NewDataPlaneProviderClient(listen(tb, func(s *grpc.Server) { pb.RegisterDataPlaneProviderServer(s, service) }))
	if _, err := client.Configure(tb.Context(), &pb.ConfigureRequest{InstanceId: "test"}); err != nil {
		tb.Fatal(err)
	}
	return p, client
}

func TestFakeProviderOverASocket(t *testing.T) {
	p, client := sdkProvider(t)
	v := newViews(view.Exchanged)
	v.apply(runs(2, passing, "web", "db"))
	loop := reconcile.New(reconcile.Config{Provider: "fake", Session: session(), Views: v, Tick: 50 * time.Millisecond})
	lost := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- loop.Serve(t.Context(), client, lost) }()
	current := func() bool {
		st := loop.Status()
		return st.Error == nil && st.Epoch == v.Latest().Epoch && st.Health.State == dataplane.HealthReady
	}
	await.For(t, "the first view is programmed", current)
	full := programmed(p)
	for i := range scale.N(200) {
		v.apply(runs(2, model.InstanceState(i%4), "web", "db"))
		if i%3 == 0 {
			v.apply(runs(3, passing, "web", fmt.Sprint("s", i)))
		}
		await.For(t, "the view is programmed", current)
	}
	v.apply(runs(2, passing, "web", "db"), view.Forgotten{ID: 3})
	await.For(t, "the first content again", func() bool { return current() && programmed(p) == full })
	p.Emit(dataplane.Event{ResyncWanted: "test"})
	close(lost)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// programmed is what the fake says without the generation.
func programmed(p *fake.Provider) string {
	_, services, _ := strings.Cut(p.String(), "\n")
	return services
}

// puller is a provider that follows by hand.
type puller struct {
	t         *testing.T
	client    pb.SnapshotSourceClient
	assembler *transfer.Assembler
	stream    grpc.ServerStreamingClient[pb.FollowResponse]
	name      string // of the stream
}

func newPuller(t *testing.T, source *reconcile.Source) *puller {
	conn := listen(t, func(s *grpc.Server) { pb.RegisterSnapshotSourceServer(s, source) })
	return &puller{t: t, client: pb.NewSnapshotSourceClient(conn), assembler: transfer.NewAssembler(dataplane.Limits{})}
}

func (p *puller) follow() {
	p.t.Helper()
	a := p.assembler.Applied()
	var err error
	p.stream, err = p.client.Follow(p.t.Context(), &pb.FollowRequest{
		Info:  &pb.InfoResponse{Name: "pulled"},
		State: transfer.EncodeState(dataplane.State{Session: a.Session, Generation: a.Generation, Digest: a.Digest, Complete: a.Complete}),
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// take applies the next generation and returns its kind.
func (p *puller) take(report bool) string {
	p.t.Helper()
	m, err := p.stream.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	begin := m.GetBegin()
	p.name = m.GetStream()
	g, err := p.assembler.Begin(begin)
	if err != nil {
		p.t.Fatal(err)
	}
	for m, err = p.stream.Recv(); err == nil && m.GetCommit() == nil; m, err = p.stream.Recv() {
		if err := g.Change(m.GetChange()); err != nil {
			p.t.Fatal(err)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	kind := "unchanged"
	if !g.Unchanged() {
		if kind = "delta"; begin.GetBase() == 0 {
			kind = "snapshot"
		}
		if _, _, _, err := g.Commit(); err != nil {
			p.t.Fatal(err)
		}
		g.Accept()
	}
	if report {
		p.report(begin.GetGeneration())
	}
	return kind
}

func (p *puller) report(generation uint64) {
	p.t.Helper()
	_, err := p.client.Report(p.t.Context(), &pb.ReportRequest{
		Provider: "pulled", Stream: p.name, Result: &pb.ReconcileResponse{Generation: generation}, Health: &pb.HealthResponse{State: pb.HealthState_HEALTH_STATE_READY},
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *puller) want(v *views) {
	p.t.Helper()
	if d := dataplane.Diff(p.assembler.Given(), reconcile.Project(v.Latest()), nil); len(d.Changes) != 0 {
		p.t.Errorf("the follower differs from the view in %d services", len(d.Changes))
	}
}

func (p *puller) until(kind string) {
	p.t.Helper()
	for range 100 {
		got := p.take(true)
		if got == kind {
			return
		}
		if got != "unchanged" {
			p.t.Fatalf("got a %s, want a %s", got, kind)
		}
	}
	p.t.Fatalf("no %s came", kind)
}

func TestProviderThatPulls(t *testing.T) {
	v := newViews(view.Exchanged)
	v.apply(runs(2, passing, "web"))
	source := reconcile.NewSource(reconcile.Config{Session: session(), Views: v, Tick: 50 * time.Millisecond, Deadline: 5 * time.Second}) // it takes part itself, as soon as it can
	p := newPuller(t, source)
	p.follow()
	if got := p.take(true); got != "snapshot" {
		t.Fatalf("Follow opens with a %s", got)
	}
	p.want(v)
	p.until("unchanged")
	v.apply(runs(3, passing, "web"))
	p.until("delta")
	p.want(v)
	await.For(t, "the report arrived", func() bool {
		st := source.Followers()
		return len(st) == 1 && st[0].Provider == "pulled" && st[0].Epoch == v.Latest().Epoch && st[0].Health.State == dataplane.HealthReady
	})

	// Another stream of the same name has a life of its own, and neither shows in
	// how the other fares.
	other := &puller{t: t, client: p.client, assembler: transfer.NewAssembler(dataplane.Limits{})}
	other.follow()
	if got := other.take(true); got != "snapshot" {
		t.Errorf("the second of a name opens with a %s", got)
	}
	v.apply(runs(4, passing, "web"))
	p.until("delta")
	p.want(v)
	other.until("delta")
	other.want(v)
	if other.name == p.name || len(source.Followers()) != 2 {
		t.Errorf("two streams, %q and %q: %+v", p.name, other.name, source.Followers())
	}
	forged := &pb.ReportRequest{Provider: "pulled", Stream: "guessed", Result: &pb.ReconcileResponse{Generation: 1}}
	if _, err := p.client.Report(t.Context(), forged); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a report under a name that was guessed: %v", err)
	}

	// No report: the stream ends, and the next one goes on by State.
	v.apply(runs(5, passing, "web"))
	for p.take(false) != "delta" {
	}
	if _, err := p.stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("without a report the stream ended with %v, want Aborted", err)
	}
	p.follow()
	if got := p.take(true); got != "unchanged" {
		t.Errorf("the next stream opens with a %s, want unchanged", got)
	}
	p.want(v)

	// Another process, that knows nothing.
	p.assembler = transfer.NewAssembler(dataplane.Limits{})
	p.follow()
	p.until("snapshot")
	p.want(v)
}

// A follower that reads nothing is let go of at the deadline, and is back in the
// picture as soon as it comes again.
func TestFollowerThatStandsStill(t *testing.T) {
	v, names := large(t, 1000) // more than the windows of a stream take
	source := reconcile.NewSource(reconcile.Config{Session: session(), Views: v, Tick: 50 * time.Millisecond, Deadline: 3 * time.Second})
	p := newPuller(t, source)
	p.follow()
	await.For(t, "it follows", func() bool { return len(source.Followers()) == 1 })
	await.For(t, "it is let go of", func() bool { return len(source.Followers()) == 0 })
	var err error
	for err == nil {
		_, err = p.stream.Recv()
	}
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "takes nothing") {
		t.Errorf("its stream ended with %v, want Aborted and why", err)
	}
	for node := range names[1:] { // what is left is taken long before the deadline
		v.apply(view.Forgotten{ID: model.NodeID(3 + node)})
	}
	q := newPuller(t, source)
	q.follow()
	if got := q.take(true); got != "snapshot" {
		t.Errorf("the next stream opens with a %s", got)
	}
	q.want(v)
}

func TestSourceRefuses(t *testing.T) {
	source := reconcile.NewSource(reconcile.Config{Session: session(), Views: newViews(view.Alone)})
	p := newPuller(t, source)
	if _, err := p.client.Report(t.Context(), &pb.ReportRequest{Provider: "nobody"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a report of a stranger: %v", err)
	}
	stream, err := p.client.Follow(t.Context(), &pb.FollowRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("Follow without a name: %v", err)
	}
	follow := func(ctx context.Context, name string) error { return firstOf(ctx, p.client, name) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 65 {
		if want := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[i < 64]; status.Code(follow(ctx, fmt.Sprint("p", i))) != want {
			t.Fatalf("follower %d is not answered %v", i, want)
		}
	}
	// Those that came and went leave their places to others.
	cancel()
	await.For(t, "a place is free again", func() bool { return follow(t.Context(), "late") == nil })
}

// firstOf follows under a name and takes the first message.
func firstOf(ctx context.Context, client pb.SnapshotSourceClient, name string) error {
	stream, err := client.Follow(ctx, &pb.FollowRequest{Info: &pb.InfoResponse{Name: name}})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// Whoever takes all places that TCP has leaves those of the socket.
func TestOpenFollowersLeaveRoom(t *testing.T) {
	source := reconcile.NewSource(reconcile.Config{Session: session(), Views: newViews(view.Alone)})
	open := pb.NewSnapshotSourceClient(listenOn(t, "tcp", "127.0.0.1:0", func(s *grpc.Server) { pb.RegisterSnapshotSourceServer(s, source) }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 32 {
		if err := firstOf(ctx, open, "p"); err != nil {
			t.Fatalf("follower %d: %v", i, err)
		}
	}
	if err := firstOf(ctx, open, "p"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "by the agent's socket") {
		t.Errorf("one too many: %v", err)
	}
	if err := firstOf(ctx, newPuller(t, source).client, "p"); err != nil {
		t.Errorf("by the socket: %v", err)
	}
	cancel()
	await.For(t, "a place is free again", func() bool { return firstOf(t.Context(), open, "late") == nil })
}

// large are views of so many services with 10 endpoints each on 250 nodes.
func large(tb testing.TB, services int) (v *views, names [][]string) {
	tb.Helper()
	v = newViews(view.Exchanged)
	names = make([][]string, 250)
	for s := range services {
		for i := range 10 {
			node := (s + i*25) % 250
			names[node] = append(names[node], fmt.Sprintf("service-%05d", s))
		}
	}
	for node := range names {
		v.apply(runs(model.NodeID(2+node), passing, names[node]...))
	}
	if l := v.Latest(); l.Len() != services || l.EndpointCount() != 10*services {
		tb.Fatalf("%d services, %d endpoints", l.Len(), l.EndpointCount())
	}
	return v, names
}

func TestBytesFollowTheChange(t *testing.T) {
	services := max(1000, scale.N(10_000))
	v, names := large(t, services)
	p := newProvider()
	loop := reconcile.New(reconcile.Config{Provider: "fake", Session: session(), Views: v, Deadline: time.Minute})
	done := make(chan error, 1)
	lost := make(chan struct{})
	go func() { done <- loop.Serve(t.Context(), p, lost) }()
	settled := func() bool { return loop.Status().Epoch == v.Latest().Epoch }
	await.For(t, "the snapshot is there", settled)
	bytesOf := func(events ...view.Event) int {
		before := len(p.history())
		v.apply(events...)
		await.For(t, "the delta is there", settled)
		sum := 0
		for _, c := range p.history()[before:] {
			switch c.kind {
			case "snapshot":
				t.Error("a whole snapshot was sent")
			case "unchanged":
				continue // a tick: there are the more the busier the machine is
			}
			sum += c.bytes
		}
		return sum
	}
	flip := runs(2, passing, names[0]...)
	states := append([]model.InstanceState(nil), flip.Record.States...)
	states[7] = model.InstanceCritical
	flip.Record = flip.Record.With(states, time.Unix(1_700_000_050, 0))
	if n := bytesOf(flip); n > 512 {
		t.Errorf("one flip takes %d bytes, want at most 512", n)
	} else {
		t.Logf("one flip takes %d bytes", n)
	}
	// 1.2 % of all endpoints, on three nodes.
	var churn []view.Event
	for node := 1; node <= 3; node++ {
		churn = append(churn, runs(model.NodeID(2+node), model.InstanceCritical, names[node]...))
	}
	if n := bytesOf(churn...) * 10 / 12; n > 40<<10*services/10_000 {
		t.Errorf("1 %% churn of %d services takes %d bytes, want at most 40 KiB of 10,000", services, n)
	} else {
		t.Logf("1 %% churn of %d services takes %d bytes", services, n)
	}
	close(lost)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What the fake provider behind the SDK takes over a socket: a whole snapshot of
// 10,000 services with 10 endpoints each, and one flip of an endpoint.
func BenchmarkReconcile(b *testing.B) {
	v, names := large(b, 10_000)
	e := runs(2, passing, names[0]...)
	b.Run("project", func(b *testing.B) {
		for range b.N {
			reconcile.Project(v.Latest())
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		var took time.Duration
		for range b.N {
			_, client := sdkProvider(b)
			took += served(b, v, client, func(func()) {})
		}
		b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/snapshot")
	})
	b.Run("flip", func(b *testing.B) {
		_, client := sdkProvider(b)
		served(b, v, client, func(settled func()) {
			b.ResetTimer()
			for i := range b.N {
				states := append([]model.InstanceState(nil), e.Record.States...)
				states[7] = model.InstanceState(i % 2)
				e.Record = e.Record.With(states, time.Unix(1_700_000_050, 0))
				v.apply(e)
				settled()
			}
		})
	})
}

// served serves a new provider until use ends, and returns how long the first
// snapshot took.
func served(b *testing.B, v *views, client pb.DataPlaneProviderClient, use func(settled func())) time.Duration {
	loop := reconcile.New(reconcile.Config{Provider: "fake", Session: session(), Views: v, Deadline: time.Minute, MinGap: time.Microsecond})
	lost := make(chan struct{})
	done := make(chan error, 1)
	settled := func() {
		await.For(b, "programmed", func() bool { return loop.Status().Epoch == v.Latest().Epoch })
	}
	begun := time.Now()
	go func() { done <- loop.Serve(b.Context(), client, lost) }()
	settled()
	took := time.Since(begun)
	use(settled)
	close(lost)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}
