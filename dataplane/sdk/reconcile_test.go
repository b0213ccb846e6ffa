package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

func TestReconcileMovesTheProvider(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	one := gen(1, svc("web", 1, 9001, 9002))
	r := must(h.snapshot(one, false))(t)
	if r.Generation != 1 || r.Operations != 1 || len(r.Statuses) != 0 {
		t.Fatalf("got %v", r)
	}
	two := gen(2, svc("web", 1, 9002, 9003), svc("api", 2, 9100))
	if r = must(h.delta(one, two))(t); r.Generation != 2 || r.Operations != 2 {
		t.Fatalf("got %v", r)
	}
	want := `generation 2 of a/1, complete
default/api
  vip 10.200.0.2:80/tcp on empty refuse
  endpoint 000000000000238c api9100 127.0.0.1:9100 ready weight 1
default/web
  vip 10.200.0.1:80/tcp on empty refuse
  endpoint 000000000000232a web9002 127.0.0.1:9002 ready weight 1
  endpoint 000000000000232b web9003 127.0.0.1:9003 ready weight 1
`
	if p.String() != want {
		t.Fatalf("got\n%swant\n%s", p, want)
	}
	st := must(h.State(t.Context(), &pb.StateRequest{}))(t)
	if st.Generation != 2 || string(st.Digest) != "digest2" || st.InstanceId != "i1" || !st.Complete || st.Session.GetAgentId() != "a" {
		t.Fatalf("got %v", st)
	}
}

// "unchanged = Begin with the digest, ≤ 200 bytes, no system call in Reconcile"
func TestUnchangedDoesNotReachTheProvider(t *testing.T) {
	var calls atomic.Int32
	p := &spy{Provider: fake.New()}
	p.reconcile = func(ctx context.Context, s *dataplane.Snapshot, d dataplane.Delta) (dataplane.Result, error) {
		calls.Add(1)
		return p.Provider.Reconcile(ctx, s, d)
	}
	h := configured(t, p)
	s := gen(1, svc("web", 1, 9001), svc("twin", 1, 9002)) // one is refused: the same frontend
	first := must(h.snapshot(s, false))(t)
	for range 10 {
		r := must(h.tick(s))(t)
		if r.Generation != 1 || r.Operations != 0 || len(r.Statuses) != 1 || !proto.Equal(r.Statuses[0], first.Statuses[0]) {
			t.Fatalf("got %v", r)
		}
	}
	if again := must(h.snapshot(s, false))(t); again.Generation != 1 {
		t.Fatalf("got %v", again)
	}
	if n := calls.Load(); n != 1 {
		t.Fatalf("the provider was called %d times", n)
	}
	if n := proto.Size(begin(transfer.Begin(s, 1, false))) + proto.Size(commit()); n > 200 {
		t.Fatalf("a tick takes %d bytes", n)
	}
}

func TestReconcileRefuses(t *testing.T) {
	s := gen(5, svc("web", 1, 9001))
	with := func(change func(*pb.Begin)) *pb.ReconcileRequest {
		b := transfer.Begin(s, 0, false)
		b.Generation = 6
		change(b)
		return begin(b)
	}
	older := func(b *pb.Begin) { b.Session.BootEpoch = 0 }
	cut := &pb.Change{} // a group that is longer than its message
	cut.ProtoReflect().SetUnknown([]byte{0x12, 5, 0})
	for name, c := range map[string]struct {
		steps []*pb.ReconcileRequest
		want  error
	}{
		"no step":           {nil, dataplane.ErrInvalid},
		"no Begin":          {[]*pb.ReconcileRequest{commit()}, dataplane.ErrInvalid},
		"empty step":        {[]*pb.ReconcileRequest{{}}, dataplane.ErrInvalid},
		"no Commit":         {[]*pb.ReconcileRequest{with(func(*pb.Begin) {}), changes(&pb.Change{})}, dataplane.ErrInvalid},
		"two Begins":        {[]*pb.ReconcileRequest{with(func(*pb.Begin) {}), with(func(*pb.Begin) {}), commit()}, dataplane.ErrInvalid},
		"no session":        {[]*pb.ReconcileRequest{with(older), commit()}, dataplane.ErrInvalid},
		"old generation":    {[]*pb.ReconcileRequest{with(func(b *pb.Begin) { b.Generation = 4 }), commit()}, dataplane.ErrOldGeneration},
		"other digest":      {[]*pb.ReconcileRequest{with(func(b *pb.Begin) { b.Generation, b.Digest = 5, []byte("x") }), commit()}, dataplane.ErrBaseMismatch},
		"other base":        {[]*pb.ReconcileRequest{with(func(b *pb.Begin) { b.Base = 3 }), commit()}, dataplane.ErrBaseMismatch},
		"delta in session":  {[]*pb.ReconcileRequest{with(func(b *pb.Begin) { b.Base, b.Session.BootEpoch = 5, 2 }), commit()}, dataplane.ErrBaseMismatch},
		"nothing, unmeant":  {[]*pb.ReconcileRequest{with(func(*pb.Begin) {}), commit()}, dataplane.ErrInvalid},
		"unknown grade":     {[]*pb.ReconcileRequest{with(func(b *pb.Begin) { b.Completeness = 99 }), commit()}, dataplane.ErrInvalid},
		"service unhandled": {[]*pb.ReconcileRequest{with(func(*pb.Begin) {}), changes(&pb.Change{Services: []*pb.Service{{}}}), commit()}, dataplane.ErrInvalid},
		"no message":        {[]*pb.ReconcileRequest{with(func(*pb.Begin) {}), changes(cut), commit()}, dataplane.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake.New()
			h := configured(t, p)
			must(h.snapshot(s, false))(t)
			before := p.String()
			_, err := h.send(t.Context(), c.steps...)
			wantErr(t, err, c.want)
			if p.String() != before {
				t.Fatalf("something was applied:\n%s", p)
			}
			must(h.tick(s))(t) // and the turn is free
		})
	}
}

func TestOldSessionsAreFenced(t *testing.T) {
	h := configured(t, fake.New())
	of := func(agent string, boot, generation uint64) *dataplane.Snapshot {
		s := gen(generation, svc("web", 1, 9001)).Edit().Done()
		s.Session = dataplane.Session{AgentID: agent, BootEpoch: boot}
		return s
	}
	must(h.snapshot(of("a", 2, 9), false))(t)
	_, err := h.snapshot(of("a", 1, 10), false)
	wantErr(t, err, dataplane.ErrOldSession)
	must(h.snapshot(of("b", 1, 1), false))(t) // another agent, its generations begin anew
	_, err = h.snapshot(of("a", 2, 11), false)
	wantErr(t, err, dataplane.ErrOldSession)
	must(h.snapshot(of("a", 3, 1), false))(t)
}

func TestReconcileBeforeConfigure(t *testing.T) {
	_, err := serve(t, fake.New()).snapshot(gen(1), true)
	wantErr(t, err, dataplane.ErrNotConfigured)
}

// "returns an error: nothing was applied" – and the host may send it again.
func TestAnErrorOfTheProviderAppliesNothing(t *testing.T) {
	for _, want := range []error{dataplane.ErrFailed, dataplane.ErrLimit, dataplane.ErrUnsupported, dataplane.ErrInvalid} {
		p := &spy{Provider: fake.New()}
		fail := true
		p.reconcile = func(ctx context.Context, s *dataplane.Snapshot, d dataplane.Delta) (dataplane.Result, error) {
			if fail {
				return dataplane.Result{}, fmt.Errorf("%w: out of luck", want)
			}
			if len(d.Changes) != 1 || d.Changes[0].Old != nil {
				t.Errorf("the delta is %v, from what was not applied", d)
			}
			return p.Provider.Reconcile(ctx, s, d)
		}
		h := configured(t, p)
		s := gen(1, svc("web", 1, 9001))
		_, err := h.snapshot(s, false)
		wantErr(t, err, want)
		if !strings.Contains(err.Error(), "out of luck") {
			t.Fatalf("the message was lost: %v", err)
		}
		if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 0 {
			t.Fatalf("got %v", st)
		}
		fail = false
		must(h.snapshot(s, false))(t)
	}
}

func TestStatusesAreMergedAndRecoveriesTold(t *testing.T) {
	p := &spy{Provider: fake.New()}
	var mine []dataplane.ServiceStatus
	p.reconcile = func(context.Context, *dataplane.Snapshot, dataplane.Delta) (dataplane.Result, error) {
		return dataplane.Result{Statuses: mine}, nil
	}
	h := configured(t, p)
	key := func(name string) dataplane.Key { return dataplane.Key{Namespace: "default", Name: name} }
	mine = []dataplane.ServiceStatus{
		{Service: key("a"), Status: dataplane.StatusPartial, Reason: "no-udp"},
		{Service: key("twin"), Status: dataplane.StatusPartial, Reason: "of the old version"},
		{Service: key("b"), Status: dataplane.StatusProgrammed},
		{Service: key("b"), Status: 77},
	}
	one := gen(1, svc("a", 1), svc("b", 2), svc("twin", 2))
	r := must(h.snapshot(one, false))(t)
	if got := describeStatuses(r); got != "default/a PARTIAL no-udp; default/twin REJECTED duplicate-frontend" {
		t.Fatalf("got %s", got)
	}
	mine = nil
	two := gen(2, svc("a", 1), svc("b", 2), svc("twin", 3))
	r = must(h.delta(one, two))(t)
	if got := describeStatuses(r); got != "default/a PROGRAMMED ; default/twin PROGRAMMED " {
		t.Fatalf("got %s", got)
	}
	if got := describeStatuses(must(h.tick(two))(t)); got != "" {
		t.Fatalf("got %s", got)
	}
}

func describeStatuses(r *pb.ReconcileResponse) string {
	var parts []string
	for _, s := range r.Statuses {
		d := transfer.DecodeStatus(s)
		parts = append(parts, fmt.Sprintf("%s %v %s", d.Service, d.Status, d.Reason))
	}
	return strings.Join(parts, "; ")
}

// "one in flight, else ABORTED"
func TestOneCallAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := &spy{Provider: fake.New()}
	p.reconcile = func(context.Context, *dataplane.Snapshot, dataplane.Delta) (dataplane.Result, error) {
		close(entered)
		<-leave // whatever happens to ctx
		return dataplane.Result{}, nil
	}
	h := configured(t, p)
	done := make(chan error, 1)
	go func() {
		_, err := h.snapshot(gen(1, svc("web", 1)), false)
		done <- err
	}()
	receive(t, "the call", entered)

	ctx := t.Context()
	other := &host{t: t, DataPlaneProviderClient: h.DataPlaneProviderClient, encoder: transfer.NewEncoder()}
	for name, call := range map[string]func() error{
		"Reconcile": func() error { _, err := other.snapshot(gen(2), true); return err },
		"Configure": func() error { _, err := h.Configure(ctx, &pb.ConfigureRequest{InstanceId: "i"}); return err },
		"Probe":     func() error { _, err := h.Probe(ctx, &pb.ProbeRequest{}); return err },
		"Cleanup": func() error {
			_, err := h.Cleanup(ctx, &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED})
			return err
		},
		"Shutdown": func() error {
			_, err := h.Shutdown(ctx, &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP})
			return err
		},
	} {
		if err := transfer.FromWire(call()); !errors.Is(err, dataplane.ErrBusy) || !strings.Contains(err.Error(), "Reconcile (for") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// "a provider that ignores ctx does not block Health, Info, State"
	must(h.Info(ctx, &pb.InfoRequest{}))(t)
	must(h.State(ctx, &pb.StateRequest{}))(t)
	if r := must(h.Health(ctx, &pb.HealthRequest{}))(t); r.State != pb.HealthState_HEALTH_STATE_READY {
		t.Errorf("got %v", r)
	}
	close(leave)
	if err := receive(t, "the answer", done); err != nil {
		t.Fatal(err)
	}
}

func TestDeadlineAndCancelReachTheProvider(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  func(inside <-chan struct{}) (context.Context, context.CancelFunc)
		want error
	}{
		// Time for the call to come to the provider on a busy machine.
		"deadline": {func(<-chan struct{}) (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 2*time.Second)
		}, context.DeadlineExceeded},
		"cancel": {func(inside <-chan struct{}) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				select {
				case <-inside:
				case <-t.Context().Done():
				}
				cancel()
			}()
			return ctx, cancel
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			inside, seen := make(chan struct{}), make(chan error, 1)
			p := &spy{Provider: fake.New()}
			p.reconcile = func(ctx context.Context, _ *dataplane.Snapshot, _ dataplane.Delta) (dataplane.Result, error) {
				close(inside)
				<-ctx.Done()
				seen <- ctx.Err()
				return dataplane.Result{}, ctx.Err()
			}
			h := configured(t, p)
			ctx, cancel := c.ctx(inside)
			defer cancel()
			_, err := h.send(ctx, begin(transfer.Begin(gen(1), 0, true)), commit())
			wantErr(t, err, c.want)
			receive(t, "the end of the provider's context", seen)
			eventually(t, "a free turn", func() bool { return h.service.turn.now.Load() == nil })
			if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 0 {
				t.Fatalf("applied: %v", st)
			}
		})
	}
}

func TestIncompleteSnapshotsOnlyAdd(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	must(h.snapshot(gen(1, svc("old", 1, 9001)), false))(t)
	next := gen(1, svc("new", 2, 9002)).Edit().Done()
	next.Session.BootEpoch, next.Completeness = 2, dataplane.Incomplete
	must(h.snapshot(next, false))(t)
	if s := p.String(); !strings.Contains(s, "default/old") || !strings.Contains(s, "default/new") || !strings.Contains(s, "incomplete") {
		t.Fatalf("got\n%s", s)
	}
}

// A snapshot over gRPC's default of 4 MiB, in chunks and in one message.
func TestLargeMessages(t *testing.T) {
	p := fake.New()
	h := configured(t, p)
	var services []*dataplane.Service
	for i := range 3000 {
		s := svc(fmt.Sprintf("service-%04d", i), byte(i))
		s.Frontends[0].Addr = mustAddr(fmt.Sprintf("10.201.%d.%d:80", i/256, i%256))
		s.Hosts = []string{strings.Repeat("h", 2000)}
		services = append(services, s)
	}
	big := gen(1, services...)
	must(h.snapshot(big, false))(t)
	all := &pb.Change{}
	for c := range transfer.NewEncoder().Snapshot(big) {
		if n := proto.Size(c); n > transfer.MaxChangeBytes {
			t.Fatalf("a chunk of %d bytes", n)
		}
		proto.Merge(all, c)
	}
	if proto.Size(all) < 4<<20 {
		t.Fatalf("only %d bytes", proto.Size(all))
	}
	b := transfer.Begin(gen(2), 0, false)
	must(h.send(t.Context(), begin(b), changes(all), commit()))(t)
	if n := strings.Count(p.String(), "\ndefault/"); n != 3000 {
		t.Fatalf("%d services", n)
	}
}

func TestLimitsOfTheProvider(t *testing.T) {
	p := &spy{Provider: fake.New()}
	info := p.Info()
	info.Limits.EndpointsPerService = 1
	p.info = &info
	h := configured(t, p)
	r := must(h.snapshot(gen(1, svc("big", 1, 1, 2), svc("small", 2, 3)), false))(t)
	if got := describeStatuses(r); got != "default/big REJECTED limit" {
		t.Fatalf("got %s", got)
	}
}
