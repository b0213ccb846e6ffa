package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/runnable"
)

// fakePlugin is the main of a plugin for these tests: the test binary under the
// name of one. Its name says its verdict; what it programs is in the directory
// kernel-NAME beside it, if that is there.
func fakePlugin(name string) int {
	kernel := filepath.Join(filepath.Dir(os.Args[0]), "kernel-"+name)
	if _, err := os.Stat(kernel); err != nil {
		kernel = ""
	}
	return sdk.Serve(verdictProvider{fake.NewIn(kernel), name})
}

type verdictProvider struct {
	*fake.Provider
	name string
}

func (p verdictProvider) Info() dataplane.Info {
	i := p.Provider.Info()
	i.Name = p.name
	return i
}

func (p verdictProvider) Probe(context.Context) (dataplane.Report, error) {
	verdicts := map[string]dataplane.Verdict{
		"good": dataplane.Supported, "so": dataplane.Degraded, "no": dataplane.Unsupported, "who": dataplane.Inconclusive,
	}
	v := verdicts[p.name]
	return dataplane.Report{Verdict: v, Checks: []dataplane.Check{{ID: "moon", Required: true, Result: v, Reason: "it is " + v.String(), Remedy: "wait"}}}, nil
}

// installPlugins puts plugins of these names into a directory of the command's.
func (c *command) installPlugins(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, handshake.FilePrefix+name)
		if err := os.Link(exe, path); err != nil {
			if err := runnable.Copy(exe, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + dir)
	c.setenv("FAIRLEAD_NODE_DATA_DIR=" + filepath.Join(dir, "data"))
	return dir
}

func TestPluginList(t *testing.T) {
	c := newCommand(t)
	dir := c.installPlugins(t, "good", "so")
	if err := runnable.Write(filepath.Join(dir, handshake.FilePrefix+"text"), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := `{"decision": {"chosen": [{"name": "good"}], "rejected": [{"name": "so", "reason": "DEGRADED", "remedy": "r"}, {"name": "l7", "reason": "it is not installed", "remedy": "install it"}]}}`
	if err := os.WriteFile(filepath.Join(dir, "data", "plugins", "dataplane-choice.json"), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.run("plugin", "list", "-o", "json"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	var list pluginListJSON
	if err := json.Unmarshal([]byte(c.out.String()), &list); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, p := range list.Plugins {
		states[p.Name] = p.State + " " + p.Version + " " + strings.Join(p.Layers, ",") + " " + p.Reason
	}
	for name, want := range map[string]string{
		"good": "chosen 1.0.0 l4 ", "so": "available 1.0.0 l4 DEGRADED", "l7": "missing   it is not installed",
	} {
		if states[name] != want {
			t.Errorf("%s is %q, want %q", name, states[name], want)
		}
	}
	if !strings.HasPrefix(states["text"], "refused") || !strings.Contains(states["text"], "neither an ELF program") {
		t.Errorf("text is %q", states["text"])
	}

	// A node that keeps nothing has its choice beside its socket.
	if err := os.MkdirAll(filepath.Join(dir, "api.plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "data", "plugins"), filepath.Join(dir, "api.plugins", "state")); err != nil {
		t.Fatal(err)
	}
	c = newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + dir)
	c.setenv("FAIRLEAD_NODE_IN_MEMORY=true")
	c.setenv("FAIRLEAD_API_SOCKET=" + filepath.Join(dir, "api.sock"))
	if code := c.run("plugin", "list"); code != ExitOK || !strings.Contains(c.out.String(), "chosen") {
		t.Errorf("code %d: %s%s", code, c.out.String(), c.err.String())
	}

	c = newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + dir + ":/nowhere/at/all")
	if code := c.run("plugin", "list"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	if out := c.out.String(); !strings.Contains(out, "NAME") || !strings.Contains(out, "available") || !strings.Contains(out, " all ") {
		t.Errorf("printed\n%s", out)
	}
	if !strings.Contains(c.err.String(), "/nowhere/at/all does not exist") {
		t.Errorf("warned %s", c.err.String())
	}
}

func TestPluginInfo(t *testing.T) {
	c := newCommand(t)
	c.installPlugins(t, "good")
	if code := c.run("plugin", "info", "good"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	for _, want := range []string{"version", "1.0.0", "l4", "plugins.good.refuse", "services, NAMESPACE/NAME"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, c.out.String())
		}
	}
	c = newCommand(t)
	c.installPlugins(t, "good")
	if code := c.run("plugin", "info", "good", "-o", "json"); code != ExitOK || !strings.Contains(c.out.String(), `"name":"good"`) {
		t.Errorf("code %d, %s", code, c.out.String())
	}
	for args, want := range map[string]int{"plugin info": ExitUsage, "plugin info a b": ExitUsage, "plugin info nobody": ExitFailed} {
		c := newCommand(t)
		if code := c.run(strings.Fields(args)...); code != want {
			t.Errorf("%s: code %d, want %d: %s", args, code, want, c.err.String())
		}
	}
}

// A setting may have a type, several, or other schemas.
func TestSettingsOf(t *testing.T) {
	got := settingsOf([]byte(`{"properties": {
		"d": {"description": "any"},
		"c": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "string"}], "description": "where"},
		"b": {"type": ["integer", "null"]},
		"a": {"type": "boolean", "description": "whether"}}}`))
	want := [][3]string{{"a", "boolean", "whether"}, {"b", "integer or null", ""}, {"c", "string or array", "where"}, {"d", "", "any"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Where no plugin is, an empty list would look like an answer.
func TestNoPlugins(t *testing.T) {
	for args, code := range map[string]int{"plugin list": ExitOK, "plugin probe --all": ExitFailed, "cleanup --dry-run": ExitOK} {
		c := newCommand(t)
		c.Executable = func() (string, error) { return filepath.Join(t.TempDir(), "fairlead"), nil }
		c.installPlugins(t)
		if got := c.run(strings.Fields(args)...); got != code || !strings.Contains(c.err.String(), "no data plane is installed: put fairlead-dataplane-NAME") {
			t.Errorf("%s: code %d, want %d: %s", args, got, code, c.err.String())
		}
	}
}

func TestPluginProbeCodes(t *testing.T) {
	for args, want := range map[string]int{
		"good": ExitOK, "so": ExitDegraded, "no": ExitUnsupported, "who": ExitInconclusive, "nobody": ExitFailed,
		"good so": ExitDegraded, "who no so": ExitUnsupported, "--all": ExitUnsupported, "": ExitUsage, "good --all": ExitUsage,
	} {
		c := newCommand(t)
		c.installPlugins(t, "good", "so", "no", "who")
		if code := c.run(append([]string{"plugin", "probe"}, strings.Fields(args)...)...); code != want {
			t.Errorf("probe %s: code %d, want %d\n%s%s", args, code, want, c.out.String(), c.err.String())
		}
	}
}

func TestPluginProbeOutput(t *testing.T) {
	c := newCommand(t)
	c.installPlugins(t, "no")
	if code := c.run("plugin", "probe", "no", "nobody", "-o", "json"); code != ExitFailed {
		t.Errorf("code %d: %s", code, c.err.String())
	}
	var got []probeJSON
	if err := json.Unmarshal([]byte(c.out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Verdict != "UNSUPPORTED" || got[0].Checks[0].Remedy != "wait" || got[1].Verdict != "" || !strings.Contains(got[1].Error, "not installed") {
		t.Errorf("printed %+v", got)
	}
	c = newCommand(t)
	c.installPlugins(t, "no")
	c.run("plugin", "probe", "no", "nobody")
	for _, want := range []string{"UNSUPPORTED", "moon", "it is UNSUPPORTED\n", "→ wait\n", "failed", "not installed"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, c.out.String())
		}
	}
}

// list and probe wait for a plugin as long as its settings say.
func TestPluginStartTimeoutIsObeyed(t *testing.T) {
	for args, code := range map[string]int{"list": ExitOK, "probe mute": ExitFailed, "info mute": ExitFailed} {
		c := newCommand(t)
		dir := c.installPlugins(t)
		if err := runnable.Write(filepath.Join(dir, handshake.FilePrefix+"mute"), []byte("#!/bin/sh\nexec sleep 30\n")); err != nil {
			t.Fatal(err)
		}
		c.setenv("FAIRLEAD_PLUGIN_MUTE_START_TIMEOUT=300ms")
		if got := c.run(append([]string{"plugin"}, strings.Fields(args)...)...); got != code || !strings.Contains(c.out.String()+c.err.String(), "within 300ms") {
			t.Errorf("%s: code %d, want %d: %s%s", args, got, code, c.out.String(), c.err.String())
		}
	}
}
