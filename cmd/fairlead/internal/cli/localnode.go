package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
)

// localNode is one node of a local cluster with what runs on it.
type localNode struct {
	name      string
	dir       string
	addr      netip.Addr // of the agent and the instances
	spawner   *spawner   // of its processes
	reachable bool       // its proxy is, from here
	socket    string
	rpc       netip.AddrPort // where the other agents reach its server
	api       netip.AddrPort // where clients of the store do
	proxy     string         // HOST:PORT; empty: it has none
	metrics   string         // the same of its metrics
	proxyPID  int
	agent     *localProcess
	instances []*localInstance
}

// localInstance is one instance on it.
type localInstance struct {
	instanceSpec
	addr    string
	process *localProcess
}

func (n *localNode) file(name string) string { return filepath.Join(n.dir, name) }

// addNode makes the directory and chooses the addresses of node i.
func (c *localCluster) addNode(i int, cable *cable) (*localNode, error) {
	n := &localNode{name: nodeName(i), dir: filepath.Join(c.dir, nodeName(i)), addr: loopback(), spawner: c.spawner, reachable: true}
	n.socket = n.file("api.sock")
	if cable != nil {
		n.addr = cableNear()
		if i == localNodes-1 {
			n.addr, n.spawner, n.reachable = cableFar(), cable.far, false
		}
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, n)
	// The servers of a static set know each other's addresses from the start.
	rpc, err := c.port(localServerPort)
	if err != nil {
		return nil, err
	}
	n.rpc = netip.AddrPortFrom(n.addr, rpc.Port())
	if n.api, err = c.port(int(rpc.Port()) + 1); err != nil || !c.proxied {
		return n, err
	}
	proxy, err := c.port(localPort)
	if err != nil {
		return nil, err
	}
	n.proxy = proxy.String()
	if c.metrics {
		metrics, err := c.port(int(proxy.Port()) + 1)
		if err != nil {
			return nil, err
		}
		n.metrics = metrics.String()
	}
	return n, nil
}

// port takes the first free port of loopback from first on.
func (c *localCluster) port(first int) (netip.AddrPort, error) {
	port, err := c.ports.take(loopback(), first)
	return netip.AddrPortFrom(loopback(), uint16(port)), err
}

// startAgent writes the configuration and starts the agent.
func (c *localCluster) startAgent(n *localNode, join string) error {
	file := n.file("fairlead.yaml")
	if err := os.WriteFile(file, []byte(c.config(n, join)), 0o600); err != nil {
		return err
	}
	args := []string{"agent", "--config", file}
	if c.cgroup != "" && n != c.nodes[0] {
		// All share one kernel, so one of them programs it, and it is none that dies in a demo.
		args = append(args, "--dataplane", map[bool]string{true: l7Name, false: "off"}[c.proxied])
	}
	var err error
	n.agent, err = c.startProcess(n.spawner, "agent "+n.name, n.file("agent.log"), nil, args...)
	return err
}

// config is what the agent of a node is told: its server keeps its part of the
// store in memory.
func (c *localCluster) config(n *localNode, join string) string {
	var peers []string
	for _, p := range c.nodes {
		peers = append(peers, fmt.Sprintf("{name: %s, addr: %q}", p.name, p.rpc))
	}
	text := fmt.Sprintf(`node: {name: %s, in_memory: true}
cluster: {name: dev, join: %s, secret_file: %q}
gossip: {bind: "%v:0", profile: local, insecure: %t}
rpc: {listen: %q}
raft: {peers: [%s]}
api: {socket: %q, listen: %q}
http: {listen: "127.0.0.1:0"}
log: {level: info, format: text}
shutdown_timeout: 5s
dataplane: l7
`, n.name, join, c.secret(), n.addr, !n.addr.IsLoopback(), n.rpc, strings.Join(peers, ", "), n.socket, n.api)
	var plugins []string
	if c.cgroup != "" {
		plugins = append(plugins, fmt.Sprintf("%s: {cgroup: %q}", ebpfName, c.cgroup))
	}
	if n.proxy != "" {
		metrics := "off"
		if n.metrics != "" {
			metrics = n.metrics
		}
		plugins = append(plugins, fmt.Sprintf("l7: {listen: %q, admin: %q, announce_time: 0s, grace: 1s}", n.proxy, metrics))
	}
	return text + fmt.Sprintf("plugins: {%s}\n", strings.Join(plugins, ", "))
}

// register tells the agent what runs on its node, with VIPs or without.
func (n *localNode) register(ctx context.Context, balance string, vips bool) error {
	var text strings.Builder
	text.WriteString("services:\n")
	for _, i := range n.instances {
		vip := ""
		if vips {
			vip = fmt.Sprintf("vip: %s, ", localVIPs()[i.Service])
		}
		fmt.Fprintf(&text, "- {name: %s, port: 80, %sbalance: %s, instances: [{id: %s, address: %q, checks: [{http: %s, interval: 1s}]}]}\n",
			i.Service, vip, balance, i.ID, i.addr, healthPath)
	}
	return n.ask(ctx, "take its instances", func(api *client.Client) (bool, error) {
		_, err := api.Register(ctx, n.name, text.String(), false)
		return err == nil, err
	})
}

// ask calls until it is answered with true; until then errors are expected.
func (n *localNode) ask(ctx context.Context, what string, answered func(*client.Client) (bool, error)) error {
	var api *client.Client
	defer func() {
		if api != nil {
			_ = api.Close()
		}
	}()
	return n.poll(ctx, what, func() (ok bool, err error) {
		if api == nil {
			if api, err = client.Dial(ctx, n.socket); err != nil {
				return false, err
			}
		}
		return answered(api)
	})
}

// poll calls f until it returns true, the context ends, or the agent does.
func (n *localNode) poll(ctx context.Context, what string, f func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := f()
		if ok {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-n.agent.done:
			return fmt.Errorf("agent %s ended while starting (%w); its log:\n%s", n.name, exitReason(n.agent.err), tail(n.agent.log))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("agent %s did not %s in time (%w); its log:\n%s", n.name, what, errors.Join(ctx.Err(), last), tail(n.agent.log))
		case <-tick.C:
		}
	}
}

// awaitProxy waits until the proxy of a node answered with every instance. It
// calls answered after the first answer.
func (c *localCluster) awaitProxy(ctx context.Context, n *localNode, answered func()) error {
	if !n.reachable {
		return nil
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	h := &http.Client{Transport: transport, Timeout: time.Second}
	missing := map[string]bool{}
	for _, i := range c.instances("") {
		missing[i.ID] = true
	}
	first := true
	return n.poll(ctx, "lead its proxy to all instances", func() (bool, error) {
		for service := range localServices() {
			id, err := askProxy(ctx, h, n.proxy, service)
			if err != nil {
				return false, err
			}
			if first {
				answered()
				first = false
			}
			delete(missing, id)
		}
		return len(missing) == 0, nil
	})
}

// askProxy asks once and returns which instance answered.
func askProxy(ctx context.Context, h *http.Client, proxy, service string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxy+"/", nil)
	if err != nil {
		return "", err
	}
	r.Host = service
	answer, err := h.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers for %s with %s: %s", proxy, service, answer.Status, body)
	}
	return answer.Header.Get(instanceHeader), nil
}
