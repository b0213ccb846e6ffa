package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// agent is one agent of a test: a data directory, a node to run on, and the
// process while it runs.
type agent struct {
	t    *testing.T
	name string
	node *netns.Node
	dir  string // data directory and API socket
	join []string
	args []string // beyond the usual
	env  []string // likewise
	// under is a command with arguments that runs the agent as its last ones.
	under []string
	proc  *netns.Process
}

// noDataplane keeps agents that are not about data planes from choosing one: as
// root auto takes the best that is installed, for all processes of the machine.
const noDataplane = "FAIRLEAD_DATAPLANE=off"

// fleet is a set of agents in one topology, one per node.
type fleet struct {
	t      *testing.T
	topo   *netns.Topology
	agents []*agent
}

// newFleet lays out n agents named n1…; all but the first join the first.
// Nothing is started.
func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, topo: netns.New(t, netns.Options{Nodes: n})}
	root, err := os.MkdirTemp("", "fl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for i, node := range f.topo.Nodes() {
		a := &agent{t: t, name: node.Name(), node: node, dir: filepath.Join(root, node.Name()), env: []string{noDataplane}}
		if i > 0 {
			a.join = []string{f.topo.Node(0).Addr().String() + ":7400"}
		}
		f.agents = append(f.agents, a)
	}
	return f
}

// start starts all agents and waits until every one sees all alive.
func (f *fleet) start() {
	f.t.Helper()
	for _, a := range f.agents {
		a.start()
	}
	f.eventually(10*time.Second, "all see all alive", f.agreed(f.agents...))
}

// eventually is that of netns, for as long as is required or as a busy machine needs
// (see [scale.Bound]).
func eventually(t testing.TB, timeout time.Duration, cond func() error, what string, args ...any) time.Duration {
	t.Helper()
	return netns.EventuallyNil(t, scale.Bound(timeout, max(3*timeout, 15*time.Second)), cond, what, args...)
}

// eventually waits for a condition, says so in the log, and returns how long it took.
func (f *fleet) eventually(timeout time.Duration, what string, cond func() error) time.Duration {
	f.t.Helper()
	took := eventually(f.t, timeout, cond, "%s", what)
	f.t.Logf("%s after %v", what, took.Round(10*time.Millisecond))
	return took
}

func (a *agent) start() {
	a.t.Helper()
	a.startAt(a.node.Addr())
}

// startAt starts the agent bound to and advertising addr.
func (a *agent) startAt(addr netip.Addr) {
	a.t.Helper()
	bind := netip.AddrPortFrom(addr, 7400).String()
	args := []string{
		"agent", "--node.name", a.name, "--node.data_dir", a.dir, "--node.advertise", addr.String(),
		"--cluster.name", "e2e", "--cluster.join", strings.Join(a.join, ","),
		"--gossip.bind", bind, "--gossip.insecure=true",
		"--api.socket", a.socket(), "--http.listen", "off",
	}
	line := slices.Concat(a.under, []string{fairlead}, args, a.args)
	a.proc = a.node.Start(line[0], line[1:], a.env...)
}

func (a *agent) socket() string { return a.dir + ".sock" }

// kill ends the agent by SIGKILL.
func (a *agent) kill() { a.proc.Kill() }

// ask calls the agent's API.
func (a *agent) ask(do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(2*time.Second, 10*time.Second))
	defer cancel()
	c, err := client.Dial(ctx, a.socket())
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	defer c.Close()
	if err := do(ctx, c); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return nil
}

// members returns the agent's table.
func (a *agent) members() ([]client.Member, error) {
	var all []client.Member
	err := a.ask(func(ctx context.Context, c *client.Client) (err error) {
		all, err = c.Members(ctx)
		return err
	})
	return all, err
}

// events returns the transitions that the agent has seen since it started.
func (a *agent) events() []client.Event {
	a.t.Helper()
	var all []client.Event
	err := a.ask(func(ctx context.Context, c *client.Client) error {
		for e, err := range c.Events(ctx, 0, false) {
			if err != nil {
				return err
			}
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

// sees returns nil when the agent holds exactly one member of name, in state
// and, if addr is valid, at addr.
func (a *agent) sees(name string, state model.State, addr netip.Addr) error {
	all, err := a.members()
	if err != nil {
		return err
	}
	found := 0
	for _, m := range all {
		if m.Name != name {
			continue
		}
		found++
		if m.State != state {
			return fmt.Errorf("%s sees %s %v, want %v", a.name, name, m.State, state)
		}
		if want := netip.AddrPortFrom(addr, 7400).String(); addr.IsValid() && m.Addr != want {
			return fmt.Errorf("%s sees %s at %s, want %s", a.name, name, m.Addr, want)
		}
	}
	if found != 1 {
		return fmt.Errorf("%s lists %d members named %s, want 1", a.name, found, name)
	}
	return nil
}

// all is nil when check is nil for every agent.
func all(agents []*agent, check func(*agent) error) func() error {
	return func() error {
		var errs []error
		for _, a := range agents {
			errs = append(errs, check(a))
		}
		return errors.Join(errs...)
	}
}

// agreed is nil when each of the given agents sees every one of them alive, at
// its present address, and nobody else live.
func (f *fleet) agreed(agents ...*agent) func() error {
	return all(agents, func(a *agent) error {
		table, err := a.members()
		if err != nil {
			return err
		}
		live := 0
		for _, m := range table {
			if m.State.Live() {
				live++
			}
		}
		if live != len(agents) {
			return fmt.Errorf("%s sees %d live members, want %d", a.name, live, len(agents))
		}
		for _, o := range agents {
			if err := a.sees(o.name, model.StateAlive, o.node.Addr()); err != nil {
				return err
			}
		}
		return nil
	})
}

// never fails the test if an agent's history has an event of one of the kinds
// about a member of name. A suspicion that [starved] explains does not count.
func never(t *testing.T, agents []*agent, name string, kinds ...string) {
	t.Helper()
	for _, a := range agents {
		all := a.events()
		for i, e := range all {
			if !slices.Contains(kinds, e.Kind) || name != "" && e.Member.Name != name || starved(all, i) {
				continue
			}
			t.Errorf("%s saw %s %s at %v (%v → %v/%d.%d)", a.name, e.Member.Name, e.Kind, e.At.Format("15:04:05.000"),
				e.Was, e.Member.State, e.Member.Epoch, e.Member.Incarnation)
		}
	}
}

// starved reports whether an event is the suspicion of a member that ran, and that a
// busy machine did not let answer in time: the member refuted it or is about to, and
// had announced no restart. In full, where nothing else runs, none is explained so.
func starved(all []client.Event, i int) bool {
	if scale.Factor() >= 1 || all[i].Kind != "suspected" {
		return false
	}
	same := func(e client.Event) bool { return e.Member.ID == all[i].Member.ID && e.Kind != "record" }
	for _, e := range slices.Backward(all[:i]) {
		if same(e) {
			if e.Kind == "held" {
				return false
			}
			break
		}
	}
	for _, e := range all[i+1:] {
		if same(e) {
			return e.Kind == "refuted" && e.Member.Epoch == all[i].Member.Epoch
		}
	}
	return true
}

// others returns the agents but one.
func (f *fleet) others(but *agent) []*agent {
	var rest []*agent
	for _, a := range f.agents {
		if a != but {
			rest = append(rest, a)
		}
	}
	return rest
}
