package l4

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance/internal/process"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const (
	startTime = 15 * time.Second // until a provider answers
	stopTime  = 5 * time.Second  // until it ended after SIGTERM
)

// provider is the process under test and the session with it. It stays the same
// over restarts of the process.
type provider struct {
	target   Target
	space    *space
	dir      string // sockets are in it
	config   dataplane.Config
	patience time.Duration

	starts int
	proc   *process.Process // nil: none is there
	conn   *grpc.ClientConn
	client pb.DataPlaneProviderClient
	info   dataplane.Info

	encoder *transfer.Encoder
	now     *dataplane.Snapshot // what it was told last
	base    uint64              // the generation that it has; 0: it wants a snapshot
	told    uint64              // the last generation that was sent
}

// start starts the process and asks who it is.
func (p *provider) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	p.starts++
	socket := filepath.Join(p.dir, "s"+strconv.Itoa(p.starts))
	proc := process.New(p.target.Exec, append(slices.Clone(p.target.Args), "--listen", "unix:"+socket), p.target.Env)
	proc.Cmd.Stdout, proc.Cmd.Stderr = &proc.Out, &proc.Out
	proc.Cmd.WaitDelay = time.Second // for children of its own that keep its output open
	if err := p.space.start(proc.Cmd); err != nil {
		return fmt.Errorf("l4: cannot start %s: %w", p.target.Exec, err)
	}
	proc.Reap()
	p.proc = proc
	err := proc.Listening(ctx, socket)
	if err == nil {
		p.conn, err = process.Dial(socket)
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("l4: %w", err)
	}
	p.client = pb.NewDataPlaneProviderClient(p.conn)
	info, err := p.client.Info(ctx, &pb.InfoRequest{})
	if err != nil {
		return fmt.Errorf("l4: %s does not answer Info: %w", p.target.Exec, err)
	}
	p.info = transfer.DecodeInfo(info)
	return nil
}

// configure tells the process its configuration. A process that does not know
// what it was told gets a snapshot next.
func (p *provider) configure(ctx context.Context) error {
	if _, err := p.client.Configure(ctx, transfer.EncodeConfig(p.config)); err != nil {
		return fmt.Errorf("the call Configure with %s: %w", p.config.JSON, transfer.FromWire(err))
	}
	st, err := p.client.State(ctx, &pb.StateRequest{})
	if err != nil {
		return fmt.Errorf("the call State: %w", transfer.FromWire(err))
	}
	if p.base = 0; st.GetGeneration() == p.now.Generation && st.GetSession().GetBootEpoch() == p.now.Session.BootEpoch {
		p.base = st.GetGeneration()
	}
	return nil
}

// session begins another one: the provider is told everything anew.
func (p *provider) session(boot uint64) {
	p.encoder = transfer.NewEncoder()
	p.now = &dataplane.Snapshot{Session: dataplane.Session{AgentID: "traffic", BootEpoch: boot}}
	p.base, p.told = 0, 0
}

// apply makes the world just these services. Statuses are of those that are not
// simply programmed.
func (p *provider) apply(ctx context.Context, reason func(dataplane.Key, dataplane.Endpoint) dataplane.Removal, services []*dataplane.Service) ([]dataplane.ServiceStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	e := (&dataplane.Snapshot{}).Edit()
	for _, svc := range services {
		if problem := svc.Check(); problem != nil {
			return nil, fmt.Errorf("l4: the suite made a service that is wrong: %s: %s", svc.Key, problem.Message)
		}
		if old := p.now.Service(svc.Key); old != nil {
			if _, changed := dataplane.Compare(old, svc, nil); !changed {
				svc = old
			}
		}
		e.Set(svc)
	}
	next := e.Done()
	p.told++
	next.Session, next.Generation, next.Completeness = p.now.Session, p.told, dataplane.Exchanged
	next.Digest = fmt.Appendf(nil, "%08d", p.told)
	r, err := p.reconcile(ctx, next, reason)
	if errors.Is(err, dataplane.ErrBaseMismatch) && p.base != 0 {
		p.base = 0
		r, err = p.reconcile(ctx, next, reason)
	}
	if err != nil {
		return nil, fmt.Errorf("the call Reconcile: %w", err)
	}
	p.now, p.base = next, next.Generation
	var statuses []dataplane.ServiceStatus
	for _, st := range r.Statuses {
		if st.Status != dataplane.StatusProgrammed {
			statuses = append(statuses, st)
		}
	}
	return statuses, nil
}

func (p *provider) reconcile(ctx context.Context, next *dataplane.Snapshot, reason func(dataplane.Key, dataplane.Endpoint) dataplane.Removal) (dataplane.Result, error) {
	stream, err := p.client.Reconcile(ctx)
	if err != nil {
		return dataplane.Result{}, transfer.FromWire(err)
	}
	changes := p.encoder.Snapshot(next)
	if p.base != 0 {
		changes = p.encoder.Delta(dataplane.Diff(p.now, next, reason))
	}
	send := func(m *pb.ReconcileRequest) bool { return stream.Send(m) == nil } // CloseAndRecv says why not
	more := send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(next, p.base, true)}})
	for c := range changes {
		more = more && send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}})
	}
	if more {
		send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return dataplane.Result{}, transfer.FromWire(err)
	}
	_, r := transfer.DecodeResult(answer)
	return r, nil
}

// unchanged is the sign of life that an agent gives once a second.
func (p *provider) unchanged(ctx context.Context) error {
	stream, err := p.client.Reconcile(ctx)
	if err != nil {
		return transfer.FromWire(err)
	}
	_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(p.now, p.now.Generation, true)}})
	_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
	if _, err := stream.CloseAndRecv(); err != nil { // which tells also why Send failed
		return fmt.Errorf("an unchanged generation: %w", transfer.FromWire(err))
	}
	return nil
}

func (p *provider) health(ctx context.Context) (dataplane.Health, error) {
	h, err := p.client.Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return dataplane.Health{}, fmt.Errorf("the call Health: %w", transfer.FromWire(err))
	}
	return transfer.DecodeHealth(h), nil
}

// gauges is the number of endpoints of each service in the system; nil if the
// provider does not tell.
func (p *provider) gauges(ctx context.Context) (map[dataplane.Key]int, error) {
	stream, err := p.client.Stats(ctx, &pb.StatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("the call Stats: %w", transfer.FromWire(err))
	}
	var out map[dataplane.Key]int
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err = transfer.FromWire(err); errors.Is(err, dataplane.ErrUnsupported) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("the call Stats: %w", err)
		}
		for _, counter := range m.GetCounters() {
			c := transfer.DecodeCounter(counter)
			if dataplane.IsGauge(c.Name) && out == nil {
				out = make(map[dataplane.Key]int)
			}
			if c.Name == dataplane.GaugeEndpoints {
				out[c.Service] = int(c.Value)
			}
		}
	}
}

func (p *provider) cleanup(ctx context.Context) error {
	r, err := p.client.Cleanup(ctx, transfer.EncodeCleanup(dataplane.CleanupOptions{InstanceID: p.config.InstanceID}))
	if err != nil {
		return fmt.Errorf("the call Cleanup: %w", transfer.FromWire(err))
	}
	for _, item := range transfer.DecodeCleanupItems(r) {
		if item.Result == dataplane.Failed {
			err = errors.Join(err, fmt.Errorf("after Cleanup there is still %s: %s", item.Object, item.Message))
		}
	}
	return err
}

// stop ends the process as an agent does that wants all to stay.
func (p *provider) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	_, err := p.client.Shutdown(ctx, &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP})
	_ = p.proc.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.proc.Exited:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("%v after Shutdown and SIGTERM it still runs", stopTime))
	}
	p.kill()
	return err
}

// kill ends the process at once, with its children.
func (p *provider) kill() {
	if p.proc == nil {
		return
	}
	p.proc.Kill()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.proc, p.conn = nil, nil
}

func (p *provider) running() bool { return p.proc != nil && p.proc.Running() }

// lastWords are those of a process that ended by itself.
func (p *provider) lastWords() string {
	if p.proc == nil || p.proc.Running() {
		return ""
	}
	return p.proc.Out.String()
}
