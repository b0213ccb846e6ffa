package conformance_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/short"
)

// build compiles packages into one directory and returns it.
func build(t *testing.T, dir string, packages ...string) string {
	t.Helper()
	out := short.Dir(t)
	cmd := exec.Command("go", append([]string{"build", "-o", out + "/"}, packages...)...)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return out
}

// serve serves a provider in this process and returns its endpoint.
func serve(t *testing.T, p dataplane.Provider) string {
	t.Helper()
	service, err := sdk.NewService(p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(short.Dir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(handshake.MaxReceiveBytes))
	pb.RegisterDataPlaneProviderServer(server, service)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		service.Close()
		server.Stop()
		<-done
	})
	return "unix:" + path
}

func options() conformance.Options {
	return conformance.Options{Services: scale.N(10_000), Reconciles: scale.N(2_000)}
}

func TestFakeAsEndpoint(t *testing.T) {
	conformance.TestWith(t, conformance.Target{Endpoint: serve(t, fake.New())}, options())
}

// A provider that runs by itself has its instance id again in the end.
func TestEndpointIsGivenBack(t *testing.T) {
	endpoint := serve(t, fake.New())
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewDataPlaneProviderClient(conn)
	if _, err := client.Configure(t.Context(), &pb.ConfigureRequest{InstanceId: "mine"}); err != nil {
		t.Fatal(err)
	}
	report := conformance.Run(t.Context(), conformance.Target{Endpoint: endpoint}, conformance.Options{Only: []string{"reconcile.programs"}})
	if !report.OK() {
		t.Fatalf("%+v", report)
	}
	st, err := client.State(t.Context(), &pb.StateRequest{})
	if err != nil || st.GetInstanceId() != "mine" || st.GetGeneration() != 0 {
		t.Errorf("it is left with %v, %v", st, err)
	}
}

// TestFake runs the reference provider in all ways: its work gone with the
// process or kept, by itself or as a child.
func TestFake(t *testing.T) {
	bin := build(t, ".", "../fake/fairlead-dataplane-fake")
	path := filepath.Join(bin, "fairlead-dataplane-fake")
	t.Run("memory", func(t *testing.T) {
		conformance.TestWith(t, conformance.Target{Exec: path}, options())
	})
	t.Run("kernel", func(t *testing.T) {
		kernel := t.TempDir()
		conformance.TestWith(t, conformance.Target{Exec: path, Env: []string{"FAKE_KERNEL=" + kernel}, Child: true}, options())
		left, err := os.ReadDir(kernel)
		if err != nil || len(left) > 0 {
			deep, _ := filepath.Glob(filepath.Join(kernel, "*", "*"))
			t.Errorf("the suite left %v, %v (%v) in the system", left, deep, err)
		}
	})
}

func TestObserveInsteadOfGauges(t *testing.T) {
	p := fake.New()
	o := conformance.Options{Only: []string{"reconcile.programs"}, Observe: func(context.Context) (map[dataplane.Key]int, error) {
		return nil, nil // blind
	}}
	report := conformance.Run(t.Context(), conformance.Target{Endpoint: serve(t, p)}, o)
	if r := report.Result("reconcile.programs"); r.Outcome != conformance.Failed {
		t.Errorf("with an Observe that sees nothing the check is %s: %s", r.Outcome, r.Evidence)
	}
}
