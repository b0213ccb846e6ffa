package sdk

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const (
	owned = pb.CleanupScope_CLEANUP_SCOPE_OWNED
	known = pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN
)

func TestCleanup(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	s := gen(1, svc("web", 1, 9001))
	must(h.snapshot(s, false))(t)
	r := must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned, DryRun: true}))(t)
	if len(r.Items) != 1 || r.Items[0].Result != pb.CleanupResult_CLEANUP_RESULT_WOULD_REMOVE || r.Items[0].Object != "default/web" {
		t.Fatalf("got %v", r)
	}
	must(h.tick(s))(t) // still there
	r = must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned, InstanceId: "other"}))(t)
	if r.Items[0].Result != pb.CleanupResult_CLEANUP_RESULT_KEPT {
		t.Fatalf("got %v", r)
	}
	must(h.tick(s))(t)
	r = must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned}))(t)
	if r.Items[0].Result != pb.CleanupResult_CLEANUP_RESULT_REMOVED || p.String() != "nothing applied\n" {
		t.Fatalf("got %v\n%s", r, p)
	}
	// what is gone is not "unchanged", and not a base
	_, err := h.tick(s)
	wantErr(t, err, dataplane.ErrBaseMismatch)
	if r := must(h.snapshot(s, false))(t); r.Operations != 1 {
		t.Fatalf("got %v", r)
	}
}

// "Cleanup works after kill -9 with no state and touches nothing else"
func TestCleanupUnconfigured(t *testing.T) {
	dir := t.TempDir()
	for _, instance := range []string{"mine", "theirs"} {
		h := serve(t, fake.NewIn(dir))
		h.configure(instance, "")
		must(h.snapshot(gen(1, svc("web", 1)), false))(t)
	}
	h := serve(t, fake.NewIn(dir))
	r := must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned, InstanceId: "mine"}))(t)
	results := map[pb.CleanupResult]int{}
	for _, i := range r.Items {
		results[i.Result]++
	}
	if results[pb.CleanupResult_CLEANUP_RESULT_REMOVED] != 1 || results[pb.CleanupResult_CLEANUP_RESULT_KEPT] != 1 {
		t.Fatalf("got %v", r)
	}
	if r = must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: known}))(t); len(r.Items) != 1 {
		t.Fatalf("got %v", r)
	}
	for _, bad := range []*pb.CleanupRequest{{Scope: owned}, {}, {Scope: 99}} {
		_, err := h.Cleanup(t.Context(), bad)
		wantErr(t, transfer.FromWire(err), dataplane.ErrInvalid)
	}
}

func TestCleanupThatFails(t *testing.T) {
	p := &spy{Provider: fake.New()}
	h := configured(t, p)
	must(h.snapshot(gen(1, svc("web", 1)), false))(t)
	p.cleanup = func(context.Context, dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
		return []dataplane.CleanupItem{{Object: "table", Result: dataplane.Removed}}, errors.New("half way")
	}
	r := must(h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned}))(t)
	if len(r.Items) != 2 || r.Items[1].Result != pb.CleanupResult_CLEANUP_RESULT_FAILED || r.Items[1].Message != "half way" {
		t.Fatalf("got %v", r)
	}
	if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 0 {
		t.Fatalf("half of it is gone, and State says %v", st)
	}
	p.cleanup = func(context.Context, dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
		return nil, dataplane.ErrFailed
	}
	_, err := h.Cleanup(t.Context(), &pb.CleanupRequest{Scope: owned})
	wantErr(t, transfer.FromWire(err), dataplane.ErrFailed)
}

func TestShutdown(t *testing.T) {
	for policy, want := range map[pb.ShutdownPolicy]string{
		pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP:   "default/web",
		pb.ShutdownPolicy_SHUTDOWN_POLICY_REMOVE: "nothing applied\n",
	} {
		p := fake.New()
		h := configured(t, p)
		s := gen(1, svc("web", 1))
		must(h.snapshot(s, false))(t)
		must(h.Shutdown(t.Context(), &pb.ShutdownRequest{Policy: policy}))(t)
		receive(t, "the end", h.service.Done())
		if !strings.Contains(p.String(), want) {
			t.Errorf("%v:\n%s", policy, p)
		}
		_, err := h.tick(s)
		wantErr(t, err, dataplane.ErrBusy)
		if err := h.service.Stop(patience); err != nil {
			t.Error(err)
		}
	}
}

func TestShutdownThatFails(t *testing.T) {
	p := &spy{Provider: fake.New(), shutdown: func(context.Context, dataplane.ShutdownPolicy) error { return dataplane.ErrFailed }}
	h := configured(t, p)
	for want, policy := range map[error]pb.ShutdownPolicy{dataplane.ErrInvalid: 0, dataplane.ErrFailed: 1} {
		_, err := h.Shutdown(t.Context(), &pb.ShutdownRequest{Policy: policy})
		wantErr(t, transfer.FromWire(err), want)
	}
	must(h.snapshot(gen(1), true))(t) // it goes on
}

// A panic ends the service: what the provider left behind is not known.
func TestPanics(t *testing.T) {
	for call, breakIt := range map[string]func(*spy){
		"Probe": func(s *spy) { s.probe = func(context.Context) (dataplane.Report, error) { panic("boom") } },
		"Configure": func(s *spy) {
			s.configure = func(context.Context, dataplane.Config) ([]dataplane.Diagnostic, error) { panic("boom") }
		},
		"State": func(s *spy) { s.state = func(context.Context) (dataplane.State, error) { panic("boom") } },
		"Reconcile": func(s *spy) {
			s.reconcile = func(context.Context, *dataplane.Snapshot, dataplane.Delta) (dataplane.Result, error) { panic("boom") }
		},
		"Health": func(s *spy) { s.health = func(context.Context) dataplane.Health { panic("boom") } },
		"Watch": func(s *spy) {
			s.watch = func(context.Context, *dataplane.FlowOptions, func(dataplane.Event)) error { panic("boom") }
		},
		"Stats": func(s *spy) { s.stats = func(context.Context, func(dataplane.Counter) bool) error { panic("boom") } },
		"Drain": func(s *spy) {
			s.drain = func(context.Context, time.Time, func(dataplane.DrainProgress)) error { panic("boom") }
		},
		"Cleanup": func(s *spy) {
			s.cleanup = func(context.Context, dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) { panic("boom") }
		},
		"Shutdown": func(s *spy) { s.shutdown = func(context.Context, dataplane.ShutdownPolicy) error { panic("boom") } },
	} {
		t.Run(call, func(t *testing.T) {
			p := &spy{Provider: fake.New()}
			breakIt(p)
			h := serve(t, p)
			everyCall(t, h, call == "Watch")
			receive(t, "the end", h.service.Done())
			got := h.service.Panicked()
			if got == nil || got.Call != call || got.Panic != "boom" || !strings.Contains(got.Stack, "ending_test.go") {
				t.Fatalf("got %+v", got)
			}
			if _, err := h.Configure(t.Context(), &pb.ConfigureRequest{InstanceId: "i"}); !errors.Is(transfer.FromWire(err), dataplane.ErrFailed) {
				t.Fatalf("a call after it: %v", err)
			}
			if err := h.service.Stop(patience); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// everyCall makes one of each call, the last of which is Shutdown. Watch goes on
// beside the others, or to its end.
func everyCall(t *testing.T, h *host, watchToItsEnd bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _ = h.Info(ctx, &pb.InfoRequest{})
	_, _ = h.Probe(ctx, &pb.ProbeRequest{})
	_, _ = h.Configure(ctx, &pb.ConfigureRequest{InstanceId: "i1"})
	_, _ = h.State(ctx, &pb.StateRequest{})
	_, _ = h.snapshot(gen(1, svc("web", 1)), false)
	_, _ = h.Health(ctx, &pb.HealthRequest{})
	if w, err := h.Watch(ctx, &pb.WatchRequest{}); err == nil {
		for _, err = w.Recv(); err == nil && watchToItsEnd; _, err = w.Recv() {
		}
	}
	if s, err := h.Stats(ctx, &pb.StatsRequest{}); err == nil {
		_, _ = s.Recv()
	}
	if d, err := h.Drain(ctx, deadlineOf(0)); err == nil {
		for {
			if _, err := d.Recv(); err != nil {
				break
			}
		}
	}
	_, _ = h.Cleanup(ctx, &pb.CleanupRequest{Scope: known})
	select {
	case <-h.service.Done():
	default:
		if h.service.Panicked() == nil {
			_, _ = h.Shutdown(ctx, &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP})
		}
	}
}

func TestPanicInInfo(t *testing.T) {
	if _, err := NewService(panicky{}, nil); !errors.Is(err, dataplane.ErrFailed) || !strings.Contains(err.Error(), "no info") {
		t.Fatalf("got %v", err)
	}
}

type panicky struct{ dataplane.Provider }

func (panicky) Info() dataplane.Info { panic("no info") }

// A stop waits for the call under way, then cancels it, then gives up on it.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		reconcile func(ctx context.Context, leave <-chan struct{})
		leave     bool
		budget    time.Duration
		want      error
		shut      bool
	}{
		"that finishes":       {reconcile: func(_ context.Context, leave <-chan struct{}) { <-leave }, leave: true, budget: time.Minute, shut: true},
		"that notices":        {reconcile: func(ctx context.Context, _ <-chan struct{}) { <-ctx.Done() }, budget: 6 * time.Second, shut: true},
		"that does not mind":  {reconcile: func(_ context.Context, leave <-chan struct{}) { <-leave }, budget: 150 * time.Millisecond, want: dataplane.ErrBusy},
		"that is none at all": {budget: time.Minute, shut: true},
	} {
		t.Run("a call "+name, func(t *testing.T) {
			leave, entered, shut := make(chan struct{}), make(chan struct{}), make(chan dataplane.ShutdownPolicy, 1)
			p := &spy{Provider: fake.New(), shutdown: func(_ context.Context, policy dataplane.ShutdownPolicy) error {
				shut <- policy
				return nil
			}}
			p.reconcile = func(ctx context.Context, _ *dataplane.Snapshot, _ dataplane.Delta) (dataplane.Result, error) {
				close(entered)
				c.reconcile(ctx, leave)
				return dataplane.Result{}, ctx.Err()
			}
			h := configured(t, p)
			answered := make(chan struct{})
			if c.reconcile != nil {
				go func() { defer close(answered); _, _ = h.snapshot(gen(1, svc("web", 1)), false) }()
				receive(t, "the call", entered)
				defer func() { <-answered }()
			}
			if c.leave {
				close(leave)
			} else {
				defer close(leave)
			}
			if err := h.service.Stop(c.budget); !errors.Is(err, c.want) {
				t.Fatalf("got %v", err)
			}
			if c.shut && receive(t, "Shutdown", shut) != dataplane.ShutdownKeep || len(shut) != 0 {
				t.Fatal("not Shutdown(keep), once")
			}
		})
	}
}

func TestStopOfAShutdownThatHangs(t *testing.T) {
	leave := make(chan struct{})
	p := &spy{Provider: fake.New(), shutdown: func(context.Context, dataplane.ShutdownPolicy) error { <-leave; return nil }}
	h := serve(t, p)
	defer close(leave)
	wantErr(t, h.service.Stop(60*time.Millisecond), dataplane.ErrFailed)
}
