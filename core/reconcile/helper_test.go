package reconcile_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const self model.NodeID = 1

func session() dataplane.Session {
	return dataplane.Session{AgentID: "00000000000000a1", BootEpoch: 7}
}

// views publishes views as a viewer does.
type views struct {
	mu      sync.Mutex
	latest  *view.View
	changed chan struct{}
}

func newViews(c view.Completeness) *views {
	return &views{latest: view.Apply(view.New(self, 1), view.Completed{Completeness: c}), changed: make(chan struct{})}
}

func (v *views) Latest() *view.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.latest
}

func (v *views) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

func (v *views) apply(events ...view.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range events {
		v.latest = view.Apply(v.latest, e)
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

func member(id model.NodeID, s model.State) view.Member {
	return view.Member{
		ID: id, Name: fmt.Sprintf("n%d", id), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(id)}), 7400),
		Value: model.Value{Epoch: 1, State: s}, Since: time.Unix(1_700_000_000, 0),
	}
}

func key(name string) model.ServiceKey { return model.ServiceKey{Namespace: "default", Name: name} }

// runs says that a node runs one instance of each of these services.
func runs(id model.NodeID, state model.InstanceState, names ...string) view.Seen {
	var d record.Definition
	var states []model.InstanceState
	for _, name := range names {
		vip := netip.AddrFrom16([16]byte(append(append([]byte{0xfd}, make([]byte, 15-len(name))...), name...))) // unique
		d.Services = append(d.Services, model.Service{Key: key(name), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}, VIP: vip, Registered: 1})
		d.Instances = append(d.Instances, model.Instance{ID: name + "-1", Service: key(name), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(id)}), uint16(9000+len(states))), Weight: 1})
		states = append(states, state)
	}
	return view.Seen{At: time.Unix(1_700_000_001, 0), Member: member(id, model.StateAlive), Record: view.NewRecord(d, states, time.Unix(1_700_000_001, 0))}
}

func becomes(id model.NodeID, s model.State) view.Seen {
	return view.Seen{At: time.Unix(1_700_000_009, 0), Member: member(id, s)}
}

// seen is one call that a provider got.
type seen struct {
	at    time.Time
	kind  string // unchanged, delta, snapshot
	gen   uint64
	bytes int
	delta dataplane.Delta
	begin *pb.Begin
}

// provider is a provider in this process, with faults. It is its own client: no
// socket lies between, so that time may be virtual.
type provider struct {
	pb.DataPlaneProviderClient // panics for calls that are not expected

	mu        sync.Mutex
	assembler *transfer.Assembler
	calls     []seen
	states    int
	events    chan *pb.WatchResponse

	// fault is asked before each Commit of a generation; a mode named here
	// decides what happens.
	fault func(n int) fault
}

// fault is what a provider does wrong.
type fault struct {
	err      error         // answered instead of applying
	applied  bool          // err comes though it was applied
	hang     bool          // never answers
	delay    time.Duration // before anything happens
	answer   uint64        // generation to answer, if not 0
	statuses []dataplane.ServiceStatus
	forget   bool // loses everything first, as a new process does
	early    bool // ends the stream at Begin with err
}

func newProvider() *provider {
	return &provider{assembler: transfer.NewAssembler(dataplane.Limits{}), events: make(chan *pb.WatchResponse, 16)}
}

func (p *provider) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assembler = transfer.NewAssembler(dataplane.Limits{})
}

func (p *provider) given() *dataplane.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.assembler.Given()
}

func (p *provider) history() []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]seen(nil), p.calls...)
}

func (p *provider) State(ctx context.Context, _ *pb.StateRequest, _ ...grpc.CallOption) (*pb.StateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states++
	a := p.assembler.Applied()
	return transfer.EncodeState(dataplane.State{Session: a.Session, Generation: a.Generation, Digest: a.Digest, Complete: a.Complete}), nil
}

func (p *provider) Watch(ctx context.Context, _ *pb.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.WatchResponse], error) {
	return &watchStream{ctx: ctx, p: p}, nil
}

type watchStream struct {
	grpc.ClientStream
	ctx context.Context
	p   *provider
}

func (w *watchStream) Recv() (*pb.WatchResponse, error) {
	select {
	case m := <-w.p.events:
		if m == nil {
			return nil, status.Error(codes.Unavailable, "gone")
		}
		return m, nil
	case <-w.ctx.Done():
		return nil, status.FromContextError(w.ctx.Err()).Err()
	}
}

func (p *provider) Reconcile(ctx context.Context, _ ...grpc.CallOption) (grpc.ClientStreamingClient[pb.ReconcileRequest, pb.ReconcileResponse], error) {
	return &reconcileStream{ctx: ctx, p: p}, nil
}

type reconcileStream struct {
	grpc.ClientStream
	ctx      context.Context
	p        *provider
	messages []*pb.ReconcileRequest
	bytes    int
	f        fault
	begun    bool
}

func (s *reconcileStream) Send(m *pb.ReconcileRequest) error {
	if !s.begun {
		s.begun = true
		s.p.mu.Lock()
		if s.p.fault != nil {
			s.f = s.p.fault(len(s.p.calls))
		}
		s.p.mu.Unlock()
	}
	if s.f.early {
		return io.EOF
	}
	b, err := proto.Marshal(m) // as a socket would keep it
	if err != nil {
		return err
	}
	copied := &pb.ReconcileRequest{}
	s.bytes += len(b)
	s.messages = append(s.messages, copied)
	return proto.Unmarshal(b, copied)
}

func (s *reconcileStream) CloseAndRecv() (*pb.ReconcileResponse, error) {
	if s.f.delay > 0 {
		timer := time.NewTimer(s.f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		}
	}
	if s.f.hang {
		<-s.ctx.Done()
	}
	if err := s.ctx.Err(); err != nil && !s.f.applied {
		s.p.mu.Lock()
		defer s.p.mu.Unlock()
		s.p.calls = append(s.p.calls, seen{at: time.Now(), kind: "none"})
		return nil, status.FromContextError(err).Err()
	}
	response, err := s.p.apply(s)
	if s.ctx.Err() != nil {
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
	return response, err
}

func (p *provider) apply(s *reconcileStream) (_ *pb.ReconcileResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := seen{at: time.Now(), kind: "none", bytes: s.bytes}
	defer func() { p.calls = append(p.calls, call) }()
	if s.f.err != nil && !s.f.applied {
		return nil, transfer.ToWire(s.f.err)
	}
	if s.f.forget {
		p.assembler = transfer.NewAssembler(dataplane.Limits{})
	}
	call.begin = s.messages[0].GetBegin()
	call.gen = call.begin.GetGeneration()
	switch call.begin.GetBase() {
	case 0:
		call.kind = "snapshot"
	case call.gen:
		call.kind = "unchanged"
	default:
		call.kind = "delta"
	}
	g, err := p.assembler.Begin(call.begin)
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	for _, m := range s.messages[1 : len(s.messages)-1] {
		if err := g.Change(m.GetChange()); err != nil {
			return nil, transfer.ToWire(err)
		}
	}
	refused := p.assembler.Statuses()
	if !g.Unchanged() {
		if _, call.delta, refused, err = g.Commit(); err != nil {
			return nil, transfer.ToWire(err)
		}
		g.Accept()
	}
	if s.f.err != nil {
		return nil, transfer.ToWire(s.f.err)
	}
	response := transfer.EncodeResult(p.assembler.Applied().Generation, dataplane.Result{Statuses: append(refused, s.f.statuses...)})
	if s.f.answer != 0 {
		response.Generation = s.f.answer
	}
	return response, nil
}

// rig is a loop that serves a provider in virtual time.
type rig struct {
	t     *testing.T
	views *views
	p     *provider
	loop  *reconcile.Loop
	log   *bytes.Buffer
	stop  func() error
}

func inBubble(t *testing.T, c view.Completeness, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, views: newViews(c), p: newProvider(), log: &bytes.Buffer{}}
		r.loop = reconcile.New(reconcile.Config{
			Provider: "fake", Session: session(), Views: r.views, Log: slog.New(slog.NewTextHandler(&lockedWriter{w: r.log}, nil)),
		})
		f(r)
		if r.stop != nil {
			if err := r.stop(); err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// serve connects the provider; disconnect it with the function returned.
func (r *rig) serve() (lose func() error) {
	lost := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- r.loop.Serve(context.Background(), r.p, lost) }()
	r.stop = sync.OnceValue(func() error {
		close(lost)
		return <-done
	})
	synctest.Wait()
	return r.stop
}

// pass lets virtual time pass.
func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// same fails unless the provider has what the view says.
func (r *rig) same() {
	r.t.Helper()
	want, got := reconcile.Project(r.views.Latest()), r.p.given()
	if d := dataplane.Diff(got, want, nil); len(d.Changes) != 0 {
		r.t.Fatalf("the provider differs from the view in %d services, the first is %v\n%s", len(d.Changes), d.Changes[0].Key(), r.log)
	}
	if st := r.loop.Status(); st.Epoch != r.views.Latest().Epoch || st.Error != nil {
		r.t.Fatalf("status %+v, want epoch %d without an error", st, r.views.Latest().Epoch)
	}
}

func (r *rig) kinds() (out []string) {
	for _, c := range r.p.history() {
		out = append(out, c.kind)
	}
	return out
}

// push lets another run of the agent serve the provider until it has the view.
func push(t *testing.T, p *provider, v *views, s dataplane.Session) {
	t.Helper()
	lost := make(chan struct{})
	done := make(chan error, 1)
	loop := reconcile.New(reconcile.Config{Provider: "fake", Session: s, Views: v})
	go func() { done <- loop.Serve(context.Background(), p, lost) }()
	synctest.Wait()
	close(lost)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.assembler.Given().Len() != v.latest.Len() {
		t.Fatal("nothing arrived")
	}
	p.calls = nil
}
