package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

func (a *app) devCommand() *cobra.Command {
	cgroup := ""
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of three on this host to try things with",
		Long: `Run three agents on loopback until Ctrl-C, with three instances of the service
web, two of api, and an HTTP proxy for each agent; print where they are, and
follow the transitions. Other commands find these agents by themselves when no
agent runs at the default socket. Everything is in $XDG_RUNTIME_DIR/fairlead-dev
(or fairlead-dev-UID in the directory for temporary files) and is removed in the
end, whichever way that comes.

The agents run the data plane l7 and nothing that alters this host, unless
FAIRLEAD_DATAPLANE names others: ebpf, iptables, nftables where it is installed, or
auto. With such a one, which is for root, all of it has a network namespace and a
cgroup for itself, in which the VIPs of the services lead to their instances: see
"fairlead dev exec". The first agent runs it, as all share one kernel.`,
		Example: "  fairlead dev\n  sudo FAIRLEAD_DATAPLANE=ebpf,l7 fairlead dev",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.signalled(cmd.Context(), syscall.SIGHUP) // the terminal is gone
			defer cancel()
			if cgroup == "" && wantsKernel(a.env) {
				return a.runInKernel(ctx, "dev")
			}
			return a.runDev(ctx, cgroup)
		},
	}
	cmd.Flags().StringVar(&cgroup, cgroupFlag, "", "this process is alone in its namespaces and in this cgroup")
	_ = cmd.Flags().MarkHidden(cgroupFlag) // the flag is there
	cmd.AddCommand(a.devExecCommand())
	return cmd
}

// runDev runs it in this process. cgroup is what the processes have for themselves,
// empty if nothing.
func (a *app) runDev(ctx context.Context, cgroup string) error {
	if cgroup != "" {
		if err := settle(); err != nil {
			return fmt.Errorf("dev: %w", err)
		}
	}
	dir := devDir(a.env)
	lock, err := lockDevDir(dir)
	if err != nil {
		return err
	}
	defer func() {
		_ = removeLocal(dir) // the sweeper did, if there was one
		_ = lock.Close()
	}()

	fmt.Fprintf(a.env.Stderr, "starting %d agents with their instances and proxies in %s …\n", localNodes, dir)
	// In turns, so that a few requests by hand show all instances.
	options := localOptions{dir: dir, lock: lock, balance: "round-robin", cgroup: cgroup}
	if cgroup != "" {
		options.balance = "default" // a plane in the kernel takes no turns
	}
	cluster, err := startLocalCluster(ctx, a.env, options)
	defer cluster.stop()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return fmt.Errorf("dev: %w", err)
	}
	if err := a.showDev(ctx, cluster); ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(a.env.Stderr, "stopping …")
	return nil
}

// showDev prints what runs where, and then what happens, until ctx ends.
func (a *app) showDev(ctx context.Context, cluster *localCluster) error {
	if err := a.printLocal(ctx, cluster); err != nil {
		return err
	}
	if a.output == "text" {
		if err := a.printDevHints(cluster); err != nil {
			return err
		}
	}
	api, err := client.Dial(ctx, cluster.nodes[0].socket)
	if err != nil {
		return err
	}
	defer api.Close()
	go cluster.tellEnds(ctx)
	return a.printEvents(ctx, api, 0, true, a.env.Now())
}

// localJSON is the first line of `dev -o json`, and part of what demo prints.
// Scripts rely on it: keys are added at the end and never renamed.
type localJSON struct {
	Dir       string              `json:"dir"`
	FirstSec  float64             `json:"first_answer_seconds"` // of a proxy, since the start; 0: there is none
	ReadySec  float64             `json:"ready_seconds"`        // until all was ready
	Nodes     []localNodeJSON     `json:"nodes"`
	Instances []localInstanceJSON `json:"instances"`
	// Of a dev that is isolated; else they are not there.
	Cgroup string            `json:"cgroup,omitempty"`
	VIPs   map[string]string `json:"vips,omitempty"`  // by service; led there only
	Plane  string            `json:"plane,omitempty"` // that leads them, a plugin of the first agent
}

type localNodeJSON struct {
	Name     string `json:"name"`
	Gossip   string `json:"gossip"`
	Socket   string `json:"socket"`
	PID      int    `json:"pid"`
	Proxy    string `json:"proxy"` // URL; empty: it has none
	ProxyPID int    `json:"proxy_pid"`
	Log      string `json:"log"`
	API      string `json:"api"` // HOST:PORT of the client API
}

type localInstanceJSON struct {
	Service string `json:"service"`
	ID      string `json:"id"`
	Node    string `json:"node"`
	Addr    string `json:"addr"`
	PID     int    `json:"pid"`
}

func (c *localCluster) json(ctx context.Context) (localJSON, error) {
	out := localJSON{Dir: c.dir, FirstSec: c.first.Seconds(), ReadySec: c.took.Seconds(), Cgroup: c.cgroup}
	if out.Cgroup == noCgroup {
		out.Cgroup = ""
	}
	if c.plane != "" {
		out.VIPs, out.Plane = localVIPs(), c.plane
	}
	gossip := map[string]string{}
	err := c.nodes[0].ask(ctx, "list the nodes", func(api *client.Client) (bool, error) {
		members, err := api.Members(ctx)
		for _, m := range members {
			gossip[m.Name] = m.Addr
		}
		return err == nil, err
	})
	if err != nil {
		return out, err
	}
	for _, n := range c.nodes {
		out.Nodes = append(out.Nodes, localNodeJSON{n.name, gossip[n.name], n.socket, n.agent.pid(), n.url(), n.proxyPID, n.agent.log, n.api.String()})
	}
	for _, i := range c.instances("") {
		out.Instances = append(out.Instances, localInstanceJSON{i.Service, i.ID, i.Node, i.addr, i.process.pid()})
	}
	return out, nil
}

// url is where the proxy answers.
func (n *localNode) url() string {
	if n.proxy == "" {
		return ""
	}
	return "http://" + n.proxy + "/"
}

// printLocal prints what runs where.
func (a *app) printLocal(ctx context.Context, c *localCluster) error {
	all, err := c.json(ctx)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return printJSON(a.env.Stdout, all)
	}
	nodes := [][]cell{cells("NODE", "GOSSIP", "PID", "PROXY", "PID", "SOCKET")}
	for _, n := range all.Nodes {
		pid := "-"
		if n.ProxyPID != 0 {
			pid = strconv.Itoa(n.ProxyPID)
		}
		nodes = append(nodes, cells(n.Name, n.Gossip, strconv.Itoa(n.PID), dash(n.Proxy), pid, n.Socket))
	}
	rows := append(nodes, nil, cells("SERVICE", "INSTANCE", "NODE", "ADDRESS", "PID"))
	for _, i := range all.Instances {
		rows = append(rows, cells(i.Service, i.ID, i.Node, i.Addr, strconv.Itoa(i.PID)))
	}
	if err := tables(a.env.Stdout, a.env.colour(), rows); err != nil {
		return err
	}
	if c.proxied {
		a.say("\nThe first answer came after %.2f s, all was ready after %.2f s.\n", all.FirstSec, all.ReadySec)
	} else {
		a.say("\nAll was ready after %.2f s. There is no HTTP proxy, as %s is %s.\n", all.ReadySec, dataplaneVariable, a.env.getenv(dataplaneVariable))
	}
	return nil
}

// printDevHints prints what to try, as it can be typed anywhere.
func (a *app) printDevHints(c *localCluster) error {
	first, last, me, sudo := c.nodes[0], c.nodes[len(c.nodes)-1], typedName(a.env), ""
	if os.Geteuid() == 0 && a.env.getenv("SUDO_UID") != "" { // who reads this is not root
		sudo = "sudo "
		me = sudo + me
	}
	var hints strings.Builder
	hint := func(format string, args ...any) { fmt.Fprintf(&hints, "  "+format+"\n", args...) }
	inside := ""
	if c.cgroup != "" {
		has := fmt.Sprintf("a network namespace (/proc/%d/ns/net)", first.agent.pid())
		if c.cgroup != noCgroup {
			has += " and the cgroup " + c.cgroup
		}
		led := "no data plane leads VIPs: " + me + " plugin explain says why."
		if c.plane != "" {
			led = "the data plane " + c.plane + " of " + first.name + " leads VIPs."
		}
		a.say("\nAll of it has %s for itself.\nThere %s\n", has, led)
		inside = me + " dev exec "
	}
	if c.plane != "" {
		hint("%scurl http://%s/", inside, localVIPs()["web"])
	}
	if first.proxy != "" {
		hint("%scurl -H 'Host: web' %s", inside, first.url())
	}
	for _, args := range []string{"members", "services", "endpoints web", "events --follow"} {
		hint("%s %s", me, args)
	}
	hint("%s kv put greeting hello", me)
	hint("%setcdctl --endpoints=%s get greeting", inside, first.api)
	if c.plane == ebpfName {
		hint("%s observe     # connections to VIPs", me)
	}
	hint("%skill -9 %-8d # %s, an instance", sudo, first.instances[0].process.pid(), first.instances[0].ID)
	hint("%skill -9 %-8d # the agent %s; watch below", sudo, last.agent.pid(), last.name)
	hint("%s leave --api %s", me, c.nodes[1].socket)
	_, err := fmt.Fprintf(a.env.Stdout, "\nTry in another terminal:\n%sLogs: %s. Ctrl-C stops all.\n\n", hints.String(), filepath.Join(c.dir, "n*", "*.log"))
	return err
}

// typedName is what to type for this program: its name where PATH leads to it, else
// where it is.
func typedName(env Env) string {
	const name = "fairlead"
	self, err := env.Executable()
	if err != nil {
		return name
	}
	own, err := os.Stat(self)
	if err != nil {
		return name
	}
	for _, dir := range filepath.SplitList(env.getenv("PATH")) {
		if other, err := os.Stat(filepath.Join(dir, name)); err == nil && other.Mode().IsRegular() {
			if os.SameFile(own, other) {
				return name
			}
			break // PATH leads to another one
		}
	}
	return self
}

// tellEnds says when a process ends before it is stopped.
func (c *localCluster) tellEnds(ctx context.Context) {
	for _, p := range c.processes {
		go func() {
			select {
			case <-ctx.Done():
			case <-p.done:
				if ctx.Err() == nil {
					fmt.Fprintf(c.env.Stderr, "%s (pid %d) ended: %v\n", p.name, p.pid(), exitReason(p.err))
				}
			}
		}()
	}
}

// lockPatience is how long dev waits for the end of one that was killed just now.
const lockPatience = sweepPatience + time.Second

// lockDevDir makes the directory of `fairlead dev`, takes it for this process
// and empties it. Whoever returns the lock removes the directory first.
func lockDevDir(dir string) (*os.File, error) {
	deadline := time.Now().Add(lockPatience)
	for {
		lock, err := tryLockDevDir(dir)
		if err == nil {
			err = removeNodes(dir)
			if err == nil {
				_, err = fmt.Fprintln(lock, os.Getpid())
			}
			if err != nil {
				_ = lock.Close()
				return nil, fmt.Errorf("dev: %w", err)
			}
			return lock, nil
		}
		// Without the process that took the lock, its sweeper has it, for a while.
		if !errors.Is(err, errDevRuns) || lockOwnerRuns(dir) || time.Now().After(deadline) {
			return nil, err
		}
		pause := time.NewTimer(50 * time.Millisecond)
		<-pause.C
	}
}

// lockOwnerRuns reports whether the process that took the lock last is there. A
// lock that says nothing yet was taken just now.
func lockOwnerRuns(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil {
		return false // removed just now
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

var errDevRuns = errors.New("already runs")

func tryLockDevDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("dev: %w: set XDG_RUNTIME_DIR to a directory of your own", err)
	}
	if err := checkOwned(dir); err != nil {
		return nil, fmt.Errorf("dev: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("dev: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK), err == nil && !sameFile(lock):
		_ = lock.Close()
		return nil, fmt.Errorf("dev: %w in %s: use its agents (fairlead members --api %s), or stop it first", errDevRuns, dir, devSocket(dir))
	case err == nil:
		err = lock.Truncate(0) // what a former owner said
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("dev: lock %s: %w", dir, err)
	}
	return lock, nil
}

// sameFile reports whether f is still what its name leads to.
func sameFile(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(opened, named)
}
