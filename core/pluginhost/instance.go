package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// Kind is how a provider came to us.
type Kind string

// The kinds.
const (
	KindChild Kind = "child" // we started it
	KindKept  Kind = "kept"  // an agent before us started it, and it served on
	KindAlone Kind = "alone" // it runs by itself; it is never ended
)

// instance is one life of a provider: a connection, and the process if it is
// ours.
type instance struct {
	name   string
	kind   Kind
	conn   *grpc.ClientConn
	client pb.DataPlaneProviderClient
	info   dataplane.Info
	socket string
	child  *child   // KindChild
	proc   *process // not KindAlone
	run    *runDir
	record record      // KindKept
	level  slog.Level  // that it was told; of the goroutine that configures it
	heard  atomic.Bool // something came from it since this was last cleared

	once  sync.Once
	lost  chan struct{} // closed when it is of no more use
	cause string        // why; valid once lost is closed
	ctx   context.Context
	end   context.CancelFunc
}

// lose declares it lost.
func (i *instance) lose(format string, args ...any) {
	i.once.Do(func() {
		i.cause = fmt.Sprintf(format, args...)
		close(i.lost)
	})
}

// connect asks who answers at a socket. On an error the connection is closed,
// the process not touched.
func connect(ctx context.Context, i *instance, socket string) error {
	conn, err := dial(i.name, socket, &i.heard)
	if err != nil {
		return err
	}
	i.conn, i.client, i.socket = conn, pb.NewDataPlaneProviderClient(conn), socket
	i.lost = make(chan struct{})
	i.ctx, i.end = context.WithCancel(context.Background())
	if err := i.identify(ctx); err != nil {
		i.disconnect()
		return err
	}
	go i.watch()
	return nil
}

func (i *instance) disconnect() {
	i.end()
	_ = i.conn.Close()
}

// identify asks for the Info, and compares it with what was asked for.
func (i *instance) identify(ctx context.Context) error {
	switch err := connected(ctx, i.conn, i.socket); {
	case i.child != nil && errors.Is(err, errEnded):
		return i.unheard()
	case err != nil:
		return fmt.Errorf("%s: %w", i.name, err)
	}
	answer, err := i.client.Info(ctx, &pb.InfoRequest{})
	if err != nil {
		return fmt.Errorf("%s does not answer Info: %w", i.name, i.fromWire(ctx, err))
	}
	i.info = transfer.DecodeInfo(answer)
	if err := handshake.CheckInfo(i.info); err != nil {
		return refuse(fmt.Sprintf("%s: its Info cannot be used: %v", i.name, err), "correct the plugin")
	}
	if i.info.Name != i.name {
		return refuse(fmt.Sprintf("the provider at the place of %s says that it is %s", i.name, i.info.Name),
			fmt.Sprintf("name its file %s%s, or configure the right socket", handshake.FilePrefix, i.info.Name))
	}
	if c := i.child; c != nil && c.image.manifest != nil && c.image.manifest.Version != i.info.Version {
		return refuse(fmt.Sprintf("%s says that it is version %s, and its manifest says %s", c.image.path, i.info.Version, c.image.manifest.Version),
			"install the manifest that belongs to it")
	}
	return nil
}

// unheard says why nobody listens where the handshake of a child said.
func (i *instance) unheard() error {
	if i.proc.ended(endTime) {
		return fmt.Errorf("%s: its process ended after the handshake: %s", i.name, i.proc.status)
	}
	return refuse(fmt.Sprintf("%s runs, and nobody listens at %s, which its handshake named", i.name, i.socket),
		"a plugin listens first, and then writes the handshake with the absolute path of its socket")
}

// fromWire is the error of a call.
func (i *instance) fromWire(ctx context.Context, err error) error {
	switch code := status.Code(err); {
	case code == codes.Unavailable && i.proc != nil && i.proc.ended(endTime):
		return &cutOffError{call: err, status: i.proc.status}
	case code == codes.Canceled && overdue(ctx):
		// The other side saw the deadline pass a moment before this one.
		return context.DeadlineExceeded
	}
	return transfer.FromWire(err)
}

// overdueTime is by how much two sides may differ in when a deadline is.
const overdueTime = 100 * time.Millisecond

// overdue reports whether the time of a call is over, or will be in a moment.
func overdue(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < overdueTime && !errors.Is(ctx.Err(), context.Canceled)
}

// cutOffError is that of a call that ended with the process. It says how that
// ended: the connection tells no more than that it broke.
type cutOffError struct {
	call   error
	status string
}

func (e *cutOffError) Error() string { return "its process ended: " + e.status }
func (e *cutOffError) Unwrap() error { return e.call }

// endTime is how long a process that no longer serves may take to end. The SDK
// needs 0.6 s to write its last words if nobody were to read them.
const endTime = time.Second

// watch declares the instance lost when its process ends or its connection
// breaks.
func (i *instance) watch() {
	if i.proc != nil {
		go func() {
			select {
			case <-i.proc.exited:
				i.lose("its process ended: %s", i.proc.status)
			case <-i.ctx.Done():
			}
		}()
	}
	broken(i.ctx, i.conn)
	if i.ctx.Err() != nil {
		return
	}
	// The end of a process closes its connection: wait for its last words, and
	// for the better of two explanations.
	if i.proc == nil || !i.proc.ended(endTime) {
		i.lose("its connection broke")
	}
}

// beat asks whether the process answers, until the instance is lost. It calls
// missed for each answer that does not come in time. While anything comes from
// the process, such as the answers to a loop that ticks each second, it does
// not ask: a question costs two processes a dozen wake-ups.
func (i *instance) beat(t Timing, missed func()) {
	tick := time.NewTicker(t.Health)
	defer tick.Stop()
	i.beatAt(tick.C, t, missed)
}

// beatAt is beat with its clock.
func (i *instance) beatAt(ticks <-chan time.Time, t Timing, missed func()) {
	client := healthpb.NewHealthClient(i.conn)
	misses := 0
	for {
		select {
		case <-i.ctx.Done():
			return
		case <-i.lost:
			return
		case <-ticks:
		}
		if i.heard.Swap(false) && misses == 0 { // after a miss only an answer counts
			continue
		}
		ctx, cancel := context.WithTimeout(i.ctx, t.Answer)
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: handshake.HealthService})
		cancel()
		// Any answer is one, also that there is no such service.
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
			misses = 0
			i.heard.Store(false) // the answer itself is no reason to skip the next question
			continue
		}
		if i.ctx.Err() != nil {
			return
		}
		missed()
		if misses++; misses >= t.Misses {
			i.lose("it does not answer: %d times no reply to a health check within %v", misses, t.Answer)
			return
		}
	}
}

// dataPath asks for the health of the data path.
func (i *instance) dataPath(ctx context.Context) (dataplane.Health, error) {
	h, err := i.client.Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return dataplane.Health{}, transfer.FromWire(err)
	}
	return transfer.DecodeHealth(h), nil
}

// probe runs the provider's own test.
func (i *instance) probe(ctx context.Context) (dataplane.Report, error) {
	r, err := i.client.Probe(ctx, &pb.ProbeRequest{})
	if err != nil {
		return dataplane.Report{}, fmt.Errorf("%s: probe: %w", i.name, i.fromWire(ctx, err))
	}
	report := transfer.DecodeReport(r)
	if report.Verdict.String() == "" || !slices.Contains(verdicts(), report.Verdict) {
		report.Verdict = dataplane.Inconclusive
	}
	return report, nil
}

func verdicts() []dataplane.Verdict {
	return []dataplane.Verdict{dataplane.Supported, dataplane.Degraded, dataplane.Unsupported, dataplane.Inconclusive}
}

// cleanup removes, or names, what the provider has in the system.
func (i *instance) cleanup(ctx context.Context, patience time.Duration, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := i.client.Cleanup(ctx, transfer.EncodeCleanup(what))
	if err != nil {
		return nil, fmt.Errorf("%s: cleanup: %w", i.name, i.fromWire(ctx, err))
	}
	return transfer.DecodeCleanupItems(answer), nil
}

// running reports whether the process is there, or the connection to one that is
// not ours.
func (i *instance) running() bool {
	if i.proc != nil {
		return !i.proc.ended(0)
	}
	state := i.conn.GetState()
	return state != connectivity.TransientFailure && state != connectivity.Shutdown
}

// leave lets go of an instance without ending its process.
func (i *instance) leave() {
	i.disconnect()
	i.lose("the agent stops")
	if i.proc != nil {
		i.proc.release()
	}
	if i.child != nil {
		_ = i.child.host.Close()
	}
}

// stop ends an instance in a bounded time: it asks, it insists, it kills. What
// is programmed stays. Of a provider that runs by itself it lets go.
func (i *instance) stop(t Timing) {
	defer i.lose("it was stopped")
	defer i.disconnect()
	if i.proc == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.Shutdown)
	_, err := i.client.Shutdown(ctx, &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP})
	cancel()
	if err == nil && i.proc.ended(t.Exit) {
		i.forget()
		return
	}
	i.proc.signal(syscall.SIGTERM)
	if !i.proc.ended(t.Terminate) {
		i.proc.kill()
	}
	<-i.proc.exited
	i.forget()
}

// kill ends the process, if it is ours, of an instance that is of no use.
func (i *instance) kill() {
	i.disconnect()
	if i.proc == nil {
		return
	}
	i.proc.kill()
	<-i.proc.exited
	i.forget()
}

func (i *instance) forget() {
	if i.child != nil {
		<-i.child.drained
		i.child.forget()
		return
	}
	i.run.forget(i.record)
}

// path is that of its program, empty if that is not known.
func (i *instance) path() string {
	if i.child != nil {
		return i.child.image.path
	}
	return ""
}

// words returns the last that its process wrote.
func (i *instance) words() []string {
	switch {
	case i.child != nil:
		return i.child.words()
	case i.kind == KindKept:
		return tail(logPath(i.run, i.name), lastWords)
	}
	return nil
}

// errNotThere: nobody answers at a socket.
var errNotThere = errors.New("nobody answers")

// errEnded: somebody did a moment before.
var errEnded = errors.New("who listened there has ended")

// adopt connects to a provider that is there already: at a socket that was
// configured, or at the one of the run directory. A process is ours if the
// record of its start is about the one that listens.
func adopt(parent context.Context, patience time.Duration, name, socket string, run *runDir) (*instance, error) {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	notThere := func(why error) error {
		return fmt.Errorf("%w at %s: %w; start the provider, or take plugins.%s.%s out of the configuration", errNotThere, socket, why, name, keySocket)
	}
	pid, err := servedBy(ctx, socket)
	if err != nil {
		return nil, notThere(err)
	}
	i := &instance{name: name, kind: KindAlone, run: run}
	if rec, ok := readRecord(run.path, name); ok && rec.PID == pid && rec.Serve && rec.Socket == socket {
		if i.proc = rec.process(); i.proc != nil {
			i.kind, i.record = KindKept, rec
		}
	}
	err = connect(ctx, i, socket)
	if err == nil {
		return i, nil
	}
	switch {
	case i.proc == nil && errors.Is(err, errEnded):
		err = notThere(errEnded)
	case i.proc == nil:
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) {
			err = fmt.Errorf("%s: %w; see what listens there, or correct plugins.%s.%s", socket, err, name, keySocket)
		}
	case parent.Err() != nil:
		i.proc.release()
	default: // ours, and of no use: the next start is a new one
		i.proc.kill()
		<-i.proc.exited
		i.forget()
	}
	return nil, err
}

// sweep ends children that an agent before us left and that are not wanted:
// those that should have ended with it, or served on for nobody. They had their time; a process that merely has the number is not
// touched.
func sweep(run *runDir, wanted func(record) bool, patience time.Duration) (ended []string) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, rec := range run.leftovers() {
		proc := rec.process()
		switch {
		case proc == nil:
			run.forget(rec)
			continue
		case wanted(rec):
			proc.release()
			continue
		}
		ended = append(ended, rec.Name)
		all.Go(func() {
			proc.end(patience)
			run.forget(rec)
		})
	}
	return ended
}
