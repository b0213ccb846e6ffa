package main

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

type inner = pb.DataPlaneProviderServer

// moody calls itself something else each time.
type moody struct {
	inner
	mu    sync.Mutex
	times int
}

func infoChanges(i inner) inner { return &moody{inner: i} }

func (m *moody) Info(ctx context.Context, r *pb.InfoRequest) (*pb.InfoResponse, error) {
	info, err := m.inner.Info(ctx, r)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times++
	info = proto.CloneOf(info)
	info.Version = fmt.Sprintf("%s+%d", info.GetVersion(), m.times)
	return info, nil
}

// confident is SUPPORTED everywhere, and does not say why.
type confident struct{ inner }

func probeSaysNothing(i inner) inner { return confident{i} }

func (confident) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Verdict: pb.Verdict_VERDICT_SUPPORTED}, nil
}

// eager takes a configuration before it has read it to the end.
type eager struct{ inner }

func badConfigReplaces(i inner) inner { return eager{i} }

func (e eager) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	response, err := e.inner.Configure(ctx, r)
	if err != nil {
		half := proto.CloneOf(r)
		half.Config = nil
		_, _ = e.inner.Configure(ctx, half)
	}
	return response, err
}

// silent waits for something to happen.
type silent struct{ inner }

func silentWatch(i inner) inner { return silent{i} }

func (silent) Watch(_ *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
	<-s.Context().Done()
	return nil
}

// jumpy counts its events by twos.
type jumpy struct{ inner }

func skipsNumbers(i inner) inner { return jumpy{i} }

func (j jumpy) Watch(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
	return j.inner.Watch(r, jumpyStream{s})
}

type jumpyStream struct {
	grpc.ServerStreamingServer[pb.WatchResponse]
}

func (s jumpyStream) Send(m *pb.WatchResponse) error {
	m = proto.CloneOf(m)
	m.Seq *= 2
	return s.ServerStreamingServer.Send(m)
}

// forgetful counts since it was last asked.
type forgetful struct {
	inner
	mu    sync.Mutex
	value uint64
}

func countersFall(i inner) inner { return &forgetful{inner: i, value: 100} }

func (f *forgetful) Stats(r *pb.StatsRequest, s grpc.ServerStreamingServer[pb.StatsResponse]) error {
	f.mu.Lock()
	f.value--
	value := f.value
	f.mu.Unlock()
	if err := s.Send(&pb.StatsResponse{Counters: []*pb.Counter{{Name: "connections", Value: value}}}); err != nil {
		return err
	}
	return f.inner.Stats(r, s)
}

// patient lets its last connection take as long as it wants.
type patient struct{ inner }

func endlessDrain(i inner) inner { return patient{i} }

func (patient) Drain(_ *pb.DrainRequest, s grpc.ServerStreamingServer[pb.DrainResponse]) error {
	if err := s.Send(&pb.DrainResponse{Active: 1}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// tidy cleans up whatever it has, whoever asked.
type tidy struct{ inner }

func cleanupTakesOthers(i inner) inner { return tidy{i} }

func (t tidy) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	all := proto.CloneOf(r)
	all.Scope = pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN
	return t.inner.Cleanup(ctx, all)
}

// sticky never lets go of a rule.
type sticky struct{ inner }

func lingersOn(i inner) inner { return sticky{i} }

func (s sticky) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	m, err := s.inner.Cleanup(ctx, r)
	if err == nil && !r.GetDryRun() {
		m.Items = append(m.Items, &pb.CleanupItem{Object: "rule", Result: pb.CleanupResult_CLEANUP_RESULT_PENDING, Message: "two connections"})
	}
	return m, err
}

// wet runs for real, and says that it would.
type wet struct{ inner }

func dryRunRemoves(i inner) inner { return wet{i} }

func (w wet) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	real := proto.CloneOf(r)
	real.DryRun = false
	m, err := w.inner.Cleanup(ctx, real)
	for _, i := range m.GetItems() {
		if r.GetDryRun() && i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_REMOVED {
			i.Result = pb.CleanupResult_CLEANUP_RESULT_WOULD_REMOVE
		}
	}
	return m, err
}

// anonymous has a name that no file can have.
type anonymous struct{ inner }

func nameless(i inner) inner { return anonymous{i} }

func (a anonymous) Info(ctx context.Context, r *pb.InfoRequest) (*pb.InfoResponse, error) {
	info, err := a.inner.Info(ctx, r)
	info = proto.CloneOf(info)
	info.Name = "My Provider"
	return info, err
}

// boundless says that it has limits, and takes more.
type boundless struct{ inner }

func noLimit(i inner) inner { return boundless{i} }

func (b boundless) Info(ctx context.Context, r *pb.InfoRequest) (*pb.InfoResponse, error) {
	info, err := b.inner.Info(ctx, r)
	info = proto.CloneOf(info)
	info.Limits = &pb.Limits{Services: 30}
	return info, err
}

// wavering is DEGRADED every second time.
type wavering struct {
	inner
	mu    sync.Mutex
	times int
}

func undecided(i inner) inner { return &wavering{inner: i} }

func (w *wavering) Probe(ctx context.Context, r *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.inner.Probe(ctx, r)
	if w.times++; w.times%2 == 0 && err == nil {
		m = proto.CloneOf(m)
		m.Verdict = pb.Verdict_VERDICT_DEGRADED
	}
	return m, err
}

// gullible makes the best of any configuration.
type gullible struct{ inner }

func takesAnything(i inner) inner { return gullible{i} }

func (g gullible) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	m, err := g.inner.Configure(ctx, r)
	if err != nil {
		r = proto.CloneOf(r)
		r.Config = nil
		return g.inner.Configure(ctx, r)
	}
	return m, err
}

// generous gives itself an instance id.
type generous struct{ inner }

func untagged(i inner) inner { return generous{i} }

func (g generous) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	if r.GetInstanceId() == "" {
		r = proto.CloneOf(r)
		r.InstanceId = "default"
	}
	return g.inner.Configure(ctx, r)
}

// moaning is never well, and does not say why.
type moaning struct{ inner }

func degradedSomehow(i inner) inner { return moaning{i} }

func (moaning) Health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	return &pb.HealthResponse{State: pb.HealthState_HEALTH_STATE_DEGRADED}, nil
}

// thorough removes its table, be it there or not.
type thorough struct{ inner }

func removesItAgain(i inner) inner { return thorough{i} }

func (t thorough) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	m, err := t.inner.Cleanup(ctx, r)
	if err == nil && !r.GetDryRun() && r.GetScope() == pb.CleanupScope_CLEANUP_SCOPE_OWNED {
		m.Items = append(m.Items, &pb.CleanupItem{Object: "table", Result: pb.CleanupResult_CLEANUP_RESULT_REMOVED})
	}
	return m, err
}
