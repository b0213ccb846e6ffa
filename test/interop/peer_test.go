package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/port"
)

// peerEnv names another etcd to compare with than Debian's.
const peerEnv = "INTEROP_ETCD"

// peer starts etcd.
func peer(t *testing.T) *cluster {
	t.Helper()
	path := os.Getenv(peerEnv)
	if path == "" {
		var err error
		if path, err = exec.LookPath("etcd"); err != nil {
			t.Skip("etcd is not installed: Debian package etcd-server")
		}
	}
	client, err := port.Pick()
	if err != nil {
		t.Fatal(err)
	}
	server, err := port.Pick()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--name", "n1", "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-client-urls", "http://"+client,
		"--advertise-client-urls", "http://"+client, "--listen-peer-urls", "http://"+server, "--initial-advertise-peer-urls", "http://"+server,
		"--initial-cluster", "n1=http://"+server, "--logger", "zap", "--log-level", "error", "--heartbeat-interval", "10", "--election-timeout", "1000")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(etcdctl(t, client, "", "endpoint", "health"), "is healthy") {
		if time.Now().After(deadline) {
			t.Fatalf("etcd at %s does not answer", client)
		}
	}
	return &cluster{endpoints: []string{client}}
}

// etcdctl runs Debian's client and returns what it printed and how it ended.
func etcdctl(t *testing.T, endpoint, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := etcdctlCommand(ctx, t, append([]string{"--endpoints", endpoint}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		text += err.Error() + "\n"
	}
	return text
}

func etcdctlCommand(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("etcdctl is not installed: Debian package etcd-client")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"ETCDCTL_API=3", "PATH=/usr/bin:/bin"}
	return cmd
}
