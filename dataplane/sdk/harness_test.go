package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/transcript"
)

// TestMain is also the main of the providers that tests start as processes.
func TestMain(m *testing.M) {
	if kind := os.Getenv(envKind); kind != "" {
		syscall.Exit(serveKind(kind)) // os.Exit, under the race detector, first waits a second for races
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// spy is the fake with some methods replaced.
type spy struct {
	*fake.Provider
	info      *dataplane.Info
	probe     func(context.Context) (dataplane.Report, error)
	configure func(context.Context, dataplane.Config) ([]dataplane.Diagnostic, error)
	reconcile func(context.Context, *dataplane.Snapshot, dataplane.Delta) (dataplane.Result, error)
	health    func(context.Context) dataplane.Health
	state     func(context.Context) (dataplane.State, error)
	cleanup   func(context.Context, dataplane.CleanupOptions) ([]dataplane.CleanupItem, error)
	shutdown  func(context.Context, dataplane.ShutdownPolicy) error
	watch     func(context.Context, *dataplane.FlowOptions, func(dataplane.Event)) error
	stats     func(context.Context, func(dataplane.Counter) bool) error
	drain     func(context.Context, time.Time, func(dataplane.DrainProgress)) error
}

func (s *spy) Info() dataplane.Info {
	if s.info != nil {
		return *s.info
	}
	return s.Provider.Info()
}

func (s *spy) Probe(ctx context.Context) (dataplane.Report, error) {
	if s.probe != nil {
		return s.probe(ctx)
	}
	return s.Provider.Probe(ctx)
}

func (s *spy) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	if s.configure != nil {
		return s.configure(ctx, c)
	}
	return s.Provider.Configure(ctx, c)
}

func (s *spy) Reconcile(ctx context.Context, next *dataplane.Snapshot, d dataplane.Delta) (dataplane.Result, error) {
	if s.reconcile != nil {
		return s.reconcile(ctx, next, d)
	}
	return s.Provider.Reconcile(ctx, next, d)
}

func (s *spy) Health(ctx context.Context) dataplane.Health {
	if s.health != nil {
		return s.health(ctx)
	}
	return s.Provider.Health(ctx)
}

func (s *spy) State(ctx context.Context) (dataplane.State, error) {
	if s.state != nil {
		return s.state(ctx)
	}
	return s.Provider.State(ctx)
}

func (s *spy) Cleanup(ctx context.Context, o dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	if s.cleanup != nil {
		return s.cleanup(ctx, o)
	}
	return s.Provider.Cleanup(ctx, o)
}

func (s *spy) Shutdown(ctx context.Context, p dataplane.ShutdownPolicy) error {
	if s.shutdown != nil {
		return s.shutdown(ctx, p)
	}
	return s.Provider.Shutdown(ctx, p)
}

func (s *spy) Watch(ctx context.Context, f *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	if s.watch != nil {
		return s.watch(ctx, f, emit)
	}
	return s.Provider.Watch(ctx, f, emit)
}

func (s *spy) Stats(ctx context.Context, yield func(dataplane.Counter) bool) error {
	if s.stats != nil {
		return s.stats(ctx, yield)
	}
	return s.Provider.Stats(ctx, yield)
}

func (s *spy) Drain(ctx context.Context, deadline time.Time, progress func(dataplane.DrainProgress)) error {
	if s.drain != nil {
		return s.drain(ctx, deadline, progress)
	}
	return s.Provider.Drain(ctx, deadline, progress)
}

// bare is a provider without optional interfaces.
type bare struct{ dataplane.Provider }

// host speaks to a service over gRPC.
type host struct {
	t *testing.T
	pb.DataPlaneProviderClient
	service *Service
	encoder *transfer.Encoder
	log     *buffer

	controller func() error // go-plugin's Shutdown
}

// serve puts a service in front of p and returns a host.
func serve(t *testing.T, p dataplane.Provider) *host {
	t.Helper()
	log := &buffer{}
	service, err := NewService(p, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(handshake.MaxReceiveBytes), grpc.ForceServerCodecV2(transfer.Codec()))
	pb.RegisterDataPlaneProviderServer(server, service)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	conn := dialWith(t, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
	t.Cleanup(func() {
		service.Close()
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return &host{t: t, DataPlaneProviderClient: pb.NewDataPlaneProviderClient(conn), service: service, encoder: transfer.NewEncoder(), log: log}
}

func dialWith(t *testing.T, dial func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///provider", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// configured is serve with a first Configure.
func configured(t *testing.T, p dataplane.Provider) *host {
	t.Helper()
	h := serve(t, p)
	h.configure("i1", "")
	return h
}

func (h *host) configure(instance, json string) {
	h.t.Helper()
	if _, err := h.Configure(h.t.Context(), &pb.ConfigureRequest{InstanceId: instance, Config: []byte(json)}); err != nil {
		h.t.Fatal(err)
	}
}

// send is one call of Reconcile with these steps; its error is the contract's.
func (h *host) send(ctx context.Context, steps ...*pb.ReconcileRequest) (*pb.ReconcileResponse, error) {
	stream, err := h.Reconcile(ctx)
	if err != nil {
		return nil, transfer.FromWire(err)
	}
	for _, step := range steps {
		if err := stream.Send(step); err != nil {
			break // the status comes with the answer
		}
	}
	r, err := stream.CloseAndRecv()
	return r, transfer.FromWire(err)
}

// snapshot sends s whole.
func (h *host) snapshot(s *dataplane.Snapshot, allowEmpty bool) (*pb.ReconcileResponse, error) {
	steps := []*pb.ReconcileRequest{begin(transfer.Begin(s, 0, allowEmpty))}
	for c := range h.encoder.Snapshot(s) {
		steps = append(steps, changes(c))
	}
	return h.send(h.t.Context(), append(steps, commit())...)
}

// delta sends what is different between two snapshots.
func (h *host) delta(from, to *dataplane.Snapshot) (*pb.ReconcileResponse, error) {
	steps := []*pb.ReconcileRequest{begin(transfer.Begin(to, from.Generation, false))}
	for c := range h.encoder.Delta(dataplane.Diff(from, to, nil)) {
		steps = append(steps, changes(c))
	}
	return h.send(h.t.Context(), append(steps, commit())...)
}

// tick says that s is unchanged.
func (h *host) tick(s *dataplane.Snapshot) (*pb.ReconcileResponse, error) {
	return h.send(h.t.Context(), begin(transfer.Begin(s, s.Generation, false)), commit())
}

func begin(b *pb.Begin) *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: b}}
}

func changes(c *pb.Change) *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}}
}

func commit() *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}
}

// gen makes a complete snapshot of agent a, boot 1.
func gen(generation uint64, services ...*dataplane.Service) *dataplane.Snapshot {
	s := (&dataplane.Snapshot{
		Session: dataplane.Session{AgentID: "a", BootEpoch: 1}, Generation: generation,
		Digest: fmt.Append(nil, "digest", generation), Completeness: dataplane.Exchanged,
	}).Edit()
	for _, svc := range services {
		s.Set(svc)
	}
	return s.Done()
}

// svc makes a service with its VIP at 10.200.0.n and endpoints at these ports.
func svc(name string, n byte, ports ...uint16) *dataplane.Service {
	s := &dataplane.Service{
		Key: dataplane.Key{Namespace: "default", Name: name},
		Frontends: []dataplane.Frontend{{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 0, n}), 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP,
		}},
	}
	var list []dataplane.Endpoint
	for _, p := range ports {
		list = append(list, dataplane.Endpoint{ID: uint64(p), Name: fmt.Sprint(name, p), Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p), Weight: 1})
	}
	s.Endpoints = dataplane.NewEndpoints(list...)
	return s
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			buf := make([]byte, 1<<16)
			t.Fatalf("%s did not happen in %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
		case <-tick.C:
		}
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come in %v", what, patience)
	}
	panic("not reached")
}

// buffer is an output that conditions ask.
type buffer struct{ transcript.Buffer }

func (b *buffer) has(s string) func() bool {
	return func() bool { return strings.Contains(b.String(), s) }
}

var _ io.Writer = (*buffer)(nil)

func deadlineOf(d time.Duration) *pb.DrainRequest {
	return &pb.DrainRequest{Deadline: durationpb.New(d)}
}

func begin1() *pb.ReconcileRequest { return begin(transfer.Begin(gen(1), 0, true)) }
