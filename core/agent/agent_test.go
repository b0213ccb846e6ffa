package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/short"
	"github.com/fairlead/fairlead/test/transcript"
)

// TestMain lets the test binary be a data plane, under the name of one.
func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), handshake.FilePrefix) {
		syscall.Exit(bePlane()) // os.Exit, under the race detector, first waits a second for races
	}
	goleak.VerifyTestMain(m)
}

// waitTimeout is for conditions that hold within milliseconds on an idle host.
const waitTimeout = await.Patience

// testConfig is an agent on loopback with free ports and files in a directory
// of its own.
func testConfig(t *testing.T, name string) *config.Config {
	t.Helper()
	dir := short.Dir(t)
	free := netip.MustParseAddrPort("127.0.0.1:0")
	cfg := config.Defaults()
	cfg.Node.Name = name
	cfg.Node.DataDir = filepath.Join(dir, "data")
	cfg.Gossip.Bind = free
	cfg.Gossip.Profile = "local"
	cfg.API.Socket = filepath.Join(dir, "api.sock")
	cfg.API.Listen = config.ListenOn(free)
	cfg.HTTP.Listen = config.ListenOn(free)
	cfg.ShutdownTimeout = 20 * time.Second // as long as a busy machine may take for what takes a moment
	cfg.Dataplane = config.Providers{}     // as root auto takes what is installed, for the whole machine
	if errs := cfg.Validate(nil); len(errs) != 0 {
		t.Fatal(errs)
	}
	return cfg
}

// patient has agents wait for each other for seconds, where it is an error of the test
// if one that is only late is suspected.
func patient(all ...*config.Config) {
	for _, cfg := range all {
		cfg.Gossip.Profile = "wan"
	}
}

// running is an agent whose Run is under way.
type running struct {
	*Agent
	signals chan os.Signal
	cancel  context.CancelFunc
	log     *transcript.Buffer
	result  chan error
	api     *client.Client
}

// start runs an agent until its API answers; the test's end stops it.
func start(t *testing.T, o Options) *running {
	t.Helper()
	r := prepare(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.result <- r.Run(ctx, r.signals) }()
	await.For(t, "the API to answer", func() bool {
		c, err := client.Dial(t.Context(), o.Loaded.Config.API.Socket)
		if err != nil {
			return false
		}
		if _, err := c.Status(t.Context()); err != nil {
			c.Close()
			return false
		}
		r.api = c
		return true
	})
	t.Cleanup(func() {
		cancel()
		<-r.result
		r.api.Close()
	})
	return r
}

func prepare(t *testing.T, o Options) *running {
	t.Helper()
	r := &running{signals: make(chan os.Signal, 4), log: &transcript.Buffer{}, result: make(chan error, 2)}
	var err error
	if o.Log, o.Level, err = NewLogger(o.Loaded.Config.Log, r.log); err != nil {
		t.Fatal(err)
	}
	o.Metrics = prometheus.NewRegistry()
	o.Version = "test"
	if r.Agent, err = New(o); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait returns what Run returned, and leaves it for the clean-up.
func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.result:
		r.result <- err
		return err
	case <-time.After(waitTimeout):
		t.Fatalf("Run did not return; log:\n%s", r.log)
		return nil
	}
}

func loaded(cfg *config.Config) Loaded { return Loaded{Config: cfg, Origins: config.Origins{}} }

func TestRunServesAndLeavesNothingBehind(t *testing.T) {
	cfg := testConfig(t, "n1")
	r := start(t, Options{Loaded: Loaded{Config: cfg, Warnings: []string{"raft.voters is not used yet"}}})

	status, err := r.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Name != "n1" || status.Version != "test" || !status.Ready || status.ID == 0 || strings.HasSuffix(status.Addr, ":0") {
		t.Errorf("status %+v", status)
	}
	members, err := r.api.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Name != "n1" || members[0].Role != "member" || members[0].State != model.StateAlive ||
		!members[0].Self || members[0].Epoch != 1 || members[0].ID != status.ID || members[0].Addr != status.Addr {
		t.Errorf("members: %v: %+v", err, members)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if code := get(t, status.Listeners["http.listen"], path); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}

	await.For(t, "the end of the start", func() bool { return strings.Contains(r.log.String(), "msg=ready") })
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Lstat(cfg.API.Socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stayed: %v", err)
	}
	if families, err := r.opts.Metrics.Gather(); err != nil || len(families) != 0 {
		t.Errorf("%d metrics stayed registered, %v", len(families), err)
	}
	for _, want := range []string{"ready", "name=n1", "id=" + status.ID.String(), "advertise=" + status.Addr, cfg.API.Socket, "raft.voters is not used yet", "stopped"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, r.log)
		}
	}
}

func get(t *testing.T, addr, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// SIGTERM of one: the other sees left, and never a failure.
func TestSIGTERMLeaves(t *testing.T) {
	first, cfg := testConfig(t, "n1"), testConfig(t, "n2")
	patient(first, cfg)
	n1 := start(t, Options{Loaded: loaded(first)})
	status, err := n1.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster.Join = []string{status.Addr}
	n2 := start(t, Options{Loaded: loaded(cfg)})
	state := func() model.State {
		members, err := n1.api.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			if m.Name == "n2" {
				return m.State
			}
		}
		return model.StateDead
	}
	await.For(t, "n1 to see n2 alive", func() bool { return state() == model.StateAlive })
	await.For(t, "n2 to know whom to tell", func() bool {
		members, err := n2.api.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(members) == 2
	})

	n2.signals <- syscall.SIGTERM
	if err := n2.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of n1:\n%slog of n2:\n%s", n1.log, n2.log)
		}
	})
	await.For(t, "n1 to see n2 left", func() bool { return state() == model.StateLeft })
	var kinds []string
	for e, err := range n1.api.Events(t.Context(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Member.Name == "n2" {
			kinds = append(kinds, e.Kind)
		}
	}
	if got := strings.Join(kinds, " "); got != "joined left" {
		t.Errorf("n1 saw n2 %q, want joined left", got)
	}
}

func TestLeaveOverTheAPIEndsRun(t *testing.T) {
	r := start(t, Options{Loaded: loaded(testConfig(t, "n1"))})
	if name, err := r.api.Leave(t.Context()); err != nil || name != "n1" {
		t.Errorf("Leave = %q, %v", name, err)
	}
	if err := r.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A follower does not hold up the stop, and learns the reason.
func TestFollowerIsToldOfTheStop(t *testing.T) {
	r, _ := pair(t)
	var last error
	for _, err := range r.api.Events(t.Context(), 0, true) {
		if last = err; err == nil { // it follows
			r.cancel()
		}
	}
	if !errors.Is(last, client.ErrStopped) {
		t.Errorf("got %v, want ErrStopped", last)
	}
	if err := r.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Whatever is taken, Run returns one error that names it, and lets go of the rest.
// What fails after the node has joined is no failure of the node to the others.
func TestFailedStartLeaves(t *testing.T) {
	n1 := start(t, Options{Loaded: loaded(testConfig(t, "n1"))})
	status, err := n1.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, "n2")
	cfg.Cluster.Join = []string{status.Addr}
	cfg.Dataplane = config.Providers{"nowhere"}
	n2 := prepare(t, Options{Loaded: Loaded{Config: cfg, Origins: config.Origins{"dataplane": {Layer: config.LayerFlag, Name: "dataplane"}}}})
	if err := n2.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Fatalf("Run: %v, want an error that names the data plane", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of n1:\n%slog of n2:\n%s", n1.log, n2.log)
		}
	})
	await.For(t, "n1 to see n2 left, or never to have heard of it", func() bool {
		members, err := n1.api.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(members) == 1 || members[1].State == model.StateLeft
	})
}

func TestWhatIsTakenIsNamed(t *testing.T) {
	first := testConfig(t, "n1")
	r := start(t, Options{Loaded: loaded(first)})
	status, err := r.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr := func(name string) netip.AddrPort { return netip.MustParseAddrPort(status.Listeners[name]) }
	cases := map[string]struct {
		change func(*config.Config)
		is     error
		words  []string
	}{
		"socket":      {func(c *config.Config) { c.API.Socket = first.API.Socket }, api.ErrSocketInUse, []string{first.API.Socket, "api.socket"}},
		"api port":    {func(c *config.Config) { c.API.Listen = config.ListenOn(addr("api.listen")) }, syscall.EADDRINUSE, []string{"api.listen", status.Listeners["api.listen"]}},
		"http port":   {func(c *config.Config) { c.HTTP.Listen = config.ListenOn(addr("http.listen")) }, syscall.EADDRINUSE, []string{"http.listen", status.Listeners["http.listen"]}},
		"gossip port": {func(c *config.Config) { c.Gossip.Bind = addr("gossip.bind") }, syscall.EADDRINUSE, []string{"gossip.bind", status.Listeners["gossip.bind"]}},
		"data dir":    {func(c *config.Config) { c.Node.DataDir = first.Node.DataDir }, nil, []string{first.Node.DataDir}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, "n2")
			c.change(cfg)
			second := prepare(t, Options{Loaded: loaded(cfg)})
			err := second.Run(t.Context(), nil)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("Run: %v, want %v", err, c.is)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if cfg.API.Socket != first.API.Socket {
				if _, err := net.Dial("unix", cfg.API.Socket); err == nil {
					t.Error("the failed agent still listens on its socket")
				}
			}
		})
	}
	if _, err := r.api.Members(t.Context()); err != nil {
		t.Errorf("the first agent was harmed: %v", err)
	}
}

func TestNewRefusesHalfOptions(t *testing.T) {
	if _, err := New(Options{Metrics: prometheus.NewRegistry()}); err == nil {
		t.Error("no configuration was accepted")
	}
	if _, err := New(Options{Loaded: Loaded{Config: config.Defaults()}}); err == nil {
		t.Error("no registry was accepted")
	}
}
