package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/scale"
)

// webService is what the agents of these tests run: one service, one endpoint.
const webService = `[{"name":"web","port":80,"vip":"10.200.0.10","instances":[{"id":"web-1","address":"127.0.0.1:9001"}]}]`

// newHost returns an agent, not started, that hosts providers by these names;
// no names is a wish that nobody wrote: auto, l7. Its plugins are installed by
// the test, and there are no others: the program stands alone (TestMain).
func newHost(t *testing.T, names ...string) *agent {
	t.Helper()
	a := newFleet(t, 1).agents[0]
	a.hosts(names...)
	return a
}

// hosts gives the agent the settings of newHost.
func (a *agent) hosts(names ...string) {
	a.args = []string{"--services", webService, "--log.format", "json", "--gossip.profile", "local", "--api.listen", "off"}
	if len(names) > 0 {
		a.args = append(a.args, "--dataplane", strings.Join(names, ","))
	}
	a.env = []string{"FAIRLEAD_PLUGIN_DIRS=" + a.pluginDir()}
}

// pluginDir is the agent's alone, so the path tells whose a process is.
func (a *agent) pluginDir() string { return a.dir + ".installed" }

func (a *agent) runDir() string { return a.dir + ".plugins" }

// install puts a program of the tests there as the plugin name.
func (a *agent) install(program, name string, flaws ...string) string {
	a.t.Helper()
	path := filepath.Join(a.pluginDir(), handshake.FilePrefix+name)
	err := os.MkdirAll(a.pluginDir(), 0o755)
	if err == nil {
		err = runnable.Copy(filepath.Join(plugins, program), path)
	}
	if err == nil && len(flaws) > 0 {
		err = os.WriteFile(path+".flaws", []byte(strings.Join(flaws, "\n")), 0o644)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return path
}

// entry is a line of an agent's log.
type entry struct {
	Msg, Plugin, Kind string
	PID               int
	Text              string `json:"-"` // the whole line
}

// entries returns the lines of the present process with this message.
func (a *agent) entries(message string) []entry {
	var out []entry
	for line := range strings.Lines(a.proc.Output()) {
		e := entry{Text: line}
		if json.Unmarshal([]byte(line), &e) == nil && e.Msg == message {
			out = append(out, e)
		}
	}
	return out
}

// ready waits until a plugin was ready for the nth time since the agent was
// started, and returns how it came.
func (a *agent) ready(name string, nth int) entry {
	a.t.Helper()
	var found entry
	a.eventually(10*time.Second, name+" is ready", func() error {
		n := 0
		for _, e := range a.entries("plugin is ready") {
			if e.Plugin == name {
				if n++; n == nth {
					found = e
					return nil
				}
			}
		}
		return fmt.Errorf("%d times, want %d", n, nth)
	})
	return found
}

// socketOf is where a plugin serves.
func (a *agent) socketOf(e entry) string {
	a.t.Helper()
	if e.Kind == "kept" {
		return filepath.Join(a.runDir(), e.Plugin+".sock")
	}
	for _, pattern := range []string{".s-*/plugin" + strconv.Itoa(e.PID), e.Plugin + ".sock"} {
		if found, _ := filepath.Glob(filepath.Join(a.runDir(), pattern)); len(found) == 1 {
			return found[0]
		}
	}
	a.t.Fatalf("no socket of %+v in %s", e, a.runDir())
	return ""
}

// plane is a provider as its socket shows it.
type plane struct {
	dataplane.State
	services uint64
}

// planeAt asks a provider what it has.
func planeAt(socket string) (plane, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(2*time.Second, 10*time.Second))
	defer cancel()
	var p plane
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return p, err
	}
	defer conn.Close()
	client := pb.NewDataPlaneProviderClient(conn)
	state, err := client.State(ctx, &pb.StateRequest{})
	if err != nil {
		return p, err
	}
	p.State = transfer.DecodeState(state)
	stats, err := client.Stats(ctx, &pb.StatsRequest{})
	if err != nil {
		return p, err
	}
	for {
		m, err := stats.Recv()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		for _, c := range m.GetCounters() {
			if c.GetName() == dataplane.GaugeServices {
				p.services = c.GetValue()
			}
		}
	}
}

// serves is nil when the provider at a socket has the agent's service.
func serves(socket string) (plane, error) {
	p, err := planeAt(socket)
	switch {
	case err != nil:
		return p, err
	case p.Generation == 0 || p.services != 1:
		return p, fmt.Errorf("generation %d with %d services, want 1", p.Generation, p.services)
	}
	return p, nil
}

// served waits until the provider at a socket has the agent's service, and all that
// there is: no other generation follows by itself.
func (a *agent) served(socket string) plane {
	a.t.Helper()
	var p plane
	a.eventually(5*time.Second, "the plugin has the service", func() (err error) {
		if p, err = serves(socket); err == nil && !p.Complete {
			err = fmt.Errorf("generation %d is not complete", p.Generation)
		}
		return err
	})
	return p
}

// identity is the agent's session, as providers have to know it.
func (a *agent) identity() dataplane.Session {
	a.t.Helper()
	all, err := a.members()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, m := range all {
		if m.Name == a.name {
			return dataplane.Session{AgentID: m.ID.String(), BootEpoch: m.Epoch}
		}
	}
	a.t.Fatalf("%s does not list itself", a.name)
	return dataplane.Session{}
}

func (a *agent) eventually(timeout time.Duration, what string, cond func() error) time.Duration {
	a.t.Helper()
	return (&fleet{t: a.t}).eventually(timeout, what, cond)
}

// pluginProcesses lists the live processes of the agent's plugins, whoever
// started them.
func (a *agent) pluginProcesses() []int {
	a.t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		a.t.Fatal(err)
	}
	var out []int
	for _, proc := range procs {
		line, err := os.ReadFile(proc + "/cmdline")
		if err != nil || !strings.HasPrefix(string(line), a.pluginDir()+"/") {
			continue // it ended, is a zombie, or another's
		}
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// noProcess is nil when no process of the agent's plugins is left.
func (a *agent) noProcess() error {
	if left := a.pluginProcesses(); len(left) > 0 {
		return fmt.Errorf("processes %v are left", left)
	}
	return nil
}

// terminate ends the agent by SIGTERM and returns how long that took.
func (a *agent) terminate() time.Duration {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	a.proc.Signal(syscall.SIGTERM)
	if err := a.proc.Wait(ctx); err != nil {
		a.t.Fatalf("the agent ended with %v", err)
	}
	return time.Since(begun)
}
