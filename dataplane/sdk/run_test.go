package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/scale"
)

// running is Run in a goroutine.
type running struct {
	t              *testing.T
	stdout, stderr *buffer
	signals        chan os.Signal
	cancel         context.CancelFunc
	code           chan int
}

func start(t *testing.T, p dataplane.Provider, env map[string]string, args []string, opts ...Option) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, stdout: &buffer{}, stderr: &buffer{}, signals: make(chan os.Signal, 4), cancel: cancel, code: make(chan int, 1)}
	go func() {
		r.code <- Run(ctx, p, Env{
			Args: args, Getenv: func(k string) string { return env[k] }, Stdout: r.stdout, Stderr: r.stderr, Signals: r.signals, Parent: func() int { return 1 },
		}, opts...)
	}()
	t.Cleanup(cancel)
	return r
}

func background(t *testing.T, p dataplane.Provider, args ...string) *running {
	t.Helper()
	return start(t, p, nil, args)
}

func (r *running) exit() int {
	r.t.Helper()
	return receive(r.t, "the exit", r.code)
}

func (r *running) stop() int {
	r.t.Helper()
	r.cancel()
	return r.exit()
}

// child starts a provider as a host does, and connects to it.
func child(t *testing.T, p dataplane.Provider, env map[string]string, opts ...Option) (*running, *host) {
	t.Helper()
	all := map[string]string{handshake.CookieKey: handshake.CookieValue, handshake.EnvSocketDir: shortDir(t)}
	for k, v := range env {
		all[k] = v
	}
	r := start(t, p, all, nil, opts...)
	eventually(t, "the line", r.stdout.has("\n"))
	fields := strings.Split(strings.TrimSpace(r.stdout.String()), "|")
	if len(fields) != 6 || fields[0] != "1" || fields[1] != "1" || fields[2] != "unix" || fields[4] != "grpc" || fields[5] != "" {
		t.Fatalf("got %q", r.stdout)
	}
	return r, connect(t, fields[3])
}

func connect(t *testing.T, path string) *host {
	t.Helper()
	conn := dialWith(t, func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
	h := &host{t: t, DataPlaneProviderClient: pb.NewDataPlaneProviderClient(conn), encoder: nil}
	must(grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: handshake.HealthService}))(t)
	h.controller = func() error {
		return conn.Invoke(t.Context(), "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
	}
	return h
}

func TestWhatIsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"by hand":      {nil, 2, "", "is a data plane of Fairlead, to be started by an agent"},
		"--help":       {[]string{"--help"}, 0, "fairlead-dataplane-fake --listen unix:PATH", ""},
		"-h":           {[]string{"-h"}, 0, "--follow ADDRESS", ""},
		"unknown flag": {[]string{"--lisen", "x"}, 2, "", "-lisen; see --help"},
		"stray word":   {[]string{"start"}, 2, "", `argument "start" is not known`},
		"no unix":      {[]string{"--listen", "127.0.0.1:1"}, 1, "", "want unix:PATH"},
		"far agent":    {[]string{"--follow", "10.0.0.1:1"}, 1, "", "has to be on this host"},
		"no file":      {[]string{"--listen", "unix:/tmp/x", "--config", "/nonexistent"}, 1, "", "no such file"},
	} {
		r := background(t, fake.New(), c.args...)
		if code := r.exit(); code != c.code || !strings.Contains(r.stdout.String(), c.stdout) || !strings.Contains(r.stderr.String(), c.stderr) {
			t.Errorf("%s: exit %d\n%s\n%s", name, code, r.stdout, r.stderr)
		}
		if (c.stdout == "") != (r.stdout.String() == "") {
			t.Errorf("%s: standard output: %s", name, r.stdout)
		}
	}
}

// "--plugin-info: JSON of Info, exit 0, nothing started"
func TestPluginInfo(t *testing.T) {
	info := fake.New().Info()
	info.Limits.Services = 5
	r := background(t, &spy{Provider: fake.New(), info: &info}, "--plugin-info")
	if code := r.exit(); code != 0 {
		t.Fatalf("exit %d: %s", code, r.stderr)
	}
	var got handshake.PluginInfo
	if err := json.Unmarshal([]byte(r.stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "fake" || got.Protocol != 1 || got.Limits.Services != 5 || len(got.ConfigSchema) == 0 {
		t.Fatalf("got %+v", got)
	}
	info.Name = "Bad"
	r = background(t, &spy{Provider: fake.New(), info: &info}, "--plugin-info")
	if code := r.exit(); code != 1 || !strings.Contains(r.stderr.String(), `provider name "Bad"`) {
		t.Fatalf("exit %d: %s", code, r.stderr)
	}
}

func TestListen(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "p.sock")
	r := background(t, fake.New(), "--listen", "unix:"+path, "--debug")
	eventually(t, "the socket", func() bool { _, err := os.Stat(path); return err == nil })
	eventually(t, "how to attach", r.stderr.has("FAIRLEAD_PLUGIN_FAKE_SOCKET="+path))
	h := connect(t, path)
	if r := must(h.Info(t.Context(), &pb.InfoRequest{}))(t); r.Name != "fake" {
		t.Fatalf("got %v", r)
	}
	if err := h.controller(); err == nil {
		t.Fatal("whoever connects may end a provider that runs by itself")
	}
	// a second one does not take the place
	if code := background(t, fake.New(), "--listen", "unix:"+path).exit(); code != 1 {
		t.Fatalf("exit %d", code)
	}
	r.signals <- syscall.SIGINT
	if code := r.exit(); code != 0 {
		t.Fatalf("exit %d\n%s", code, r.stderr)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Fatalf("left %v", entries)
	}
}

// With a configuration of its own a provider is configured before anyone comes.
func TestOwnConfiguration(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, []byte(`{"refuse": ["default/a"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	own := OwnConfig(func(getenv func(string) string) ([]byte, error) { return []byte(getenv("FAKE_CONFIG")), nil })
	broken := OwnConfig(func(func(string) string) ([]byte, error) { return nil, errors.New("FAKE_X is wrong") })
	for name, c := range map[string]struct {
		args     []string
		opts     []Option
		instance string
		fails    string
	}{
		"none":       {nil, nil, "", ""},
		"a file":     {[]string{"--config", file, "--instance-id", "x"}, nil, "x", ""},
		"a flag":     {[]string{"--node", "n"}, nil, "fake", ""},
		"own":        {nil, []Option{own, LogLevel(slog.LevelWarn)}, "fake", ""},
		"own broken": {nil, []Option{broken}, "", "FAKE_X is wrong"},
		"refused":    {[]string{"--config", file}, []Option{own}, "fake", "delay"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "p")
			p := &spy{Provider: fake.New()}
			if name == "refused" {
				p.configure = func(context.Context, dataplane.Config) ([]dataplane.Diagnostic, error) {
					return []dataplane.Diagnostic{{Path: "x", Message: "odd"}}, errors.New("delay")
				}
			}
			r := start(t, p, map[string]string{"FAKE_CONFIG": `{"refuse": ["default/b", "default/b"]}`}, append([]string{"--listen", "unix:" + path}, c.args...), c.opts...)
			if c.fails != "" {
				if code := r.exit(); code != 1 || !strings.Contains(r.stderr.String(), c.fails) {
					t.Fatalf("exit %d: %s", code, r.stderr)
				}
				return
			}
			eventually(t, "the socket", func() bool { _, err := os.Stat(path); return err == nil })
			if st := must(connect(t, path).State(t.Context(), &pb.StateRequest{}))(t); st.InstanceId != c.instance {
				t.Fatalf("got %v", st)
			}
			if code := r.stop(); code != 0 {
				t.Fatalf("exit %d: %s", code, r.stderr)
			}
		})
	}
}

func TestDebugFindsASocket(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	r := background(t, fake.New(), "--debug")
	eventually(t, "how to attach", r.stderr.has("fairlead plugin conform --endpoint unix:"))
	if code := r.stop(); code != 0 {
		t.Fatalf("exit %d: %s", code, r.stderr)
	}
}

// gRPC's default is 4 MiB.
func TestMessagesUpTo64MiB(t *testing.T) {
	r, h := child(t, fake.New(), nil)
	h.configure("i", "")
	s := svc("web", 1)
	s.Hosts = []string{strings.Repeat("h", 60<<20)}
	big := changes(&pb.Change{Services: []*pb.Service{{Handle: 1, Key: transfer.EncodeKey(s.Key), Hosts: s.Hosts}}})
	if got := describeStatuses(must(h.send(t.Context(), begin1(), big, commit()))(t)); got != "default/web REJECTED limit" {
		t.Fatalf("got %s", got)
	}
	if code := r.stop(); code != 0 {
		t.Fatalf("exit %d\n%s", code, r.stderr)
	}
}

// The ways in which a child ends, and with what.
func TestChildEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*running, *host)
		code int
	}{
		"by SIGTERM": {func(r *running, _ *host) {
			r.signals <- syscall.SIGINT // of the terminal: not for us
			r.signals <- syscall.SIGHUP
			r.signals <- syscall.SIGTERM
		}, 0},
		"by its context": {func(r *running, _ *host) { r.cancel() }, 0},
		"by Shutdown": {func(r *running, h *host) {
			must(h.Shutdown(h.t.Context(), &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP}))(h.t)
		}, 0},
		"by go-plugin's controller": {func(_ *running, h *host) {
			if err := h.controller(); err != nil {
				h.t.Error(err)
			}
		}, 0},
		"by a panic": {func(_ *running, h *host) {
			if _, err := h.Probe(h.t.Context(), &pb.ProbeRequest{}); err == nil || !strings.Contains(err.Error(), "panicked in Probe") {
				h.t.Errorf("got %v", err)
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			shut := make(chan dataplane.ShutdownPolicy, 2)
			p := &spy{Provider: fake.New(), probe: func(context.Context) (dataplane.Report, error) { panic("boom") }}
			p.shutdown = func(_ context.Context, policy dataplane.ShutdownPolicy) error { shut <- policy; return nil }
			r, h := child(t, p, nil)
			next, cancel := watch(t, h, &pb.WatchRequest{}) // a stream that is open does not delay it
			defer cancel()
			next()
			begin := time.Now()
			c.end(r, h)
			if code := r.exit(); code != c.code {
				t.Fatalf("exit %d\n%s", code, r.stderr)
			}
			if d := time.Since(begin); d > scale.Bound(5*time.Second, patience) {
				t.Errorf("took %v", d)
			}
			if c.code == 0 {
				if len(shut) != 1 || <-shut != dataplane.ShutdownKeep {
					t.Error("not Shutdown(keep), once")
				}
				return
			}
			lines := strings.Split(strings.TrimSpace(r.stderr.String()), "\n")
			var last handshake.Panic
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Panic != "boom" || last.Call != "Probe" || last.Stack == "" {
				t.Errorf("last words: %q, %v", lines, err)
			}
			if len(shut) != 0 {
				t.Error("a provider that panicked was called")
			}
		})
	}
}

func TestSecondSIGTERMDoesNotWait(t *testing.T) {
	entered := make(chan struct{})
	p := &spy{Provider: fake.New(), reconcile: func(ctx context.Context, _ *dataplane.Snapshot, _ dataplane.Delta) (dataplane.Result, error) {
		close(entered)
		<-ctx.Done()
		return dataplane.Result{}, ctx.Err()
	}}
	r, h := child(t, p, nil, StopTime(time.Hour))
	h.configure("i", "")
	go func() { _, _ = h.send(context.WithoutCancel(t.Context()), begin1(), commit()) }()
	receive(t, "the call", entered)
	r.signals <- syscall.SIGTERM
	eventually(t, "the first", r.stderr.has("stopping"))
	r.signals <- syscall.SIGINT
	r.signals <- syscall.SIGTERM
	if code := r.exit(); code != 0 {
		t.Fatalf("exit %d\n%s", code, r.stderr)
	}
}

func TestChildWithoutADirectoryMakesOne(t *testing.T) {
	tmp := shortDir(t)
	t.Setenv("TMPDIR", tmp)
	r, _ := child(t, fake.New(), map[string]string{handshake.EnvSocketDir: ""})
	if !strings.Contains(r.stdout.String(), tmp) {
		t.Fatalf("got %q", r.stdout)
	}
	if code := r.stop(); code != 0 {
		t.Fatalf("exit %d\n%s", code, r.stderr)
	}
	if entries, _ := os.ReadDir(tmp); len(entries) != 0 {
		t.Fatalf("left %v", entries)
	}
}

func TestChildRefuses(t *testing.T) {
	long := shortDir(t) + "/" + strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"a long path":       {map[string]string{handshake.EnvSocketDir: long}, "at most"},
		"an unknown policy": {map[string]string{handshake.EnvOnHostLoss: "panic"}, "exit or serve"},
		"serve, but where?": {map[string]string{handshake.EnvOnHostLoss: "serve"}, "needs FAIRLEAD_SERVE_SOCKET"},
		"no number":         {map[string]string{handshake.EnvHostFD: "x"}, "want the number of a descriptor"},
		"standard error":    {map[string]string{handshake.EnvHostFD: "2"}, "3 or above"},
		"no descriptor":     {map[string]string{handshake.EnvHostFD: "9999"}, "did not pass this descriptor"},
	} {
		env := map[string]string{handshake.CookieKey: handshake.CookieValue}
		for k, v := range c.env {
			env[k] = v
		}
		r := start(t, fake.New(), env, nil)
		if code := r.exit(); code != 1 || !strings.Contains(r.stderr.String(), c.want) || r.stdout.String() != "" {
			t.Errorf("%s: exit %d: %s", name, code, r.stderr)
		}
	}
}

func TestParentIsWatchedWithoutAPipe(t *testing.T) {
	lost := make(chan struct{})
	n := 0
	go pollParent(t.Context(), func() int { n++; return min(n, 2) }, lost)
	receive(t, "the loss", lost)
}

func TestProvidersLog(t *testing.T) {
	p := &logging{Provider: fake.New()}
	r := start(t, p, nil, []string{"--plugin-info"}, AllowNewPrivileges("for a test"))
	if code := r.exit(); code != 0 || !strings.Contains(r.stderr.String(), "hello from the provider") {
		t.Fatalf("exit %d: %s", code, r.stderr)
	}
	r, _ = child(t, fake.New(), nil, AllowNewPrivileges("mount.helper is set-user-id"))
	r.stop()
	if !strings.Contains(r.stderr.String(), "mount.helper") {
		t.Fatalf("the reason is not logged: %s", r.stderr)
	}
}

type logging struct{ *fake.Provider }

func (logging) UseLogger(l *slog.Logger) { l.Info("hello from the provider") }

func TestOutputThatFails(t *testing.T) {
	for _, args := range [][]string{{"--plugin-info"}, nil} {
		env := map[string]string{handshake.CookieKey: handshake.CookieValue}
		var stderr buffer
		code := Run(t.Context(), fake.New(), Env{Args: args, Getenv: func(k string) string { return env[k] }, Stdout: fails{}, Stderr: &stderr, Parent: os.Getppid})
		if code != 1 || !strings.Contains(stderr.String(), "disk full") {
			t.Errorf("%v: exit %d: %s", args, code, &stderr)
		}
	}
}

type fails struct{}

func (fails) Write([]byte) (int, error) { return 0, errors.New("disk full") }
