package sdk

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/scale"
)

// command is a provider of a kind as a process, with nothing of our environment.
func command(t *testing.T, kind string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// GOCOVERDIR keeps a binary that counts coverage from writing a warning.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), envKind + "=" + kind, "GOCOVERDIR=" + t.TempDir()}, env...)
	return cmd
}

// launched is a child of this test, as a host has it.
type launched struct {
	*host
	cmd    *exec.Cmd
	pipe   *os.File // its write end: close it and the host is gone
	stderr *buffer
	path   string
	exited chan error
}

// launch starts a provider as an agent does. Standard error is read into a
// buffer, or is what the caller says.
func launch(t *testing.T, kind string, stderr *os.File, env ...string) *launched {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := &launched{cmd: command(t, kind, append([]string{
		handshake.CookieKey + "=" + handshake.CookieValue, handshake.EnvSocketDir + "=" + shortDir(t), handshake.EnvHostFD + "=3",
	}, env...)...), pipe: w, stderr: &buffer{}, exited: make(chan error, 1)}
	l.cmd.ExtraFiles = []*os.File{r}
	if l.cmd.Stderr = l.stderr; stderr != nil {
		l.cmd.Stderr = stderr
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	t.Cleanup(func() {
		_ = w.Close()
		_ = l.cmd.Process.Kill()
	})
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		l.exited <- l.cmd.Wait()
		close(l.exited)
	}()
	fields := strings.Split(strings.TrimSpace(line), "|")
	if err != nil || len(fields) != 6 {
		t.Fatalf("got line %q, %v\n%s", line, err, l.stderr)
	}
	l.path = fields[3]
	l.host = connect(t, l.path)
	return l
}

func (l *launched) exit(t *testing.T) int {
	t.Helper()
	receive(t, "the exit", l.exited)
	return l.cmd.ProcessState.ExitCode()
}

// The real host library starts, uses and ends a provider.
func TestUnderGoPlugin(t *testing.T) {
	stderr := &buffer{}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: handshake.ProtocolVersion, MagicCookieKey: handshake.CookieKey, MagicCookieValue: handshake.CookieValue,
		},
		Plugins:          plugin.PluginSet{handshake.PluginName: &goPlugin{}},
		Cmd:              command(t, "noisy", handshake.EnvSocketDir+"="+shortDir(t)),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		SkipHostEnv:      true,
		Stderr:           stderr,
		StartTimeout:     patience,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: stderr, Level: hclog.Trace}),
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	if err := protocol.Ping(); err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Dispense(handshake.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, DataPlaneProviderClient: raw.(pb.DataPlaneProviderClient), encoder: transfer.NewEncoder()}
	must(h.Probe(t.Context(), &pb.ProbeRequest{}))(t)
	h.configure("i", "")
	must(h.snapshot(gen(1, svc("web", 1, 9001)), false))(t)
	for _, noise := range []string{"noise of Go", "noise of C", "noise of a program"} {
		eventually(t, noise, stderr.has(noise))
	}
	// What Kill begins with. It kills after 2 s, which a busy machine may need for
	// the end of a process that heeds it.
	begin := time.Now()
	if err := protocol.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", client.Exited)
	if d := time.Since(begin); d > scale.Bound(2*time.Second, patience) || !strings.Contains(stderr.String(), "shutdown") {
		t.Fatalf("after %v:\n%s", d, stderr)
	}
}

type goPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (*goPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }

func (*goPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return pb.NewDataPlaneProviderClient(c), nil
}

// A stranger's host, without a pipe and with one that it closes.
func TestHostLossExits(t *testing.T) {
	for kind, want := range map[string]int{"plain": 0, "hangs": 1} {
		t.Run(kind, func(t *testing.T) {
			l := launch(t, kind, nil)
			l.configure("i", "")
			if kind == "hangs" {
				go func() { _, _ = l.send(context.WithoutCancel(t.Context()), begin1(), commit()) }()
				eventually(t, "the call", l.stderr.has("reconcile hangs"))
			}
			begin := time.Now()
			_ = l.pipe.Close()
			if code := l.exit(t); code != want {
				t.Fatalf("exit %d\n%s", code, l.stderr)
			}
			// "exit 0 within 1 s", and what a busy machine adds
			if d := time.Since(begin); d > scale.Bound(3*time.Second, patience) {
				t.Fatalf("took %v", d)
			}
			if _, err := os.Stat(l.path); err == nil {
				t.Fatal("the socket is still there")
			}
			if kind == "plain" && !strings.Contains(l.stderr.String(), `"@message":"shutdown","policy":1`) {
				t.Fatalf("no Shutdown(keep):\n%s", l.stderr)
			}
		})
	}
}

// "KEEP: kill host, make the plugin log 1000 lines, still serving" – and the next
// agent finds it on the socket, at the same generation.
func TestHostLossServes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(shortDir(t), "well-known.sock")
	l := launch(t, "logs", w, handshake.EnvOnHostLoss+"="+handshake.HostLossServe, handshake.EnvSocket+"="+path)
	if l.path != path {
		t.Fatalf("serves on %s", l.path)
	}
	_ = w.Close()
	l.configure("i", "")
	l.encoder = transfer.NewEncoder()
	s := gen(1, svc("web", 1, 9001))
	must(l.snapshot(s, false))(t)
	_ = l.pipe.Close()
	_ = r.Close() // standard error, too

	next := connect(t, path)
	for range 3 {
		must(next.Probe(t.Context(), &pb.ProbeRequest{}))(t) // logs 1 MB each
	}
	if st := must(next.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 1 || st.InstanceId != "i" {
		t.Fatalf("got %v", st)
	}
	must(next.tick(s))(t)
	must(next.Shutdown(t.Context(), &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_REMOVE}))(t)
	if code := l.exit(t); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the socket is still there")
	}
}

// Nobody reads standard error and its pipe is full.
func TestAFullStandardErrorDoesNotBlock(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	l := launch(t, "logs", w)
	_ = w.Close()
	for range 3 {
		must(l.Probe(t.Context(), &pb.ProbeRequest{}))(t)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.exit(t); code != 0 {
		t.Fatalf("exit %d", code)
	}
}

// "SIGTERM = stop gracefully; SIGINT ignored in child mode"
func TestSignals(t *testing.T) {
	l := launch(t, "plain", nil)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
		if err := l.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		must(l.Info(t.Context(), &pb.InfoRequest{}))(t)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.exit(t); code != 0 || !strings.Contains(l.stderr.String(), "shutdown") {
		t.Fatalf("exit %d\n%s", code, l.stderr)
	}
}

func TestLastWords(t *testing.T) {
	l := launch(t, "panic", nil)
	if _, err := l.Probe(t.Context(), &pb.ProbeRequest{}); err == nil || !strings.Contains(err.Error(), "panicked in Probe and its process ends: boom") {
		t.Errorf("got %v", err)
	}
	if code := l.exit(t); code != handshake.ExitPanic {
		t.Fatalf("exit %d\n%s", code, l.stderr)
	}
	var last handshake.Panic
	lines := strings.Split(strings.TrimSpace(l.stderr.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Panic != "boom" {
		t.Fatalf("got %q, %v", lines, err)
	}

	l = launch(t, "panic elsewhere", nil)
	_, _ = l.Probe(t.Context(), &pb.ProbeRequest{})
	if code := l.exit(t); code != handshake.ExitPanic || !strings.Contains(l.stderr.String(), "panic: boom elsewhere") {
		t.Fatalf("exit %d\n%s", code, l.stderr)
	}
}

func TestNoNewPrivileges(t *testing.T) {
	for kind, want := range map[string]string{"plain": "NoNewPrivs:\t1", "privileged": "NoNewPrivs:\t0"} {
		l := launch(t, kind, nil)
		if kind == "privileged" && ownFlag(t) != "NoNewPrivs:\t0" {
			continue // inherited, and cannot be unset
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", l.cmd.Process.Pid))
		if err != nil || len(tasks) == 0 {
			t.Fatal(tasks, err)
		}
		for _, task := range tasks {
			if b, err := os.ReadFile(task); err == nil && !strings.Contains(string(b), want) {
				t.Errorf("%s: a thread without %q", kind, want)
			}
		}
	}
}

func ownFlag(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "NoNewPrivs:") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// The reference provider as users would get it, without cgo: the other way to
// no_new_privs.
func TestReferenceProgram(t *testing.T) {
	dir := shortDir(t)
	program := filepath.Join(dir, "fairlead-dataplane-fake")
	build := exec.Command("go", "build", "-o", program, "../fake/fairlead-dataplane-fake")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("%v: exit %d\n%s", args, code, out)
		}
		return string(out)
	}
	if out := run(2); !strings.Contains(out, "to be started by an agent") {
		t.Fatalf("got %s", out)
	}
	var info handshake.PluginInfo
	if err := json.Unmarshal([]byte(run(0, "--plugin-info")), &info); err != nil || info.Name != "fake" {
		t.Fatal(info, err)
	}

	socket := filepath.Join(dir, "p.sock")
	cmd := exec.Command(program, "--listen", "unix:"+socket)
	cmd.Env = append(os.Environ(), "FAKE_KERNEL="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // also after a failure
	eventually(t, "the socket", func() bool { _, err := os.Stat(socket); return err == nil })
	h := connect(t, socket)
	h.encoder = transfer.NewEncoder()
	h.configure("i", "")
	s := gen(1, svc("web", 1, 9001))
	must(h.snapshot(s, false))(t)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)); err != nil || !strings.Contains(string(b), "NoNewPrivs:\t1") {
		t.Errorf("no_new_privs is not set: %v", err)
	}
	// kill -9; a new one on the stale socket goes on where it was
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	again := exec.Command(program, "--listen", "unix:"+socket, "--instance-id", "i")
	again.Env = cmd.Env
	before, _ := os.Lstat(socket)
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Process.Kill() })
	eventually(t, "the new socket", func() bool { now, err := os.Lstat(socket); return err == nil && !os.SameFile(before, now) })
	h = connect(t, socket)
	if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 1 {
		t.Errorf("got %v", st)
	}
	must(h.tick(s))(t)
	_ = again.Process.Signal(syscall.SIGTERM)
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
}
