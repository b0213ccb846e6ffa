package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// MaxNodes is the largest number of nodes: their addresses are those of one /24.
const MaxNodes = 250

// Options describes a topology.
type Options struct {
	Nodes int // number of nodes, 1 to MaxNodes
}

// Topology is a switch and the nodes plugged into it. Its methods may be called by several goroutines.
type Topology struct {
	t      testing.TB // nil only while the harness tests its own death
	bridge *space
	nodes  []*Node

	mu     sync.Mutex // guards faults and the order of their loading
	faults faults

	closing sync.Once
	closed  error
}

// topologies numbers the topologies of this process, so that parallel tests never share a name.
var topologies atomic.Uint64

// New builds a topology that lives until the end of the test, removing first what killed tests left ([Sweep]). It skips or fails
// the test as [Require] does, and skips it where the kernel has no bridge or veth devices.
func New(t testing.TB, opts Options) *Topology {
	t.Helper()
	Require(t)
	if swept, err := Sweep(); err != nil {
		t.Fatal(err)
	} else if len(swept) > 0 {
		t.Logf("netns: removed leftovers of killed tests: %s", strings.Join(swept, " "))
	}
	topo, err := build(opts)
	if err != nil && strings.Contains(err.Error(), "Unknown device type") {
		t.Skipf("netns: skipped: this kernel has no bridge or no veth devices: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	topo.t = t
	t.Cleanup(func() {
		if t.Failed() {
			topo.logTails(t)
		}
		if err := topo.Close(); err != nil {
			t.Error(err)
		}
	})
	return topo
}

// Nodes returns all nodes, in order.
func (topo *Topology) Nodes() []*Node { return append([]*Node(nil), topo.nodes...) }

// Node returns the node with an index from 0.
func (topo *Topology) Node(i int) *Node { return topo.nodes[i] }

// Close kills the processes of all nodes, reaps them and removes the namespaces. It is called at the end of the test; calling it
// again does nothing and returns the same.
func (topo *Topology) Close() error {
	topo.closing.Do(func() { topo.closed = topo.tearDown() })
	return topo.closed
}

func (topo *Topology) tearDown() error {
	var errs []error
	for _, n := range topo.nodes {
		n.killProcesses()
		errs = append(errs, killInside(n.space.inode))
	}
	for _, s := range topo.spaces() {
		s.close()
		errs = append(errs, removeSpace(s.name))
	}
	return errors.Join(errs...)
}

// spaces returns the namespaces that exist, the switch last, as it is what nodes are plugged into.
func (topo *Topology) spaces() []*space {
	var all []*space
	for _, n := range topo.nodes {
		all = append(all, n.space)
	}
	if topo.bridge != nil {
		all = append(all, topo.bridge)
	}
	return all
}

// build makes the namespaces and everything in them, or nothing.
func build(opts Options) (topo *Topology, err error) {
	if opts.Nodes < 1 || opts.Nodes > MaxNodes {
		return nil, fmt.Errorf("netns: Options.Nodes is %d, want 1 to %d", opts.Nodes, MaxNodes)
	}
	number := topologies.Add(1)
	names := []string{"switch"}
	for i := range opts.Nodes {
		names = append(names, nodeName(i))
	}
	var add strings.Builder
	for i, part := range names {
		if names[i], err = spaceName(number, part); err != nil {
			return nil, err
		}
		fmt.Fprintf(&add, "netns add %s\n", names[i])
	}
	topo = &Topology{}
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, topo.Close())
		for _, name := range names {
			err = errors.Join(err, removeSpace(name))
		}
		topo = nil
	}()

	ip, err := tool("ip")
	if err != nil {
		return topo, err
	}
	if _, err = runScript(exec.Command(ip, "-batch", "-"), add.String(), (*exec.Cmd).Start); err != nil {
		return topo, err
	}
	if topo.bridge, err = openSpace(names[0]); err != nil {
		return topo, err
	}
	for i, name := range names[1:] {
		s, err := openSpace(name)
		if err != nil {
			return topo, err
		}
		topo.nodes = append(topo.nodes, newNode(topo, i, s))
	}
	return topo, topo.wire()
}

// wire plugs the nodes into the switch.
func (topo *Topology) wire() error {
	// The switch has no addresses, and should not speak.
	if err := topo.bridge.set(sysctl{"ipv6/conf/default/disable_ipv6", "1"}); err != nil {
		return err
	}
	for _, n := range topo.nodes {
		if err := n.space.set(nodeSettings()...); err != nil {
			return err
		}
	}
	lines := []string{
		// No snooping: it would swallow the multicast of neighbour discovery until a querier has been heard.
		"link add br0 type bridge mcast_snooping 0",
		"link set br0 up",
	}
	for _, n := range topo.nodes {
		lines = append(lines,
			fmt.Sprintf("link add %s type veth peer name eth0 netns %s", n.port, n.space.name),
			fmt.Sprintf("link set %s master br0 up", n.port))
	}
	if err := topo.bridge.ip(lines...); err != nil {
		return err
	}
	errs := make([]error, len(topo.nodes))
	var wg sync.WaitGroup
	for i, n := range topo.nodes {
		wg.Go(func() { errs[i] = n.plug() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// address4 and address6 are the first addresses of a node.
func address4(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(index + 1)})
}

func address6(index int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(index + 1)})
}

// logTails shows the end of what every process printed.
func (topo *Topology) logTails(t testing.TB) {
	for _, n := range topo.nodes {
		for _, p := range n.all() {
			t.Logf("netns: %s", p.tail())
		}
	}
}
