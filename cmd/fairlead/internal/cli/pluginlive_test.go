package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/test/short"
)

// fakePlugins are the data planes of an agent in these tests.
type fakePlugins struct {
	fairleadv1.UnimplementedPluginsServer
	restarted *fairleadv1.Plugin
}

func (fakePlugins) ListPlugins(context.Context, *fairleadv1.ListPluginsRequest) (*fairleadv1.ListPluginsResponse, error) {
	since := timestamppb.New(time.Date(2026, 5, 1, 11, 0, 0, 0, time.UTC))
	return &fairleadv1.ListPluginsResponse{
		Plugins: []*fairleadv1.Plugin{
			{
				Name: "ebpf", State: "ready", How: "kept", Version: "1.2.0", Layers: []string{"l4"}, Path: "/p/ebpf", Pid: 42, Since: since,
				Starts: 3, Losses: 1, Reason: "its process ended: signal: killed", Chosen: true, ByAuto: true, Verdict: "SUPPORTED", Health: "READY",
				Reconciliation: &fairleadv1.Reconciliation{
					AgentId: "a1", BootEpoch: 2, Generation: 17, Complete: true, Services: 3, Endpoints: 9,
					Troubles: []*fairleadv1.ServiceTrouble{{Service: "default/web", Status: "REJECTED", Reason: "loop", Message: "10.0.0.1:80 is a frontend"}},
				},
			},
			{Name: "l7", State: "refused", Chosen: true, Since: since, Reason: "sha256 is wrong", Path: "/p/l7"},
			{Name: "iptables", State: "available", Path: "/p/iptables", Reason: "SUPPORTED, and ebpf comes first", Remedy: "name it"},
			{Name: "table", State: "following", How: "follows", Reconciliation: &fairleadv1.Reconciliation{Generation: 4}},
		},
		Problems: []string{"plugin directory /x does not exist"},
	}, nil
}

func (f fakePlugins) RestartPlugin(_ context.Context, r *fairleadv1.RestartPluginRequest) (*fairleadv1.RestartPluginResponse, error) {
	if r.GetName() != f.restarted.GetName() {
		return nil, status.Errorf(codes.NotFound, "this agent hosts no data plane %q", r.GetName())
	}
	return &fairleadv1.RestartPluginResponse{Plugin: f.restarted}, nil
}

func servePlugins(t *testing.T, p fakePlugins) (socket string) {
	t.Helper()
	socket = filepath.Join(short.Dir(t), "api.sock")
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(api.Backend{Plugins: p}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() { server.Stop(context.Background()) })
	return socket
}

func TestPluginListOfAnAgent(t *testing.T) {
	socket := servePlugins(t, fakePlugins{})
	c := newCommand(t)
	if code := c.run("plugin", "list", "--api", socket); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	golden(t, "plugin-list.txt", c.out.String())
	if !strings.Contains(c.err.String(), "/x does not exist") {
		t.Errorf("warned %s", c.err.String())
	}

	c = newCommand(t)
	c.setenv("FAIRLEAD_API_SOCKET=" + socket) // of the configuration
	if code := c.run("plugin", "list", "-o", "json"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	var list pluginListJSON
	if err := json.Unmarshal([]byte(c.out.String()), &list); err != nil {
		t.Fatal(err)
	}
	if list.Agent != socket || len(list.Plugins) != 4 || len(list.Decision.Chosen) != 2 || len(list.Decision.Rejected) != 1 {
		t.Fatalf("printed %s", c.out.String())
	}
	l := list.Plugins[0].Live
	if l.PID != 42 || l.Restarts != 2 || l.Generation != 17 || l.Session.BootEpoch != 2 || l.Since != "2026-05-01T11:00:00Z" || l.NotProgrammed[0].Reason != "loop" {
		t.Errorf("ebpf is %+v", l)
	}
	if list.Plugins[2].Live != nil || list.Plugins[1].Live.Session != nil {
		t.Errorf("printed %s", c.out.String())
	}
}

func TestPluginListWithoutAnAgent(t *testing.T) {
	c := newCommand(t)
	c.installPlugins(t, "good")
	socket := filepath.Join(short.Dir(t), "nobody.sock")
	if code := c.run("plugin", "list", "--api", socket); code != ExitOK || !strings.Contains(c.out.String(), "available") {
		t.Errorf("code %d: %s", code, c.out.String())
	}
	for _, want := range []string{"no agent answers at " + socket, "this is what is installed"} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("%q is not in %s", want, c.err.String())
		}
	}
}

func TestPluginRestart(t *testing.T) {
	socket := servePlugins(t, fakePlugins{restarted: &fairleadv1.Plugin{Name: "ebpf", State: "ready", How: "child", Pid: 43, Starts: 2}})
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"ebpf":         {ExitOK, "ebpf is ready, pid 43\n"},
		"ebpf -o json": {ExitOK, `"restarts":1`},
		"nobody":       {ExitFailed, "hosts no data plane"},
		"":             {ExitUsage, "exactly one NAME"},
	} {
		c := newCommand(t)
		code := c.run(append([]string{"plugin", "restart", "--api", socket}, strings.Fields(args)...)...)
		if said := c.out.String() + c.err.String(); code != want.code || !strings.Contains(said, want.text) {
			t.Errorf("restart %s: code %d, %s; want %d, %q", args, code, said, want.code, want.text)
		}
	}
	socket = servePlugins(t, fakePlugins{restarted: &fairleadv1.Plugin{Name: "ebpf", State: "crash-loop", Reason: "it is cursed"}})
	c := newCommand(t)
	if code := c.run("plugin", "restart", "ebpf", "--api", socket); code != ExitFailed || !strings.Contains(c.err.String(), "plugin ebpf is crash-loop: it is cursed") {
		t.Errorf("code %d: %s", code, c.err.String())
	}
}
