package l4

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/netns"
)

// processPlane is a data plane that works in the background: a process of its own, in
// the network namespace of its seat.
type processPlane struct {
	path     string // of its program
	settings map[string]any
}

func (p processPlane) name() string { return filepath.Base(p.path) }

func (p processPlane) enter(t *testing.T, seat string) (dataplane.Provider, costs) {
	t.Helper()
	ownNamespace(t)
	dir, err := os.MkdirTemp("", "fl-") // with room for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	r := &remote{cmd: exec.Command(p.path, "--listen", "unix:"+socket), encoder: transfer.NewEncoder()}
	r.cmd.Stderr = &r.said
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with the thread of the seat
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(t) })
	netns.Eventually(t, time.Minute, func() bool { _, err := os.Stat(socket); return err == nil }, "%s to listen", p.name())
	if r.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	r.client = pb.NewDataPlaneProviderClient(r.conn)
	settings, err := json.Marshal(p.settings)
	if err != nil {
		t.Fatal(err)
	}
	r.instance = seat
	c := dataplane.Config{JSON: settings, InstanceID: seat, StateDir: dir, RunDir: dir}
	if _, err := r.client.Configure(t.Context(), transfer.EncodeConfig(c), grpc.WaitForReady(true)); err != nil {
		t.Fatalf("%v\n%s", err, r.said.String())
	}
	return r, nil
}

// remote is a provider in a process. It implements what the benchmark calls.
type remote struct {
	dataplane.Provider
	cmd      *exec.Cmd
	said     output
	conn     *grpc.ClientConn
	client   pb.DataPlaneProviderClient
	encoder  *transfer.Encoder
	instance string
	base     uint64 // generation that it has; 0: none
}

// Reconcile gives it a generation, as an agent does.
func (r *remote) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	stream, err := r.client.Reconcile(ctx)
	if err != nil {
		return dataplane.Result{}, err
	}
	changes := r.encoder.Delta(delta)
	if r.base == 0 {
		changes = r.encoder.Snapshot(next)
	}
	err = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(next, r.base, false)}})
	for c := range changes {
		if err != nil {
			break // CloseAndRecv says why
		}
		err = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}})
	}
	if err == nil {
		err = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
	}
	answer, e := stream.CloseAndRecv()
	if e != nil {
		return dataplane.Result{}, errors.Join(err, e)
	}
	var result dataplane.Result
	r.base, result = transfer.DecodeResult(answer)
	return result, nil
}

// reset makes it one that has nothing.
func (r *remote) reset(ctx context.Context) error {
	answer, err := r.client.Cleanup(ctx, transfer.EncodeCleanup(dataplane.CleanupOptions{InstanceID: r.instance}))
	if err != nil {
		return err
	}
	for _, i := range transfer.DecodeCleanupItems(answer) {
		if i.Result != dataplane.Removed {
			return fmt.Errorf("cleanup: %+v", i)
		}
	}
	r.base = 0
	return nil
}

// Shutdown has nothing to remove: the namespace ends with its thread.
func (r *remote) Shutdown(context.Context, dataplane.ShutdownPolicy) error { return nil }

func (r *remote) end(t *testing.T) {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	if t.Failed() {
		t.Log(r.said.String())
	}
}

// output is what a process says.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// compile builds the program of a data plane, of the module in dir.
func compile(t *testing.T, name, dir, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-C", dir, "-trimpath", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}
