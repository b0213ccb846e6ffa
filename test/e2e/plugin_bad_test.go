package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/scale"
)

// TestPluginBadNeighbour: a bad plugin, asked for by its name, is one clear error
// that names it and the remedy, and a state that can be asked for. The agent goes
// on, and the plugin beside it serves.
func TestPluginBadNeighbour(t *testing.T) {
	for _, test := range []struct {
		flaw   string
		want   []string // in one line of the log
		state  string
		within time.Duration
	}{
		{"garbage", []string{`"ERROR"`, "fairlead-dataplane-l7", "hello, I am a web server", "writes nothing to standard output before the handshake"}, "crash-loop", 0},
		{"silent", []string{`"ERROR"`, "fairlead-dataplane-l7", "did not shake hands within 500ms", "raise plugins.l7.start_timeout"}, "crash-loop", 0},
		{"dies", []string{`"ERROR"`, "fairlead-dataplane-l7", "exit status 3", "cannot find my head", "run it by hand"}, "crash-loop", 0},
		{"version", []string{`"ERROR"`, "fairlead-dataplane-l7", "speaks version 7 of the contract", "install the build of the plugin that goes with"}, "crash-loop", 0},
		{"hash", []string{`"ERROR"`, "fairlead-dataplane-l7", "its manifest says", "install the plugin again"}, "refused", 0},
		{"writable", []string{`"ERROR"`, "fairlead-dataplane-l7", "others than its owner may write it", "chmod go-w"}, "refused", 0},
		{"settings", []string{`"ERROR"`, `"l7"`, "plugins.l7.moon", "remove it"}, "rejected", 0},
		{"flood", []string{`"WARN"`, `"l7"`, "the plugin writes more than the log takes"}, "ready", 0},
		{"hang", []string{`"WARN"`, `"l7"`, "the provider was not reconciled", "see why the provider is slow"}, "ready", 8 * time.Second},
		{"lie", []string{`"WARN"`, `"l7"`, "1 was sent, 8 was answered", "this is a fault of the provider"}, "ready", 0},
		{"children", []string{`"INFO"`, `"l7"`, "plugin is ready"}, "ready", 0},
		{"unconfigured", []string{`"ERROR"`, `"l7"`, "crash-loop", "not configured"}, "crash-loop", 8 * time.Second},
	} {
		t.Run(test.flaw, func(t *testing.T) {
			t.Parallel()
			a := newHost(t, "ebpf", "l7")
			switch test.flaw {
			case "silent":
				a.args = append(a.args, "--plugins", `{"l7":{"start_timeout":"500ms"}}`)
			case "settings":
				a.args = append(a.args, "--plugins", `{"l7":{"moon":true}}`)
			}
			a.install("flawed", "ebpf")
			path := a.install("flawed", "l7", test.flaw)
			switch test.flaw {
			case "hash":
				writeManifest(t, path, strings.Repeat("5a", 32))
			case "writable":
				if err := os.Chmod(path, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			a.start()
			good := a.ready("ebpf", 1)
			socket := a.socketOf(good)
			was := a.served(socket)
			a.eventually(max(test.within, 5*time.Second), "the error is in the log", func() error { return a.printed(test.want...) })

			a.eventually(30*time.Second, "its state is shown", func() error { return a.shows("l7", test.state) })
			if err := a.shows("ebpf", "ready"); err != nil {
				t.Error(err)
			}

			if is, err := serves(socket); err != nil || is.Generation != was.Generation {
				t.Errorf("the plugin beside it has %+v, %v; before %+v", is, err, was)
			}
			if _, err := a.members(); err != nil {
				t.Errorf("the agent does not answer: %v", err)
			}
			// 500 lines of a plugin at once, and then 100 a second; a flood is a thousand times that.
			if lines, took := strings.Count(a.proc.Output(), "\n"), time.Since(begun); lines > 1000+int(150*took.Seconds()) {
				t.Errorf("the log has %d lines after %v", lines, took)
			}
			if n := len(a.entries("plugin does not run")); n > 4 || n > 1 && (test.state == "refused" || test.state == "rejected") {
				t.Errorf("the log says %d times that it does not run", n)
			}
			if n := len(a.entries("plugin was lost")); n > 0 && test.flaw != "unconfigured" {
				t.Errorf("plugins were lost: %v", a.entries("plugin was lost"))
			}
			if took := a.terminate(); took > scale.Bound(5*time.Second, 20*time.Second) {
				t.Errorf("the stop took %v", took)
			}
			if err := a.noProcess(); err != nil {
				t.Error(err)
			}
		})
	}
}

func writeManifest(t *testing.T, plugin, sum string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"name": strings.TrimPrefix(filepath.Base(plugin), handshake.FilePrefix), "version": "1.0.0", "sha256": sum, "capabilities": []string{},
	})
	if err == nil {
		err = os.WriteFile(plugin+".manifest.json", text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refuses starts the agent and waits for its end: a code other than 0, and one
// error with all of the words. Nothing is left.
func (a *agent) refuses(start func(), words ...string) {
	a.t.Helper()
	start()
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(20*time.Second, time.Minute))
	defer cancel()
	if err := a.proc.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		a.t.Fatalf("the agent ended with %v, want an exit code", err)
	}
	if err := a.printed(append([]string{"fairlead: "}, words...)...); err != nil {
		a.t.Error(err)
	}
	if err := a.noProcess(); err != nil {
		a.t.Error(err)
	}
}

// TestPluginNamedAndUnable: who writes the name of a plugin that is not there, or
// cannot work on this host, gets an error that says why, and no agent that serves
// less than was asked for.
func TestPluginNamedAndUnable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		make func(a *agent)
		want []string
	}{
		{"missing", func(*agent) {}, []string{"dataplane names fake", "not installed", "FAIRLEAD_PLUGIN_DIRS"}},
		{"unsupported", func(a *agent) { a.install("flawed", "fake", "unsupported") }, []string{"dataplane names fake", "UNSUPPORTED", "moon: there is none", "wait for the night"}},
		{"inconclusive", func(a *agent) { a.install("flawed", "fake", "inconclusive") }, []string{"dataplane names fake", "INCONCLUSIVE", "moon: there is none", "wait for the night"}},
		{"two of one scope", func(a *agent) {
			a.args = append(a.args, "--dataplane", "fake,other")
			a.install("flawed", "fake")
			a.install("flawed", "other")
		}, []string{"two L4 providers for local traffic, fake and other", "keep one"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newHost(t, "fake")
			test.make(a)
			a.refuses(a.start, test.want...)
		})
	}
}

// mounted starts the agent in a mount namespace of its own, after these
// commands.
func (a *agent) mounted(commands string) {
	a.t.Helper()
	addr := a.node.Addr().String()
	line := fmt.Sprintf(`mount --make-rprivate /; %s; exec "$@"`, commands)
	args := append([]string{
		"-m", "sh", "-e", "-c", line, "sh", fairlead, "agent", "--node.name", a.name, "--node.data_dir", a.dir, "--gossip.bind", addr + ":7400",
		"--gossip.insecure=true", "--api.socket", a.socket(), "--http.listen", "off",
	}, a.args...)
	a.proc = a.node.Start("unshare", args, a.env...)
}

// TestPluginDirectories: what a directory does not allow is one error that
// names the directory and the remedy.
func TestPluginDirectories(t *testing.T) {
	t.Parallel()
	t.Run("run directory too long", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		deep := filepath.Join(filepath.Dir(a.dir), strings.Repeat("d", 62))
		if err := os.Mkdir(deep, 0o755); err != nil {
			t.Fatal(err)
		}
		a.args = append(a.args, "--api.socket", filepath.Join(deep, "api.sock"))
		a.refuses(a.start, deep, "bytes long and may have", "choose a shorter", "api.socket")
	})
	t.Run("run directory read-only", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		mount := fmt.Sprintf("mkdir %s && mount -t tmpfs -o ro,mode=0700 tmpfs %[1]s", a.runDir())
		a.refuses(func() { a.mounted(mount) }, a.runDir(), "read-only", "choose another", "api.socket")
	})
	t.Run("run directory read-only and no wish", func(t *testing.T) {
		t.Parallel()
		a := newHost(t)
		a.install("flawed", "ebpf")
		a.mounted(fmt.Sprintf("mkdir %s && mount -t tmpfs -o ro,mode=0700 tmpfs %[1]s", a.runDir()))
		a.eventually(5*time.Second, "the warning is in the log", func() error {
			return a.printed(`"WARN"`, "no data plane", a.runDir(), "read-only")
		})
		if _, err := a.members(); err != nil {
			t.Errorf("the agent does not answer: %v", err)
		}
	})
	t.Run("run directory noexec", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		// Nothing there is ever executed: it works.
		a.mounted(fmt.Sprintf("mkdir %s && mount -t tmpfs -o noexec,mode=0700 tmpfs %[1]s", a.runDir()))
		a.ready("fake", 1)
		a.eventually(5*time.Second, "it has the service", func() error { return a.printed("the provider has a whole snapshot", `"services":1`) })
	})
	t.Run("plugins noexec", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		path := a.install("fake", "fake")
		mount := fmt.Sprintf("mount -t tmpfs -o mode=0755 tmpfs %s.m && cp -a %[1]s/. %[1]s.m/ && mount -o remount,noexec %[1]s.m && mount --move %[1]s.m %[1]s", a.pluginDir())
		if err := os.Mkdir(a.pluginDir()+".m", 0o755); err != nil {
			t.Fatal(err)
		}
		a.mounted(mount)
		a.eventually(5*time.Second, "the error is in the log", func() error {
			return a.printed(`"ERROR"`, path, "noexec", "move the plugins, or mount it with exec")
		})
		a.eventually(5*time.Second, "its state is shown", func() error { return a.shows("fake", "refused") })
	})
}
