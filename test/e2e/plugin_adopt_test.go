package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

const serveOn = `{"fake":{"on_host_loss":"serve"}}`

// TestPluginAgentKilled: kill -9 of the agent leaves no plugin for longer than
// 3 s, and the next agent starts one of its own.
func TestPluginAgentKilled(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.install("fake", "fake")
	for range scale.N(100) {
		a.start()
		a.served(a.socketOf(a.ready("fake", 1)))
		a.kill()
		a.eventually(3*time.Second, "no plugin is left", a.noProcess)
	}
	a.start()
	a.served(a.socketOf(a.ready("fake", 1)))
	a.terminate()
	left, err := filepath.Glob(filepath.Join(a.runDir(), ".s-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("directories of starts that are left: %v, %v", left, err)
	}
}

// TestPluginServesOn: a plugin that is to outlive the agent serves on after
// kill -9 of it, each time the same process, and obeys the next one.
func TestPluginServesOn(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.args = append(a.args, "--plugins", serveOn)
	a.install("fake", "fake")
	a.start()
	life := a.ready("fake", 1)
	socket := a.socketOf(life)
	was := a.served(socket)
	for range scale.N(100) {
		a.kill()
		if p, err := serves(socket); err != nil || p.Generation != was.Generation {
			t.Fatalf("without an agent it has %+v, %v; before %+v", p, err, was)
		}
		a.start()
		next := a.ready("fake", 1)
		if next.Kind != "kept" || next.PID != life.PID {
			t.Fatalf("the next agent has a %s, pid %d; want that of before, %d", next.Kind, next.PID, life.PID)
		}
		a.obeyed(socket, 2*time.Second)
		was = a.served(socket)
	}
	a.terminate()
	if got := a.pluginProcesses(); !slices.Equal(got, []int{life.PID}) {
		t.Errorf("after an orderly stop the processes are %v, want %d: it serves until the next agent comes", got, life.PID)
	}
	if _, err := serves(socket); err != nil {
		t.Errorf("after an orderly stop: %v", err)
	}
}

// obeyed waits until the provider at a socket obeys the agent's session.
func (a *agent) obeyed(socket string, within time.Duration) {
	a.t.Helper()
	var want dataplane.Session
	a.eventually(within, "the plugin has the agent's session", func() error {
		if want == (dataplane.Session{}) {
			if _, err := a.members(); err != nil {
				return err
			}
			want = a.identity()
		}
		p, err := serves(socket)
		if err == nil && p.Session != want {
			err = fmt.Errorf("it obeys %v, want %v", p.Session, want)
		}
		return err
	})
}

// TestPluginDataDirLost: an adopted provider takes the session of an agent that
// lost its data directory, and so its identity, within 2 s of its start.
func TestPluginDataDirLost(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.args = append(a.args, "--plugins", serveOn)
	a.install("fake", "fake")
	a.start()
	life := a.ready("fake", 1)
	socket := a.socketOf(life)
	before := a.served(socket)
	a.kill()
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.obeyed(socket, 2*time.Second)
	if is := a.identity(); is.AgentID == before.Session.AgentID {
		t.Errorf("the agent is still %s: nothing was tested", is.AgentID)
	}
	if next := a.ready("fake", 1); next.PID != life.PID {
		t.Errorf("its process is %d, want %d", next.PID, life.PID)
	}
}

// TestPluginDataDirLostOfSeed: a node that lost its data directory and has nobody
// to join takes nothing away from the provider that it adopts: by the time that
// it counts as alone, the others found it.
func TestPluginDataDirLostOfSeed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	a, other := f.agents[0], f.agents[1]
	a.hosts("fake")
	a.args = append(a.args, "--plugins", serveOn)
	a.install("fake", "fake")
	other.args = []string{
		"--dataplane", "off", "--gossip.profile", "local", "--api.listen", "off",
		"--services", `[{"name":"db","port":80,"vip":"10.200.0.11","instances":[{"id":"db-1","address":"10.77.0.2:9003"}]}]`,
	}
	a.start()
	other.start()
	socket := a.socketOf(a.ready("fake", 1))
	both := func() error {
		p, err := planeAt(socket)
		if err == nil && p.services != 2 {
			err = fmt.Errorf("it has %d services, want 2", p.services)
		}
		return err
	}
	a.eventually(10*time.Second, "it has the services of both nodes", both)
	a.kill()
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.eventually(20*time.Second, "the generation is complete", func() error {
		if err := both(); err != nil {
			t.Fatalf("before the node knows its cluster: %v", err)
		}
		p, err := a.plugin("fake")
		if err == nil && (p.Told == nil || !p.Told.Complete || p.Told.Services != 2) {
			err = fmt.Errorf("told %+v", p.Told)
		}
		return err
	})
}

// TestPluginTwoAgents: agents of one host that use the same plugins, and one
// kernel, do not disturb each other.
func TestPluginTwoAgents(t *testing.T) {
	t.Parallel()
	one := newHost(t, "fake")
	kernel := one.dir + ".kernel"
	two := &agent{t: t, name: "other", node: one.node, dir: one.dir + "-other"}
	two.hosts("fake")
	one.installKernel(kernel)
	two.installKernel(kernel)
	one.start()
	two.startAt(netip.MustParseAddr("127.0.0.1"))
	life, other := one.ready("fake", 1), two.ready("fake", 1)
	one.served(one.socketOf(life))
	socket := two.socketOf(other)
	was := two.served(socket)

	unharmed := func(what string) {
		t.Helper()
		is, err := serves(socket)
		if err != nil || is.Session != was.Session || is.Generation != was.Generation {
			t.Errorf("%s: the other's plugin has %+v, %v; before %+v", what, is, err, was)
		}
		if got := two.pluginProcesses(); !slices.Equal(got, []int{other.PID}) {
			t.Errorf("%s: the other's processes are %v, want %d", what, got, other.PID)
		}
		if lost := two.entries("plugin was lost"); len(lost) > 0 {
			t.Errorf("%s: the other lost its plugin: %s", what, lost[0].Text)
		}
	}
	one.kill()
	one.eventually(3*time.Second, "the plugin of the killed one is gone", one.noProcess)
	unharmed("kill -9 of the agent")
	one.start()
	one.served(one.socketOf(one.ready("fake", 1)))
	unharmed("its return")
	one.terminate()
	unharmed("its stop")
	if kept, err := filepath.Glob(filepath.Join(kernel, "*", "applied")); err != nil || len(kept) != 2 {
		t.Errorf("in the kernel: %v, %v; want what either agent programmed, kept", kept, err)
	}
}

// aloneAt starts the reference provider by itself.
func (a *agent) aloneAt(args ...string) *netns.Process {
	a.t.Helper()
	path := a.install("fake", "fake")
	return a.node.Start(path, args)
}

// TestPluginAlone: a provider that runs by itself is adopted, whoever of the
// two starts first, and no agent ends it.
func TestPluginAlone(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	socket := a.dir + ".fake.sock"
	a.args = append(a.args, "--plugins", fmt.Sprintf(`{"fake":{"socket":%q}}`, socket))
	provider := a.aloneAt("--listen", "unix:"+socket)
	unharmed := func(what string) {
		t.Helper()
		select {
		case <-provider.Done():
			t.Fatalf("%s ended the provider:\n%s", what, provider.Output())
		default:
		}
		if _, err := serves(socket); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.eventually(5*time.Second, "it listens", func() error { _, err := os.Stat(socket); return err })
	a.start()
	if life := a.ready("fake", 1); life.Kind != "alone" {
		t.Errorf("it is a %s", life.Kind)
	}
	a.obeyed(socket, 5*time.Second)
	a.kill()
	unharmed("kill -9 of the agent")
	a.start()
	a.obeyed(socket, 5*time.Second)
	a.terminate()
	unharmed("a stop of the agent")
	a.start()
	a.obeyed(socket, 5*time.Second)

	provider.Kill()
	a.eventually(5*time.Second, "the loss is in the log", func() error { return a.printed("plugin was lost", `"fake"`) })
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	provider = a.aloneAt("--listen", "unix:"+socket)
	a.ready("fake", 2)
	a.obeyed(socket, 5*time.Second)
	if n := len(a.pluginProcesses()); n != 1 {
		t.Errorf("%d processes, want the one that runs by itself", n)
	}
}

// TestPluginFollows: a provider that pulls from the agent, by its socket or by its
// address, gets its services, and again from the next agent.
func TestPluginFollows(t *testing.T) {
	for _, by := range []string{"socket", "address"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			a := newHost(t, "off")
			from := "unix:" + a.socket()
			if by == "address" {
				from = "127.0.0.1:7402"
				a.args = append(a.args, "--api.listen", from)
			}
			socket := a.dir + ".fake.sock"
			provider := a.aloneAt("--listen", "unix:"+socket, "--follow", from, "--instance-id", "alone")
			a.start()
			a.obeyed(socket, 10*time.Second)
			a.served(socket)
			a.kill()
			if _, err := serves(socket); err != nil {
				t.Errorf("without an agent: %v", err)
			}
			a.start()
			a.obeyed(socket, 15*time.Second)
			a.eventually(5*time.Second, "the agent tells of it", a.following(1))
			a.terminate()
			select {
			case <-provider.Done():
				t.Errorf("it ended:\n%s", provider.Output())
			default:
			}
			if strings.Contains(provider.Output(), "panic") {
				t.Error(provider.Output())
			}
		})
	}
}

// following is nil when so many providers follow the agent and have its service.
func (a *agent) following(want int) func() error {
	return func() error {
		n := 0
		for _, p := range a.plugins() {
			if p.How == "follows" && p.State == "following" && p.Told != nil && p.Told.Services == 1 {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d follow, want %d", n, want)
		}
		return nil
	}
}

// TestPluginFollowersOfOneName: those that follow under one name, also that of a
// plugin, get the services each, and show in nothing that the agent tells of
// another.
func TestPluginFollowersOfOneName(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	from := "127.0.0.1:7402"
	a.args = append(a.args, "--api.listen", from)
	path := a.install("fake", "fake")
	a.start()
	life := a.ready("fake", 1)
	a.served(a.socketOf(life))
	sockets := []string{a.dir + ".one.sock", a.dir + ".two.sock"}
	var providers []*netns.Process
	for i, socket := range sockets {
		providers = append(providers, a.node.Start(path, []string{"--listen", "unix:" + socket, "--follow", from, "--instance-id", fmt.Sprint("alone", i)}))
	}
	a.eventually(10*time.Second, "both follow", a.following(2))
	one, two := a.served(sockets[0]), a.served(sockets[1])
	kill(t, providers[0].Pid(), syscall.SIGKILL)
	a.eventually(10*time.Second, "one is left", a.following(1))
	if is := a.served(sockets[1]); is.Session != two.Session || is.Session != one.Session {
		t.Errorf("the other has %+v, before %+v", is, two)
	}
	p, err := a.plugin("fake")
	if err != nil || p.How != "child" || p.PID != life.PID || p.State != "ready" || p.Losses != 0 || p.Told == nil || p.Told.Error != "" {
		t.Errorf("the plugin is %+v, %v", p, err)
	}
	if n := len(a.entries("the provider was not reconciled; what it has stays in force, and it is tried again")); n > 0 {
		t.Errorf("%d failures are in the log:\n%s", n, a.proc.Output())
	}
}
