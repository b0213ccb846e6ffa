package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// envKind makes the test binary a provider.
const envKind = "SDK_TEST_PROVIDER"

// serveKind is the main of the providers that tests start.
func serveKind(kind string) int {
	p := &process{Provider: fake.New(), kind: kind}
	if kind == "privileged" {
		return Serve(p, AllowNewPrivileges("for a test"))
	}
	return Serve(p)
}

// process is a provider with a habit.
type process struct {
	*fake.Provider
	kind string
	log  *slog.Logger
}

func (p *process) UseLogger(log *slog.Logger) { p.log = log }

func (p *process) Info() dataplane.Info {
	if p.kind == "noisy" {
		fmt.Println("1|1|unix|/nonsense|grpc|") // before the answer to the host
	}
	return p.Provider.Info()
}

func (p *process) Probe(ctx context.Context) (dataplane.Report, error) {
	switch p.kind {
	case "panic":
		panic("boom")
	case "panic elsewhere":
		go panic("boom elsewhere")
		<-ctx.Done()
	case "noisy":
		fmt.Println("noise of Go")
		_, _ = syscall.Write(1, []byte("noise of C\n"))
		cmd := exec.Command("echo", "noise of a program")
		cmd.Stdout = os.Stdout
		_ = cmd.Run()
	case "logs":
		for range 1000 {
			p.log.Warn("long", "text", strings.Repeat("log ", 250))
		}
	}
	return p.Provider.Probe(ctx)
}

func (p *process) Reconcile(ctx context.Context, next *dataplane.Snapshot, d dataplane.Delta) (dataplane.Result, error) {
	if p.kind == "hangs" {
		p.log.Info("reconcile hangs")
		select {} // whatever happens to ctx
	}
	return p.Provider.Reconcile(ctx, next, d)
}

func (p *process) Shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	p.log.Info("shutdown", "policy", int(policy))
	return p.Provider.Shutdown(ctx, policy)
}
