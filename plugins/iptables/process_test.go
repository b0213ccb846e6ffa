package iptables

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/callers"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// process is the provider as a process, with a host that can be told to kill it.
type process struct {
	t      *testing.T
	path   string
	config dataplane.Config
	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	client pb.DataPlaneProviderClient
	starts int
	node   *netns.Node // nil: the network of the tests
	cgroup string      // of a process on a node
}

func startProcess(t *testing.T, path string, v host.Variant) *process {
	t.Helper()
	netns.Isolated(t)
	text, err := json.Marshal(settings{Variant: string(v)})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, path: path, config: dataplane.Config{JSON: text, InstanceID: "test." + t.Name(), StateDir: t.TempDir()}}
	p.start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if _, err := p.client.Cleanup(ctx, transfer.EncodeCleanup(dataplane.CleanupOptions{InstanceID: p.config.InstanceID})); err != nil {
			t.Error(err)
		}
		p.kill()
	})
	return p
}

// start starts the process, and configures it.
func (p *process) start() {
	p.t.Helper()
	p.starts++
	socket := filepath.Join(filepath.Dir(p.path), fmt.Sprint("s", p.starts))
	_ = os.Remove(socket)
	if p.node != nil {
		p.node.Start("sh", append(inCgroup(p.cgroup), p.path, "--listen", "unix:"+socket))
	} else {
		p.cmd = exec.Command(p.path, "--listen", "unix:"+socket)
		p.cmd.Stderr = os.Stderr
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := p.cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
	}
	netns.Eventually(p.t, await.Patience, func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, "the provider to listen")
	var err error
	if p.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		p.t.Fatal(err)
	}
	p.client = pb.NewDataPlaneProviderClient(p.conn)
	if _, err := p.client.Configure(p.t.Context(), transfer.EncodeConfig(p.config)); err != nil {
		p.t.Fatal(err)
	}
}

// inCgroup are arguments of a shell that runs the command behind them in a cgroup.
func inCgroup(dir string) []string {
	return []string{"-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, dir}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.conn.Close()
}

// apply sends a whole snapshot.
func (p *process) apply(s *dataplane.Snapshot) *pb.ReconcileResponse {
	p.t.Helper()
	stream, err := p.client.Reconcile(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(s, 0, true)}})
	for c := range transfer.NewEncoder().Snapshot(s) {
		_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}})
	}
	_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
	r, err := stream.CloseAndRecv()
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// startCallers connects 200 times a second; anybody but who has one of the words is a
// failure.
func startCallers(addr string, words ...string) *callers.Callers {
	return callers.Start(2, 10*time.Millisecond, func() error {
		got, err := ask(addr)
		if err == nil && !slices.Contains(words, got) {
			err = fmt.Errorf("%q answers", got)
		}
		return err
	})
}

// TestKilledUnderLoad: kill -9 and restart, again and again, also while generations
// come that move the service from one endpoint to another: no connect fails, and the
// next process knows what is applied.
func TestKilledUnderLoad(t *testing.T) {
	path := build(t)
	eachVariant(t, func(t *testing.T, v host.Variant) {
		p := startProcess(t, path, v)
		w := &world{t: t, now: &dataplane.Snapshot{}}
		a, b := listenTCP(t, "127.0.0.1:0", "a"), listenTCP(t, "127.0.0.1:0", "b")
		front := vip("10.200.5.1:80", dataplane.TCP)
		w.now = w.snapshot(service("a", front, a))
		p.apply(w.now)
		load := startCallers("10.200.5.1:80", "a", "b")
		for n := range scale.N(20) {
			if n%2 == 0 {
				p.kill()
			} else {
				done := make(chan struct{})
				next := w.snapshot(service("a", front, b))
				go func() { // killed while it applies; what it answers does not matter
					defer close(done)
					if stream, err := p.client.Reconcile(context.Background()); err == nil {
						_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(next, 0, true)}})
						for c := range transfer.NewEncoder().Snapshot(next) {
							_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}})
						}
						_ = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
						_, _ = stream.CloseAndRecv()
					}
				}()
				<-time.After(time.Duration(n) * time.Millisecond) // somewhere in it
				p.kill()
				<-done
				w.now = next
			}
			was := load.Count()
			netns.Eventually(t, await.Patience, func() bool { return load.Count() > was+5 }, "connects without a provider")
			p.start()
			st, err := p.client.State(t.Context(), &pb.StateRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 && st.GetGeneration() != w.now.Generation {
				t.Fatalf("after a restart State says %v, applied is %d", st, w.now.Generation)
			}
			w.now = w.snapshot(service("a", front, a))
			p.apply(w.now)
		}
		load.Stop(t)
	})
}
