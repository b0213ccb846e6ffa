package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/scale"
)

// plugins is what the agent tells of data planes, none if it does not answer.
func (a *agent) plugins() (found []client.Plugin) {
	_ = a.ask(func(ctx context.Context, c *client.Client) error {
		all, err := c.Plugins(ctx)
		found = all.Plugins
		return err
	})
	return found
}

// plugin is what the agent tells of the first data plane of a name: one that it
// hosts, if it does.
func (a *agent) plugin(name string) (client.Plugin, error) {
	all := a.plugins()
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
	}
	return client.Plugin{}, fmt.Errorf("%s is not among %+v", name, all)
}

// shows is nil when the agent tells that a data plane is in this state.
func (a *agent) shows(name, state string) error {
	p, err := a.plugin(name)
	if err == nil && p.State != state {
		err = fmt.Errorf("%s is %s, want %s: %s", name, p.State, state, p.Reason)
	}
	return err
}

// run runs a command of the command line against the agent and returns what it
// printed.
func (a *agent) run(args ...string) ([]byte, error) {
	cmd := exec.Command(fairlead, append(args, "--api", a.socket())...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return output, err
}

// restart asks the agent for a restart of a data plane.
func (a *agent) restart(name string) (p client.Plugin, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, a.socket())
	if err != nil {
		return p, err
	}
	defer c.Close()
	return c.RestartPlugin(ctx, name)
}

// TestPluginLiveState: the agent tells how its data planes fare, and `plugin list`
// and `plugin restart` show it.
func TestPluginLiveState(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	path := a.install("fake", "fake")
	a.install("flawed", "l7")
	a.start()
	life := a.ready("fake", 1)
	was := a.served(a.socketOf(life))

	type listed struct {
		Name, State, Version, Path string
		Live                       *struct {
			How        string
			PID        int
			Generation uint64
			Session    struct {
				AgentID string `json:"agent_id"`
			}
		}
	}
	// What the plugin has, the agent knows when it has the answer.
	a.eventually(5*time.Second, "the plugins are listed", func() error {
		output, err := a.run("plugin", "list", "-o", "json")
		var list struct {
			Agent   string
			Plugins []listed
		}
		if err == nil {
			err = json.Unmarshal(output, &list)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if len(list.Plugins) != 2 || list.Agent != a.socket() {
			return fmt.Errorf("listed %s", output)
		}
		p, q := list.Plugins[0], list.Plugins[1]
		if p.State != "ready" || p.Path != path || p.Live == nil || p.Live.How != "child" || p.Live.PID != life.PID ||
			p.Live.Generation < was.Generation || p.Live.Session.AgentID != was.Session.AgentID {
			return fmt.Errorf("listed %s", output)
		}
		if q.Name != "l7" || q.State != "available" || q.Live != nil {
			return fmt.Errorf("listed %s", output)
		}
		return nil
	})

	begun := time.Now()
	output, err := a.run("plugin", "restart", "fake")
	if took := time.Since(begun); err != nil || took > scale.Bound(1500*time.Millisecond, 15*time.Second) || !strings.Contains(string(output), "fake is ready, pid ") {
		t.Errorf("a restart: %v after %v: %s", err, took, output)
	}
	next := a.ready("fake", 2)
	a.served(a.socketOf(next))
	is, err := a.plugin("fake")
	if err != nil || is.PID != next.PID || is.PID == life.PID || is.Starts != 2 || is.Losses != 0 {
		t.Errorf("after the restart: %+v, %v", is, err)
	}

	kill(t, next.PID, syscall.SIGKILL)
	a.served(a.socketOf(a.ready("fake", 3)))
	if is, err = a.plugin("fake"); err != nil || is.Losses != 1 || !strings.Contains(is.Reason, "killed") {
		t.Errorf("after a loss: %+v, %v", is, err)
	}
}

// TestPluginRestartsAskedFor: a thousand restarts leave no process, descriptor or
// socket behind, and take no longer than one after a crash.
func TestPluginRestartsAskedFor(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.install("fake", "fake")
	a.start()
	a.served(a.socketOf(a.ready("fake", 1)))
	before := descriptors(t, a.proc.Pid())
	n := scale.N(1000)
	took := make([]time.Duration, 0, n)
	for range n {
		begun := time.Now()
		if p, err := a.restart("fake"); err != nil || p.State != "ready" {
			t.Fatalf("restarted: %+v, %v", p, err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	p99 := took[(n-1)*99/100]
	t.Logf("%d restarts took %v in the middle, %v p99, %v at most", n, took[n/2], p99, took[n-1])
	if p99 > scale.Bound(1500*time.Millisecond, 15*time.Second) {
		t.Errorf("restarts took %v p99, 1.5 s at most", p99)
	}
	is, err := a.plugin("fake")
	if err != nil || is.Starts != uint64(n)+1 || is.Losses != 0 {
		t.Errorf("in the end: %+v, %v", is, err)
	}
	a.eventually(5*time.Second, "nothing is left of former lives", func() error {
		if is := descriptors(t, a.proc.Pid()); is > before+1 {
			return fmt.Errorf("the agent has %d descriptors, before %d", is, before)
		}
		if got := a.pluginProcesses(); len(got) != 1 || got[0] != is.PID {
			return fmt.Errorf("processes of plugins are %v, want %d", got, is.PID)
		}
		if z := zombies(t, a.proc.Pid()); z > 0 {
			return fmt.Errorf("%d zombies", z)
		}
		starts, err := filepath.Glob(filepath.Join(a.runDir(), ".s-*"))
		if err != nil || len(starts) != 1 {
			return fmt.Errorf("directories of starts: %v, want 1", starts)
		}
		return nil
	})
	a.served(is.Socket)
}

// TestPluginMended: a plugin that was refused or rejected runs as soon as what was
// wrong is corrected, without a restart of the agent.
func TestPluginMended(t *testing.T) {
	t.Run("another file", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		path := a.install("fake", "fake")
		writeManifest(t, path, strings.Repeat("5a", 32))
		a.start()
		a.eventually(10*time.Second, "it is refused", func() error { return a.shows("fake", "refused") })
		if err := os.Remove(path + ".manifest.json"); err != nil {
			t.Fatal(err)
		}
		a.served(a.socketOf(a.ready("fake", 1)))
	})
	t.Run("other settings", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		file := a.dir + ".yaml"
		settings := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		settings("plugins: {fake: {moon: true}}\n")
		a.args = append(a.args, "--config", file)
		a.start()
		a.eventually(10*time.Second, "it is rejected", func() error { return a.shows("fake", "rejected") })
		settings("plugins: {fake: {refuse: [default/db]}}\n")
		a.proc.Signal(syscall.SIGHUP)
		a.served(a.socketOf(a.ready("fake", 1)))
	})
}
