package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

func TestHealth(t *testing.T) {
	p := &spy{Provider: fake.New()}
	h := serve(t, p)
	health := func() *pb.HealthResponse { return must(h.Health(t.Context(), &pb.HealthRequest{}))(t) }
	if r := health(); r.State != pb.HealthState_HEALTH_STATE_STARTING || r.Reasons[0] != "not configured" {
		t.Fatalf("got %v", r)
	}
	p.health = func(context.Context) dataplane.Health { return dataplane.Health{} }
	if r := health(); r.State != pb.HealthState_HEALTH_STATE_FAILED || !strings.Contains(r.Reasons[0], "unknown(0)") {
		t.Fatalf("got %v", r)
	}
}

// However often a provider that hangs is asked, one goroutine waits for it.
func TestHealthOfAProviderThatHangs(t *testing.T) {
	var calls atomic.Int32
	leave := make(chan struct{})
	p := &spy{Provider: fake.New(), health: func(context.Context) dataplane.Health {
		calls.Add(1)
		<-leave
		return dataplane.Health{State: dataplane.HealthReady}
	}}
	h := serve(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 20 {
		if _, err := h.service.Health(ctx, nil); !errors.Is(transfer.FromWire(err), context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	r := must(h.Health(t.Context(), &pb.HealthRequest{}))(t)
	if r.State != pb.HealthState_HEALTH_STATE_FAILED || !strings.Contains(r.Reasons[0], "no answer in 2s") {
		t.Fatalf("got %v", r)
	}
	if n := calls.Load(); n != 1 {
		t.Fatalf("%d calls", n)
	}
	close(leave)
	eventually(t, "READY", func() bool {
		return must(h.Health(t.Context(), &pb.HealthRequest{}))(t).State == pb.HealthState_HEALTH_STATE_READY
	})
}

// watch opens a stream and returns a function that reads the next event.
func watch(t *testing.T, h *host, r *pb.WatchRequest) (next func() *pb.WatchResponse, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream := must(h.Watch(ctx, r))(t)
	return func() *pb.WatchResponse {
		t.Helper()
		return must(stream.Recv())(t)
	}, cancel
}

func TestWatch(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	next, cancel := watch(t, h, &pb.WatchRequest{})
	defer cancel()
	// "the first message comes at once"
	if m := next(); m.GetHealth().GetState() != pb.HealthState_HEALTH_STATE_READY || m.Seq != 1 || m.InstanceId != "i1" {
		t.Fatalf("got %v", m)
	}
	eventually(t, "Watch of the provider", func() bool { return p.Watching() == 1 })
	p.Emit(dataplane.Event{})
	p.Connect(dataplane.Flow{Verdict: "forwarded"}) // nobody asked
	p.Emit(dataplane.Event{Drift: &dataplane.Drift{What: "a rule is gone", Repaired: true}})
	if m := next(); m.GetDrift().GetWhat() != "a rule is gone" || !m.GetDrift().GetRepaired() || m.Seq != 2 {
		t.Fatalf("got %v", m)
	}
	// the SDK's own: a status that changed
	must(h.snapshot(gen(1, svc("a", 1), svc("b", 1)), false))(t)
	if m := next(); m.GetStatus().GetReason() != "duplicate-frontend" || m.Seq != 3 {
		t.Fatalf("got %v", m)
	}
	cancel()
	eventually(t, "end of Watch", func() bool { return p.Watching() == 0 })
}

func TestWatchTellsOfHealthThatChanges(t *testing.T) {
	p := fake.New()
	h := serve(t, p)
	next, cancel := watch(t, h, &pb.WatchRequest{})
	defer cancel()
	next()
	h.configure("i", "")
	must(h.Health(t.Context(), &pb.HealthRequest{}))(t)
	if m := next(); m.GetHealth().GetState() != pb.HealthState_HEALTH_STATE_READY {
		t.Fatalf("got %v", m)
	}
}

func TestWatchFlowsAreBounded(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	next, cancel := watch(t, h, &pb.WatchRequest{Flows: &pb.FlowRequest{MaxPerSecond: 3}})
	defer cancel()
	next()
	eventually(t, "Watch of the provider", func() bool { return p.Watching() == 1 })
	for range 100 {
		p.Connect(dataplane.Flow{Service: svc("web", 1).Key, Frontend: dataplane.Binding{Addr: mustAddr("10.200.0.1:80"), Protocol: dataplane.TCP}, Verdict: "forwarded"})
	}
	p.Emit(dataplane.Event{ResyncWanted: "end"})
	flows := 0
	for {
		m := next()
		if m.GetResync() != nil {
			if m.Seq != uint64(flows)+2 {
				t.Fatalf("flows beyond the quota left a gap: %v", m)
			}
			break
		}
		flows++
		if f := transfer.DecodeEvent(m).Flow; f.Frontend.Addr != mustAddr("10.200.0.1:80") || f.Verdict != "forwarded" {
			t.Fatalf("got %+v", f)
		}
	}
	if flows < 3 || flows > 6 { // two seconds may be touched
		t.Fatalf("%d flows", flows)
	}
}

// "a gap means that events were dropped"
func TestWatchersThatLagLoseEvents(t *testing.T) {
	w := newWatcher(func() string { return "i" }, nil)
	for range watchBuffer + 10 {
		w.emit(dataplane.Event{ResyncWanted: "x"})
	}
	for range watchBuffer {
		<-w.events
	}
	w.emit(dataplane.Event{ResyncWanted: "last"})
	if m := <-w.events; m.Seq != watchBuffer+11 {
		t.Fatalf("got %v", m)
	}
	w.close()
	w.emit(dataplane.Event{ResyncWanted: "x"})
	if len(w.events) != 0 {
		t.Fatal("an event after the end")
	}
}

func TestWatchEnds(t *testing.T) {
	t.Run("with the provider's error", func(t *testing.T) {
		p := &spy{Provider: fake.New(), watch: func(context.Context, *dataplane.FlowOptions, func(dataplane.Event)) error {
			return fmt.Errorf("%w: no netlink", dataplane.ErrFailed)
		}}
		stream := must(serve(t, p).Watch(t.Context(), &pb.WatchRequest{}))(t)
		for {
			if _, err := stream.Recv(); err != nil {
				wantErr(t, transfer.FromWire(err), dataplane.ErrFailed)
				break
			}
		}
	})
	t.Run("with the service", func(t *testing.T) {
		h := serve(t, bare{fake.New()})
		stream := must(h.Watch(t.Context(), &pb.WatchRequest{}))(t)
		must(stream.Recv())(t)
		h.service.Close()
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) && err == nil {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("beyond so many", func(t *testing.T) {
		h := serve(t, bare{fake.New()})
		for range maxWatchers {
			next, cancel := watch(t, h, &pb.WatchRequest{})
			defer cancel()
			next()
		}
		stream := must(h.Watch(t.Context(), &pb.WatchRequest{}))(t)
		_, err := stream.Recv()
		wantErr(t, transfer.FromWire(err), dataplane.ErrLimit)
	})
}

func TestStats(t *testing.T) {
	p := &spy{Provider: fake.New(), stats: func(_ context.Context, yield func(dataplane.Counter) bool) error {
		for i := range uint64(2*statsBatch + 1) {
			if !yield(dataplane.Counter{Service: svc("web", 1).Key, Endpoint: i + 1, Name: "connections", Value: i}) {
				break
			}
		}
		return nil
	}}
	h := configured(t, p)
	stream := must(h.Stats(t.Context(), &pb.StatsRequest{}))(t)
	var got []*pb.Counter
	messages := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || m.InstanceId != "i1" {
			t.Fatal(m, err)
		}
		got = append(got, m.Counters...)
		messages++
	}
	if len(got) != 2*statsBatch+1 || messages != 3 || got[len(got)-1].Value != 2*statsBatch {
		t.Fatalf("%d counters in %d messages", len(got), messages)
	}
	p.stats = func(context.Context, func(dataplane.Counter) bool) error { return dataplane.ErrFailed }
	stream = must(h.Stats(t.Context(), &pb.StatsRequest{}))(t)
	_, err := stream.Recv()
	wantErr(t, transfer.FromWire(err), dataplane.ErrFailed)
}

// "stop new, let old finish"
func TestDrain(t *testing.T) {
	p := fake.New()
	h := serve(t, p)
	p.Open(2)
	stream := must(h.Drain(t.Context(), &pb.DrainRequest{Deadline: durationpb.New(time.Hour)}))(t)
	if m := must(stream.Recv())(t); m.Active != 2 {
		t.Fatalf("got %v", m)
	}
	p.CloseOne()
	if m := must(stream.Recv())(t); m.Active != 1 || m.Closed != 1 {
		t.Fatalf("got %v", m)
	}
	p.CloseOne()
	last := drainToEnd(t, stream.Recv)
	if last.Active != 0 || last.Closed != 2 || last.Forced != 0 {
		t.Fatalf("got %v", last)
	}

	p.Open(1)
	stream = must(h.Drain(t.Context(), &pb.DrainRequest{Deadline: durationpb.New(0)}))(t)
	if last = drainToEnd(t, stream.Recv); last.Forced != 1 {
		t.Fatalf("got %v", last)
	}

	p.Open(1)
	ctx, cancel := context.WithCancel(t.Context())
	stream = must(h.Drain(ctx, &pb.DrainRequest{Deadline: durationpb.New(time.Hour)}))(t)
	must(stream.Recv())(t)
	cancel()
	_, err := stream.Recv()
	wantErr(t, transfer.FromWire(err), context.Canceled)
}

func drainToEnd(t *testing.T, recv func() (*pb.DrainResponse, error)) *pb.DrainResponse {
	t.Helper()
	var last *pb.DrainResponse
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		if err != nil {
			t.Fatal(err)
		}
		last = m
	}
}

func TestDrainRefuses(t *testing.T) {
	p := &spy{Provider: fake.New(), drain: func(context.Context, time.Time, func(dataplane.DrainProgress)) error { return dataplane.ErrFailed }}
	h := serve(t, p)
	for want, r := range map[error]*pb.DrainRequest{
		dataplane.ErrInvalid: {},
		dataplane.ErrFailed:  {Deadline: durationpb.New(time.Second)},
	} {
		stream := must(h.Drain(t.Context(), r))(t)
		_, err := stream.Recv()
		wantErr(t, transfer.FromWire(err), want)
	}
}

func TestOptionalInterfacesAreOptional(t *testing.T) {
	h := configured(t, bare{fake.New()})
	stats := must(h.Stats(t.Context(), &pb.StatsRequest{}))(t)
	_, err := stats.Recv()
	wantErr(t, transfer.FromWire(err), dataplane.ErrUnsupported)
	drain := must(h.Drain(t.Context(), &pb.DrainRequest{}))(t)
	_, err = drain.Recv()
	wantErr(t, transfer.FromWire(err), dataplane.ErrUnsupported)
	next, cancel := watch(t, h, &pb.WatchRequest{})
	defer cancel()
	if m := next(); m.GetHealth() == nil {
		t.Fatalf("got %v", m)
	}
}
