package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// patience is for what takes a second on an idle machine.
const patience = time.Minute

// host is a pluginhost with the provider fake.
type host struct {
	*pluginhost.Host
	t     *testing.T
	ready chan pluginhost.Provider
	log   *lines
}

// newHost starts a host. socket is that of a provider that runs by itself,
// whose health nobody asks for; empty: the host starts one.
func newHost(t *testing.T, plugins, socket string) *host {
	t.Helper()
	h := &host{t: t, ready: make(chan pluginhost.Provider, 100), log: &lines{}}
	cfg := pluginhost.Config{
		Wish: pluginhost.Wish{Names: []string{"fake"}, Written: true}, Search: pluginhost.Search{Dirs: []string{plugins}},
		RunDir: shortDir(t), StateDir: t.TempDir(), InstanceID: "bench", Node: "bench", Environ: os.Environ(),
		OnReady: func(p pluginhost.Provider) { h.ready <- p }, Log: slog.New(slog.NewTextHandler(h.log, nil)), Metrics: prometheus.NewRegistry(),
	}
	if socket != "" {
		cfg.Settings = map[string]pluginhost.Settings{"fake": {Values: map[string]any{"socket": socket}}}
		cfg.Timing = pluginhost.DefaultTiming()
		cfg.Timing.Health, cfg.Timing.DataPath = time.Hour, time.Hour
	}
	var err error
	if h.Host, err = pluginhost.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	if _, err := h.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, h.log)
	}
	return h
}

// next waits for the next life of the provider.
func (h *host) next() life {
	h.t.Helper()
	select {
	case p := <-h.ready:
		return life{Provider: p, host: h, pid: h.Status()[0].PID}
	case <-time.After(patience):
		h.t.Fatalf("the provider does not get ready\n%s", h.log)
		return life{}
	}
}

// restarted is a new process of the provider.
func (h *host) restarted() life {
	h.t.Helper()
	if err := h.Restart("fake", "a new one is measured"); err != nil {
		h.t.Fatal(err)
	}
	return h.next()
}

// life is one process of the provider.
type life struct {
	pluginhost.Provider
	host *host
	pid  int
}

// session is one run of the loop against a provider.
type session struct {
	t     *testing.T
	loop  *reconcile.Loop
	stop  func()
	sizes bool // note how large messages are, which takes time

	mu    sync.Mutex
	calls []call
}

// call is one call of Reconcile.
type call struct {
	kind  string // unchanged, delta, snapshot
	took  time.Duration
	bytes int // of its messages, encoded; if sizes
	err   error
}

// serve begins a session, of which boot is the epoch. It ends with stop.
func (l life) serve(v *views, boot uint64, tick time.Duration) *session {
	l.host.t.Helper()
	return l.serveWith(v, boot, tick, false)
}

func (l life) serveWith(v *views, boot uint64, tick time.Duration, sizes bool) *session {
	t := l.host.t
	t.Helper()
	s := &session{t: t, sizes: sizes}
	s.loop = reconcile.New(reconcile.Config{
		Provider: "fake", Session: dataplane.Session{AgentID: "0123456789abcdef", BootEpoch: boot}, Views: v,
		Tick: tick, MinGap: min(tick, reconcile.DefaultMinGap), Deadline: patience,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.loop.Serve(ctx, client{l.Client, s}, l.Lost) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the loop ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// of returns the calls of one kind.
func (s *session) of(kind string) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []call
	for _, c := range s.calls {
		if c.err != nil {
			s.t.Fatalf("a call of kind %s failed after %v: %v", c.kind, c.took, c.err)
		}
		if c.kind == kind {
			out = append(out, c)
		}
	}
	return out
}

// wait waits for n calls of a kind. It looks seldom, so as not to be measured.
func (s *session) wait(kind string, n int) []call {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause(20 * time.Millisecond) {
		if got := s.of(kind); len(got) >= n {
			return got
		}
	}
	s.t.Fatalf("not %d calls of kind %s within %v: status %+v", n, kind, patience, s.loop.Status())
	return nil
}

// client measures Reconcile.
type client struct {
	pb.DataPlaneProviderClient
	s *session
}

func (c client) Reconcile(ctx context.Context, opts ...grpc.CallOption) (grpc.ClientStreamingClient[pb.ReconcileRequest, pb.ReconcileResponse], error) {
	begun := time.Now()
	stream, err := c.DataPlaneProviderClient.Reconcile(ctx, opts...)
	return &measured{ClientStreamingClient: stream, s: c.s, begun: begun}, err
}

type measured struct {
	grpc.ClientStreamingClient[pb.ReconcileRequest, pb.ReconcileResponse]
	s     *session
	begun time.Time
	call  call
}

func (m *measured) Send(r *pb.ReconcileRequest) error {
	if b := r.GetBegin(); b != nil {
		m.call.kind = map[uint64]string{0: "snapshot", b.GetGeneration(): "unchanged"}[b.GetBase()]
		if m.call.kind == "" {
			m.call.kind = "delta"
		}
	}
	if m.s.sizes {
		m.call.bytes += proto.Size(r)
	}
	return m.ClientStreamingClient.Send(r)
}

func (m *measured) CloseAndRecv() (*pb.ReconcileResponse, error) {
	answer, err := m.ClientStreamingClient.CloseAndRecv()
	m.call.took, m.call.err = time.Since(m.begun), err
	if errors.Is(err, context.Canceled) || m.s.t.Context().Err() != nil {
		return answer, err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.calls = append(m.s.calls, m.call)
	return answer, err
}

// alone starts the provider by itself and returns its socket.
func alone(t *testing.T, plugins string) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), "fake.sock")
	cmd := exec.Command(filepath.Join(plugins, "fairlead-dataplane-fake"), "--listen", "unix:"+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said lines
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(patience); ; pause(10 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, &said)
		}
	}
}

// wire is a proxy that counts what passes, to the provider and back.
type wire struct {
	socket    string
	to, fro   atomic.Int64
	listener  net.Listener
	transfers sync.WaitGroup
}

func newWire(t *testing.T, provider string) *wire {
	t.Helper()
	w := &wire{socket: filepath.Join(shortDir(t), "wire.sock")}
	var err error
	if w.listener, err = net.Listen("unix", w.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.listener.Close() })
	go func() {
		for {
			near, err := w.listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", provider)
			if err != nil {
				near.Close()
				continue
			}
			go pump(far, near, &w.to)
			go pump(near, far, &w.fro)
		}
	}()
	return w
}

func pump(to, from net.Conn, count *atomic.Int64) {
	_, _ = io.Copy(io.MultiWriter(to, counter{count}), from)
	to.Close()
	from.Close()
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }

// quiet waits until nothing passes any more, and returns what did.
func (w *wire) quiet() (to, fro float64) {
	for {
		to, fro := w.to.Load(), w.fro.Load()
		pause(200 * time.Millisecond)
		if w.to.Load() == to && w.fro.Load() == fro {
			return float64(to), float64(fro)
		}
	}
}

// pause lets time pass: the measurement is of time itself.
func pause(d time.Duration) { <-time.After(d) }

// shortDir is a temporary directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// lines is a log that several write.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// built returns a directory with the reference provider.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-C", "../../..", "-trimpath", "-o", filepath.Join(dir, "fairlead-dataplane-fake"), "./dataplane/fake/fairlead-dataplane-fake").CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Errorf("build the provider: %w\n%s", err, out))
	}
	return dir
}
