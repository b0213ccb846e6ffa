package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// behaviour is what a test wants of a plugin. It comes by a file, as a child
// sees none of the variables that a test could set.
type behaviour struct {
	Mode    string            `json:"mode"` // see bePlugin; empty: as it should be
	Name    string            `json:"name"` // that Info says; empty: that of the file
	Version string            `json:"version"`
	Layers  []dataplane.Layer `json:"layers"`
	Scope   dataplane.Scope   `json:"scope"`
	Verdict dataplane.Verdict `json:"verdict"`
	Schema  string            `json:"schema"`
	Out     string            `json:"out"` // a file for what it sees: environment, rights, configuration
	Delay   time.Duration     `json:"delay"`

	Rules   []dataplane.ScopeRule `json:"rules"`
	Dir     string                `json:"dir"`     // what it programs
	Events  string                `json:"events"`  // a file for the calls that alter something, in their order
	Pending int                   `json:"pending"` // calls of Cleanup that leave something for now
}

func behaviourPath(plugin string) string {
	return filepath.Join(filepath.Dir(plugin), "behave", filepath.Base(plugin))
}

// bePlugin is the main of a plugin.
func bePlugin() int {
	var b behaviour
	text, err := os.ReadFile(behaviourPath(os.Args[0]))
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if b.Name == "" {
		b.Name = strings.TrimPrefix(filepath.Base(os.Args[0]), handshake.FilePrefix)
	}
	p := &provider{Provider: fake.NewIn(b.Dir), b: b}
	switch b.Mode {
	case "":
	case "garbage":
		fmt.Println("hello, I am a web server")
		return hold()
	case "binary":
		_, _ = os.Stdout.Write(slices.Repeat([]byte{0, 1, 0xff, 'x'}, 40000))
		return hold()
	case "early":
		fmt.Println("library v2 loaded")
		return sdk.Serve(p)
	case "silent":
		return hold()
	case "dies":
		fmt.Fprintln(os.Stderr, "cannot find my head")
		return 3
	case "wordy":
		fmt.Fprintln(os.Stderr, strings.Repeat("my whole heap, and ", 500))
		return 3
	case "nowhere": // shakes hands before it listens, or at another place
		fmt.Println("1|1|unix|/nowhere|grpc|")
		return hold()
	case "version":
		fmt.Println("1|7|unix|/nowhere|grpc|")
		return hold()
	case "core":
		fmt.Println("9|1|unix|/nowhere|grpc|")
		return hold()
	case "tcp":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		return hold()
	case "netrpc":
		fmt.Println("1|1|unix|/nowhere|netrpc|")
		return hold()
	case "deaf": // shakes hands and does not answer
		l, err := net.Listen("unix", filepath.Join(os.Getenv(handshake.EnvSocketDir), "p"))
		if err != nil {
			return 1
		}
		fmt.Println(handshake.Line(l.Addr()))
		return hold()
	case "flood":
		go func() {
			for i := 0; ; i++ {
				fmt.Fprintf(os.Stderr, "line %d of a plugin that talks too much\n", i)
			}
		}()
	case "chatty": // on standard output, past the SDK
		return serveRaw(p, true)
	case "raw":
		return serveRaw(p, false)
	case "go-plugin":
		return serveGoPlugin(p)
	case "grandchild", "daemon": // in Configure: probes and the SDK start the program more than once
	case "slow":
		<-time.After(b.Delay)
	default:
		if !strings.HasPrefix(b.Mode, "call-") {
			fmt.Fprintln(os.Stderr, "no mode", b.Mode)
			return 1
		}
	}
	return sdk.Serve(p)
}

// hold waits to be killed.
func hold() int {
	signal.Ignore(syscall.SIGTERM)
	// Ends by itself, should the test that wants it killed be broken.
	<-time.After(2 * time.Minute)
	return 0
}

// provider is the fake one with its faults.
type provider struct {
	*fake.Provider
	b   behaviour
	log *slog.Logger
}

func (p *provider) UseLogger(log *slog.Logger) { p.log = log }

func (p *provider) Info() dataplane.Info {
	i := p.Provider.Info()
	i.Name = p.b.Name
	if p.b.Version != "" {
		i.Version = p.b.Version
	}
	if p.b.Layers != nil {
		i.Layers = p.b.Layers
	}
	if p.b.Scope != 0 {
		i.Scopes = []dataplane.Scope{p.b.Scope}
	}
	if p.b.Schema != "" {
		i.ConfigSchema = []byte(p.b.Schema)
	}
	i.ScopeRules = p.b.Rules
	return i
}

// note writes down a call.
func (p *provider) note(call string) {
	if p.b.Events == "" {
		return
	}
	f, err := os.OpenFile(p.b.Events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, p.b.Name, call)
}

func (p *provider) Cleanup(ctx context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	if p.b.Mode == "call-cleanup-fails" {
		return nil, errors.New("the broom is broken")
	}
	if what.Linger {
		p.note("cleanup, lingering")
		text, _ := os.ReadFile(p.b.Events)
		if p.b.Pending > 0 && strings.Count(string(text), p.b.Name+" cleanup, lingering") <= p.b.Pending {
			return []dataplane.CleanupItem{{Object: "rule", Result: dataplane.Pending, Message: "two connections", InstanceID: what.InstanceID}}, nil
		}
	} else {
		p.note("cleanup")
	}
	return p.Provider.Cleanup(ctx, what)
}

func (p *provider) Probe(ctx context.Context) (dataplane.Report, error) {
	switch {
	case p.b.Mode == "call-probe-error":
		return dataplane.Report{}, errors.New("the probe itself broke")
	case p.b.Mode == "call-probe-dies":
		fmt.Fprintln(os.Stderr, "the kernel looked at me")
		os.Exit(4)
	case p.b.Verdict != 0:
		return dataplane.Report{Verdict: p.b.Verdict, Checks: []dataplane.Check{
			{ID: "lucky", Required: true, Result: dataplane.Supported, Reason: "fine"},
			{ID: "kernel-moon", Required: true, Result: p.b.Verdict, Reason: "no moon", Remedy: "wait for the night"},
		}}, nil
	}
	return p.Provider.Probe(ctx)
}

func (p *provider) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	switch p.b.Mode {
	case "call-configure-panic":
		var nobody *behaviour
		return nil, errors.New(nobody.Mode)
	case "call-configure-dies":
		os.Exit(9)
	case "call-configure-refuse":
		return nil, fmt.Errorf("%w: listen: the port is cursed", dataplane.ErrInvalid)
	case "call-configure-slow":
		<-time.After(p.b.Delay)
	}
	if p.b.Mode == "grandchild" || p.b.Mode == "daemon" {
		if err := p.beget(); err != nil {
			return nil, err
		}
	}
	p.tell(c)
	p.note("configure")
	if p.log != nil {
		p.log.Debug("the plugin is configured")
	}
	if p.b.Schema != "" {
		return []dataplane.Diagnostic{{Path: "listen", Message: "is unusual"}}, nil
	}
	return p.Provider.Configure(ctx, c)
}

func (p *provider) Health(ctx context.Context) dataplane.Health {
	if p.b.Mode == "call-unhealthy" {
		return dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{"nothing goes through"}}
	}
	return p.Provider.Health(ctx)
}

// beget starts a process that holds the pipes of this one.
func (p *provider) beget() error {
	c := exec.Command("/bin/sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: p.b.Mode == "daemon"}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	return os.WriteFile(p.b.Out, []byte(fmt.Sprint(c.Process.Pid)), 0o644)
}

// tell writes down what the process sees.
func (p *provider) tell(c dataplane.Config) {
	if p.b.Out == "" || p.b.Mode == "grandchild" || p.b.Mode == "daemon" {
		return
	}
	status, _ := os.ReadFile("/proc/self/status")
	text, _ := json.Marshal(told{
		Environ: os.Environ(), Status: string(status), Config: string(c.JSON), RunDir: c.RunDir, StateDir: c.StateDir, InstanceID: c.InstanceID, PID: os.Getpid(),
	})
	_ = os.WriteFile(p.b.Out+".new", text, 0o644)
	_ = os.Rename(p.b.Out+".new", p.b.Out)
}

// told is what a plugin saw.
type told struct {
	Environ                              []string
	Status, Config                       string
	RunDir, StateDir, InstanceID, Parent string
	PID                                  int
}

// serveRaw is a plugin without the SDK that neither shuts down nor heeds
// SIGTERM.
func serveRaw(p dataplane.Provider, chatty bool) int {
	signal.Ignore(syscall.SIGTERM)
	l, err := net.Listen("unix", filepath.Join(os.Getenv(handshake.EnvSocketDir), "p"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := grpc.NewServer()
	pb.RegisterDataPlaneProviderServer(s, rawServer{p: p})
	fmt.Println(handshake.Line(l.Addr()))
	if chatty {
		go func() {
			for i := range 200000 {
				fmt.Printf("line %d on standard output, which is some 64 bytes long, about\n", i)
			}
			fmt.Fprintln(os.Stderr, "all said")
		}()
	}
	_ = s.Serve(l)
	return 0
}

// serveGoPlugin is a plugin that uses go-plugin's own server.
func serveGoPlugin(p dataplane.Provider) int {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: handshake.ProtocolVersion, MagicCookieKey: handshake.CookieKey, MagicCookieValue: handshake.CookieValue,
		},
		Plugins:    plugin.PluginSet{handshake.PluginName: rawPlugin{p: p}},
		GRPCServer: plugin.DefaultGRPCServer,
	})
	return 0
}

type rawPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	p dataplane.Provider
}

func (r rawPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pb.RegisterDataPlaneProviderServer(s, rawServer{p: r.p})
	return nil
}

func (rawPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("only a server")
}

// rawServer answers what a host needs to get a provider ready.
type rawServer struct {
	pb.UnimplementedDataPlaneProviderServer
	p dataplane.Provider
}

func (r rawServer) Info(context.Context, *pb.InfoRequest) (*pb.InfoResponse, error) {
	return transfer.EncodeInfo(r.p.Info(), 0), nil
}

func (r rawServer) Probe(ctx context.Context, _ *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	report, err := r.p.Probe(ctx)
	return transfer.EncodeReport(report), transfer.ToWire(err)
}

func (r rawServer) Configure(ctx context.Context, q *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	remarks, err := r.p.Configure(ctx, transfer.DecodeConfig(q))
	return transfer.EncodeDiagnostics(remarks), transfer.ToWire(err)
}
