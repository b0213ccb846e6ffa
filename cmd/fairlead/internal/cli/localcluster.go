package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/pluginhost"
)

const (
	localNodes = 3
	// startTimeout is far above what an idle host takes.
	startTimeout = 60 * time.Second
	// stopTimeout is above shutdown_timeout of the agents; what still runs
	// then is killed.
	stopTimeout = 8 * time.Second
	// localPort is the first port that the proxies may have.
	localPort = 8081
	// localServerPort is the first port of the agents' servers.
	localServerPort = 7411
	lockName        = "lock"
	secretName      = "secret"
)

// localServices are what runs on which node, counted from 0.
func localServices() map[string][]int { return map[string][]int{"web": {0, 1, 2}, "api": {1, 2}} }

// localOptions say what is special about a cluster.
type localOptions struct {
	dir     string
	lock    *os.File // of dir; nil: nobody else knows the directory
	metrics bool     // the proxies show theirs
	balance string   // of the services; see the configuration's key
	cable   *cable   // to the last node; nil: all are on loopback
	cgroup  string   // that the processes have for themselves; empty: none
}

// localCluster is a few agents on one host, each with instances and a proxy, all
// of them processes with their files in a directory.
type localCluster struct {
	env       Env
	dir       string
	exe       string
	proxied   bool   // the nodes have an L7 proxy
	cgroup    string // see localOptions
	plane     string // that leads the VIPs to instances, where there are any; empty: none
	metrics   bool
	balance   string
	spawner   *spawner
	sweeper   *sweeper
	ports     ports
	nodes     []*localNode
	processes []*localProcess
	took      time.Duration // until all was ready
	first     time.Duration // until a proxy answered
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// startLocalCluster starts the processes and returns when each agent sees all,
// and each proxy answers with each instance. The caller stops it, also after an
// error.
func startLocalCluster(ctx context.Context, env Env, o localOptions) (*localCluster, error) {
	began := env.Now()
	c := &localCluster{env: env, dir: o.dir, metrics: o.metrics, balance: o.balance, cgroup: o.cgroup, proxied: dataplaneHasL7(env)}
	var err error
	if c.exe, err = env.Executable(); err != nil {
		return c, fmt.Errorf("find this program: %w", err)
	}
	if c.proxied {
		if err := findL7(env, c.exe); err != nil {
			return c, err
		}
	}
	if c.spawner, err = newSpawner(func() error { return nil }); err != nil {
		return c, err
	}
	if c.sweeper, err = startSweeper(env, c.exe, o.dir, o.lock); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i := range localNodes {
		n, err := c.addNode(i, o.cable)
		if err != nil {
			return c, err
		}
		for _, service := range []string{"web", "api"} {
			at := slices.Index(localServices()[service], i)
			if at < 0 {
				continue
			}
			if err := c.startInstance(ctx, n, instanceSpec{Service: service, ID: fmt.Sprintf("%s-%d", service, at+1), Node: n.name}); err != nil {
				return c, err
			}
		}
	}
	if err := identity.CreateFile(c.secret(), rand.Reader); err != nil {
		return c, err
	}
	if err := c.startAgents(ctx); err != nil {
		return c, err
	}
	if err := c.awaitReady(ctx, began); err != nil {
		return c, err
	}
	c.took = env.Now().Sub(began)
	return c, nil
}

// secret is the file with the secret of this cluster, which lasts as long as it.
func (c *localCluster) secret() string { return filepath.Join(c.dir, secretName) }

// startAgents starts the first one, which has any free port, and then those that
// have to know which.
func (c *localCluster) startAgents(ctx context.Context) error {
	join := "[]"
	for i, n := range c.nodes {
		if err := c.startAgent(n, join); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		err := n.ask(ctx, "start", func(api *client.Client) (bool, error) {
			status, err := api.Status(ctx)
			join = fmt.Sprintf("[%q]", status.Addr)
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return c.each(func(n *localNode) error { return n.register(ctx, c.balance, c.cgroup != "") })
}

// each calls f for all nodes at once and returns the first error.
func (c *localCluster) each(f func(*localNode) error) error {
	errs := make(chan error, len(c.nodes))
	for _, n := range c.nodes {
		go func() { errs <- f(n) }()
	}
	var first error
	for range c.nodes {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// awaitReady waits until every agent sees all nodes and all endpoints, and every
// proxy answers with every instance.
func (c *localCluster) awaitReady(ctx context.Context, began time.Time) error {
	err := c.each(func(n *localNode) error {
		return n.ask(ctx, "see all nodes and endpoints", func(api *client.Client) (bool, error) { return c.seenBy(ctx, api) })
	})
	if err == nil && c.cgroup != "" {
		err = c.awaitLed(ctx)
	}
	if err != nil || !c.proxied {
		return err
	}
	first := make(chan time.Time, len(c.nodes))
	err = c.each(func(n *localNode) error { return c.awaitProxy(ctx, n, func() { first <- c.env.Now() }) })
	close(first)
	for at := range first {
		if d := at.Sub(began); c.first == 0 || d < c.first {
			c.first = d
		}
	}
	if err != nil {
		return err
	}
	return c.each(func(n *localNode) error {
		return n.ask(ctx, "show its proxy", func(api *client.Client) (bool, error) {
			plugins, err := api.Plugins(ctx)
			for _, p := range plugins.Plugins {
				if p.Name == l7Name && p.PID != 0 {
					n.proxyPID = p.PID
					c.sweeper.watch(p.PID)
					return true, nil
				}
			}
			return false, err
		})
	})
}

// awaitLed waits until the plane below L7 has all services and endpoints, or until it
// is clear that there is none.
func (c *localCluster) awaitLed(ctx context.Context) error {
	return c.nodes[0].ask(ctx, "lead the VIPs", func(api *client.Client) (bool, error) {
		list, err := api.Plugins(ctx)
		if err != nil {
			return false, err
		}
		for _, p := range list.Plugins {
			switch t := p.Told; {
			case !p.Chosen || p.Name == l7Name:
				continue
			case t == nil || t.Error != "" || t.Services < uint64(len(localServices())) || t.Endpoints < uint64(len(c.instances(""))) || p.PID == 0:
				return false, fmt.Errorf("%s is %s: %s", p.Name, p.State, p.Reason)
			}
			c.sweeper.watch(p.PID)
			c.plane = p.Name
			return true, nil
		}
		return len(list.Warnings) > 0, nil // it says that auto found none
	})
}

// seenBy reports whether an agent sees all nodes alive, all instances in, and a
// leader of the store.
func (c *localCluster) seenBy(ctx context.Context, api *client.Client) (bool, error) {
	members, err := api.Members(ctx)
	if err != nil {
		return false, err
	}
	alive := 0
	for _, m := range members {
		if m.State == model.StateAlive {
			alive++
		}
	}
	list, err := api.Services(ctx)
	if err != nil {
		return false, err
	}
	group, err := api.Raft(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for _, s := range list.Services {
		if on := localServices()[s.Key.Name]; s.Ready == len(on) && s.Total == len(on) {
			ready++
		}
	}
	return alive == len(c.nodes) && ready == len(localServices()) && group.LeaderName != "", nil
}

// stop ends all processes, the agents in order, and returns when none is left
// and nothing of theirs.
func (c *localCluster) stop() {
	for _, n := range c.nodes {
		if n.agent != nil {
			n.agent.signal(syscall.SIGTERM)
		}
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	await := func(p *localProcess) {
		select {
		case <-p.done:
		case <-late.C:
			late.Reset(0)
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	}
	for _, n := range c.nodes {
		if n.agent != nil {
			await(n.agent)
		}
	}
	for _, p := range c.processes {
		p.signal(syscall.SIGTERM) // instances; the proxies ended with their agents
	}
	for _, p := range c.processes {
		await(p)
	}
	if c.sweeper != nil {
		c.sweeper.close()
	}
	if c.spawner != nil {
		c.spawner.close()
	}
	c.ports.close()
}

// instances lists those of all nodes, by service.
func (c *localCluster) instances(service string) []*localInstance {
	var out []*localInstance
	for _, n := range c.nodes {
		for _, i := range n.instances {
			if i.Service == service || service == "" {
				out = append(out, i)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *localInstance) int { return -strings.Compare(a.Service, b.Service) }) // web first
	return out
}

// localVariables are what a user may set for the agents of dev and demo.
func localVariables() []string { return []string{dataplaneVariable, "FAIRLEAD_PLUGIN_DIRS"} }

const (
	dataplaneVariable = "FAIRLEAD_DATAPLANE"
	l7Name            = "l7"
	ebpfName          = "ebpf"
)

// withoutFairlead drops variables that would configure the agents otherwise.
func withoutFairlead(environ []string) []string {
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "FAIRLEAD_") || slices.Contains(localVariables(), name) {
			out = append(out, entry)
		}
	}
	return out
}

// dataplaneHasL7 reports whether the agents run the L7 proxy: they do, and
// nothing else, unless the user wishes otherwise.
func dataplaneHasL7(env Env) bool {
	return env.getenv(dataplaneVariable) == "" || slices.Contains(dataplanes(env), l7Name)
}

// dataplanes are the names that the user wishes; none if that is left to us.
func dataplanes(env Env) []string {
	var out []string
	for name := range strings.SplitSeq(env.getenv(dataplaneVariable), ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// findL7 reports the lack of the plugin before an agent would.
func findL7(env Env, exe string) error {
	found, ok := pluginhost.Discover(pluginhost.SearchOf(env.Environ, exe)).Find(l7Name)
	switch {
	case !ok:
		return fmt.Errorf("fairlead-dataplane-l7 is neither beside %s nor in FAIRLEAD_PLUGIN_DIRS: build it with `make build`, or set %s=off to do without", exe, dataplaneVariable)
	case found.Refused != nil:
		return fmt.Errorf("the plugin %s may not be used: %w", found.Path, found.Refused)
	}
	return nil
}

// loopback is the address of all nodes without a cable.
func loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }
