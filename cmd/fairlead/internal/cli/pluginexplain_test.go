package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/test/short"
)

func (fakePlugins) ExplainPlugins(context.Context, *fairleadv1.ExplainPluginsRequest) (*fairleadv1.ExplainPluginsResponse, error) {
	moon := &fairleadv1.FailedCheck{Id: "moon", Required: true, Result: "UNSUPPORTED", Reason: "there is none", Remedy: "wait for the night"}
	return &fairleadv1.ExplainPluginsResponse{
		Wish: []string{"auto", "l7"}, Decided: timestamppb.New(time.Date(2026, 5, 1, 11, 0, 0, 0, time.UTC)),
		Chosen:   []*fairleadv1.ChosenPlugin{{Name: "iptables", ByAuto: true, Verdict: "DEGRADED", Version: "1"}, {Name: "l7", Fault: "it dies"}},
		Rejected: []*fairleadv1.RejectedPlugin{{Name: "ebpf", Reason: "UNSUPPORTED: moon: there is none", Remedy: "wait for the night"}},
		Considered: []*fairleadv1.ConsideredPlugin{
			{Name: "ebpf", Verdict: "UNSUPPORTED", Version: "1", Scopes: []string{"local"}, Checks: []*fairleadv1.FailedCheck{moon}},
			{
				Name: "iptables", Verdict: "DEGRADED", Version: "1", Scopes: []string{"local", "forwarded"},
				Checks: []*fairleadv1.FailedCheck{{Id: "ipv6", Result: "UNSUPPORTED", Reason: "no ip6tables", Remedy: "install it"}},
			},
			{Name: "l7", Fault: "it dies"},
		},
		Warnings: []string{"iptables runs as DEGRADED"},
		Leaving:  []*fairleadv1.LeavingPlugin{{Name: "nftables", InstanceId: "a1", Reason: "it stays until iptables is at work in its place, which is starting"}},
	}, nil
}

func TestPluginExplain(t *testing.T) {
	socket := servePlugins(t, fakePlugins{})
	c := newCommand(t)
	if code := c.run("plugin", "explain", "--api", socket); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	golden(t, "plugin-explain.txt", c.out.String())

	c = newCommand(t)
	if code := c.run("plugin", "explain", "--api", socket, "-o", "json"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	var e explainJSON
	if err := json.Unmarshal([]byte(c.out.String()), &e); err != nil {
		t.Fatal(err)
	}
	if e.Agent != socket || e.Written || e.Decided != "2026-05-01T11:00:00Z" || len(e.Chosen) != 2 || !e.Chosen[0].Auto || e.Chosen[1].Fault != "it dies" ||
		e.Considered[0].Checks[0].Remedy != "wait for the night" || e.Leaving[0].Instance != "a1" || e.Rejected[0].Remedy != "wait for the night" {
		t.Errorf("printed %s", c.out.String())
	}
}

// Without an agent it is what one wrote down, be it that it could not do as it was
// told; without that there is nothing to explain.
func TestPluginExplainWithoutAnAgent(t *testing.T) {
	c := newCommand(t)
	dir := c.installPlugins(t, "good")
	socket := filepath.Join(short.Dir(t), "nobody.sock")
	if code := c.run("plugin", "explain", "--api", socket); code != ExitFailed || !strings.Contains(c.err.String(), "fairlead plugin probe --all") {
		t.Errorf("code %d: %s", code, c.err.String())
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := `{"key": "", "at": "2026-05-01T11:00:00Z", "wish": {"names": ["no"], "written": true}, "error": "pluginhost: dataplane names no, which cannot run here: wait",
		"decision": {"chosen": [], "rejected": [{"name": "no", "reason": "UNSUPPORTED", "remedy": "wait"}], "warnings": [],
		"considered": [{"name": "no", "verdict": "UNSUPPORTED", "version": "1", "scopes": ["local"], "fault": "", "checks": [{"id": "moon", "required": true, "result": "UNSUPPORTED", "reason": "r", "remedy": "wait"}]}]}}`
	if err := os.WriteFile(filepath.Join(dir, "data", "plugins", "dataplane-choice.json"), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.run("plugin", "explain", "--api", socket); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	for _, want := range []string{"dataplane  no\n", "refused    pluginhost: dataplane names no", "UNSUPPORTED: wait", "moon"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, c.out.String())
		}
	}
	if !strings.Contains(c.err.String(), "what an agent chose at its last start") {
		t.Errorf("warned %s", c.err.String())
	}
}
