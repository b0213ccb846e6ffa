package netns

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func contains(p *Process, text string) func() bool {
	return func() bool { return strings.Contains(p.Output(), text) }
}

func TestProcessEndsBySignal(t *testing.T) {
	topo := New(t, Options{Nodes: 1})
	p := startHelper(t, topo.Node(0), "wait")
	Eventually(t, patient, func() bool { return contains(p, "ready\n")() && contains(p, "ready too\n")() }, "both outputs of %s", p)
	if inode, err := inodeOf("/proc/" + itoa(p.Pid()) + "/ns/net"); err != nil || inode != topo.Node(0).space.inode {
		t.Errorf("%s runs in namespace %d, want %d: %v", p, inode, topo.Node(0).space.inode, err)
	}
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code is %d while the process runs, want -1", code)
	}
	p.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	var exit *exec.ExitError
	if err := p.Wait(ctx); !errors.As(err, &exit) || p.ExitCode() != 7 {
		t.Errorf("wait says %v, exit code %d, want 7", err, p.ExitCode())
	}
	p.Signal(syscall.SIGTERM) // to a dead process: nothing
	p.Kill()
}

func TestKill(t *testing.T) {
	topo := New(t, Options{Nodes: 1})
	p := startHelper(t, topo.Node(0), "wait")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait for a living process says %v when its context ends", err)
	}
	p.Kill()
	if err := syscall.Kill(p.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is there after Kill: %v", p.Pid(), err)
	}
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code of a killed process is %d, want -1", code)
	}
	if tail := p.tail(); !strings.Contains(tail, "signal: killed") {
		t.Errorf("tail does not say how the process ended: %s", tail)
	}
}

func TestStopAndCont(t *testing.T) {
	topo := New(t, Options{Nodes: 1})
	p := startHelper(t, topo.Node(0), "count")
	for range 3 {
		before := len(p.Output())
		Eventually(t, patient, func() bool { return len(p.Output()) > before }, "output while it runs")
		p.Stop()
		stopped := len(p.Output())
		if stat, err := os.ReadFile("/proc/" + itoa(p.Pid()) + "/stat"); err != nil || !strings.Contains(string(stat), ") T ") {
			t.Errorf("state after Stop is %s: %v", stat, err)
		}
		if now := len(p.Output()); now != stopped {
			t.Errorf("a stopped process printed %d bytes", now-stopped)
		}
		p.Cont()
	}
	p.Stop()
	p.Kill() // a stopped process dies too
	p.Stop()
}

func TestEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_NODE_NAME", "of-the-developer")
	topo := New(t, Options{Nodes: 1})
	p := startHelper(t, topo.Node(0), "variables", "EXTRA=given")
	<-p.Done()
	if got := p.Output(); got != "|given" || p.ExitCode() != 0 {
		t.Errorf("the process saw %q, want %q", got, "|given")
	}
}

func TestRun(t *testing.T) {
	topo := New(t, Options{Nodes: 2})
	b := topo.Node(1)
	out, err := b.Run(t.Context(), "ip", "-4", "-o", "addr", "show", "dev", "eth0")
	if err != nil || !strings.Contains(out, b.Addr().String()) {
		t.Errorf("addresses of %s are %q, want %v: %v", b.Name(), out, b.Addr(), err)
	}
	var exit *exec.ExitError
	if _, err := b.Run(t.Context(), "sh", "-c", "echo what went wrong >&2; exit 4"); !errors.As(err, &exit) || exit.ExitCode() != 4 ||
		!strings.Contains(err.Error(), "what went wrong") {
		t.Errorf("a failure is reported as %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Run(ctx, "sleep", "600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that is too slow is reported as %v", err)
	}
	if _, err := b.Run(t.Context(), "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program is reported as %v", err)
	}
}

func TestDoIsInTheNamespace(t *testing.T) {
	n := New(t, Options{Nodes: 1}).Node(0)
	if err := n.Do(func() error {
		inode, err := inodeOf("/proc/thread-self/ns/net")
		if err == nil && inode != n.space.inode {
			t.Errorf("Do runs in namespace %d, want %d", inode, n.space.inode)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := n.Do(func() error { return errNotYet }); !errors.Is(err, errNotYet) {
		t.Errorf("the error of a function comes out as %v", err)
	}
}
