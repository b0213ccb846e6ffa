package ebpf

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
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
}

func startProcess(t *testing.T) *process {
	t.Helper()
	path := build(t)
	text, err := json.Marshal(settings{Cgroup: netns.Isolated(t)})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, path: path, config: dataplane.Config{JSON: text, InstanceID: "test." + t.Name()}}
	p.start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	p.cmd = exec.Command(p.path, "--listen", "unix:"+socket)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	netns.Eventually(p.t, patience, func() bool {
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

func (p *process) state() *pb.StateResponse {
	p.t.Helper()
	s, err := p.client.State(p.t.Context(), &pb.StateRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func snapshot(generation uint64, services ...*dataplane.Service) *dataplane.Snapshot {
	e := (&dataplane.Snapshot{}).Edit()
	for _, svc := range services {
		e.Set(svc)
	}
	s := e.Done()
	s.Session = dataplane.Session{AgentID: "test", BootEpoch: 1}
	s.Generation, s.Digest, s.Completeness = generation, []byte{byte(generation)}, dataplane.Exchanged
	return s
}

// startCallers connects 500 times a second; anybody but a is a failure.
func startCallers(addr string) *callers.Callers {
	return callers.Start(2, 4*time.Millisecond, func() error {
		got, err := ask("tcp", addr)
		if err == nil && got != "a" {
			err = fmt.Errorf("%q answers", got)
		}
		return err
	})
}

// TestKilledUnderLoad: kill -9 and restart, again and again: no connect fails, the
// next process knows what is applied, and the hooks are attached once.
func TestKilledUnderLoad(t *testing.T) {
	p := startProcess(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	s := snapshot(3, service("a", vip("10.200.5.1:80", dataplane.TCP), endpoint))
	p.apply(s)
	load := startCallers("10.200.5.1:80")
	for range scale.N(30) {
		p.kill()
		was := load.Count()
		netns.Eventually(t, patience, func() bool { return load.Count() > was+20 }, "connects without a provider")
		p.start()
		if st := p.state(); st.GetGeneration() != 3 || string(st.GetDigest()) != string(s.Digest) || !st.GetComplete() {
			t.Fatalf("after a restart State says %v", st)
		}
		if n := attached(t); n != 1 {
			t.Fatalf("%d programs are attached at connect4", n)
		}
	}
	// A snapshot that says the same changes nothing, also in the next process.
	again := snapshot(4, service("a", vip("10.200.5.1:80", dataplane.TCP), endpoint))
	if r := p.apply(again); r.GetOperations() != 0 {
		t.Errorf("told the same, the new process made %d operations", r.GetOperations())
	}
	load.Stop(t)
}
