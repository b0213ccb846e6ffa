package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
)

// Prefixes of the network: every address of a node is in one of them.
const (
	Prefix4 = "10.77.0.0/24"
	Prefix6 = "fd77::/64"
)

// Node is one network namespace on the switch: a machine with loopback and eth0. Its methods may be called by several goroutines.
type Node struct {
	topo  *Topology
	name  string // n1 …
	port  string // the other end of eth0, in the switch
	space *space

	mu        sync.Mutex // guards what follows, and the order of address changes
	addr4     netip.Addr
	addr6     netip.Addr
	processes []*Process
}

func nodeName(index int) string { return fmt.Sprintf("n%d", index+1) }

func newNode(topo *Topology, index int, s *space) *Node {
	n := &Node{topo: topo, name: nodeName(index), port: fmt.Sprintf("p%d", index+1), space: s, addr4: address4(index)}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		n.addr6 = address6(index)
	}
	return n
}

// nodeSettings are made before eth0 exists, which inherits them.
func nodeSettings() []sysctl {
	return []sysctl{
		// Without it, removing the first address of a subnet removes the others of that subnet.
		{"ipv4/conf/all/promote_secondaries", "1"},
		// Containers often forbid IPv6 in new namespaces.
		{"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv6/conf/default/disable_ipv6", "0"},
		// Addresses work at once, and nobody asks for routers that do not exist.
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/dad_transmits", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv6/conf/default/router_solicitations", "0"},
	}
}

// plug gives the node its addresses and raises its devices.
func (n *Node) plug() error {
	lines := []string{"link set lo up"}
	for _, addr := range []netip.Addr{n.addr4, n.addr6} {
		if addr.IsValid() {
			lines = append(lines, addLine(addr))
		}
	}
	return n.space.ip(append(lines, "link set eth0 up")...)
}

// Name returns the name of the node in its topology: n1, n2, ….
func (n *Node) Name() string { return n.name }

// Namespace returns the name of the node's namespace, for `ip netns exec`.
func (n *Node) Namespace() string { return n.space.name }

// Addr returns the IPv4 address of the node: the first one, or that of the last [Node.SetAddr].
func (n *Node) Addr() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr4
}

// Addr6 returns the IPv6 address of the node, or the zero Addr where the kernel has no IPv6.
func (n *Node) Addr6() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr6
}

// SetAddr changes the address of the node, IPv4 or IPv6 by the kind of addr, as a machine that comes back with another lease: the
// old one is removed, the new one added, and nobody remembers who had it before. Connections over the old address break.
func (n *Node) SetAddr(addr netip.Addr) {
	n.topo.t.Helper()
	n.must(checkAddr(addr))
	n.mu.Lock()
	defer n.mu.Unlock()
	current := &n.addr4
	if addr.Is6() {
		current = &n.addr6
	}
	if *current == addr {
		return
	}
	if !current.IsValid() {
		n.must(fmt.Errorf("netns: no address to change to %v: this kernel has no IPv6", addr))
	}
	n.must(n.space.ip(delLine(*current), addLine(addr)))
	*current = addr
	n.must(n.topo.forgetNeighbours())
}

// AddAddr gives the node one more address. One that it has already is no error.
func (n *Node) AddAddr(addr netip.Addr) {
	n.topo.t.Helper()
	n.must(checkAddr(addr))
	n.must(n.space.ip(addLine(addr)))
	n.must(n.topo.forgetNeighbours())
}

// DelAddr takes an address of [Node.AddAddr] away.
func (n *Node) DelAddr(addr netip.Addr) {
	n.topo.t.Helper()
	n.must(checkAddr(addr))
	n.must(n.space.ip(delLine(addr)))
}

// LinkDown pulls the cable of the node: nothing goes in or out, addresses and sockets stay. LinkUp plugs it in again.
func (n *Node) LinkDown() {
	n.topo.t.Helper()
	n.must(n.topo.bridge.ip("link set " + n.port + " down"))
}

// LinkUp undoes [Node.LinkDown].
func (n *Node) LinkUp() {
	n.topo.t.Helper()
	n.must(n.topo.bridge.ip("link set " + n.port + " up"))
}

// Do runs f in the namespace, on a thread of its own that dies afterwards. Sockets that f opens belong to the namespace for
// ever. Goroutines that f starts are not in it, and package net looks names up in some: give it literal addresses. f returns
// an error rather than call t.Fatal. A panic of f comes out of Do.
func (n *Node) Do(f func() error) error { return n.space.inside(f) }

// DialContext dials a literal address from the node. It fits http.Transport and grpc.WithContextDialer.
func (n *Node) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on a literal address of the node.
func (n *Node) Listen(network, address string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a datagram socket on a literal address of the node.
func (n *Node) ListenPacket(network, address string) (conn net.PacketConn, err error) {
	err = n.Do(func() error {
		conn, err = net.ListenPacket(network, address)
		return err
	})
	return conn, err
}

// must ends the test when the harness failed.
func (n *Node) must(err error) {
	n.topo.t.Helper()
	if err != nil {
		n.topo.t.Fatalf("%s: %v", n.name, err)
	}
}

// forgetNeighbours empties the tables of who has which address in all nodes: a gratuitous ARP that nobody can miss.
func (topo *Topology) forgetNeighbours() error {
	for _, n := range topo.nodes {
		if err := n.space.ip("neigh flush dev eth0"); err != nil {
			return err
		}
	}
	return nil
}

func checkAddr(addr netip.Addr) error {
	if !netip.MustParsePrefix(Prefix4).Contains(addr) && !netip.MustParsePrefix(Prefix6).Contains(addr) {
		return fmt.Errorf("netns: address %v is outside of the network: want one of %s or %s", addr, Prefix4, Prefix6)
	}
	return nil
}

func addLine(addr netip.Addr) string { return "addr replace " + onEth0(addr) }
func delLine(addr netip.Addr) string { return "addr del " + onEth0(addr) }

func onEth0(addr netip.Addr) string {
	if addr.Is4() {
		return fmt.Sprintf("%v/24 dev eth0", addr)
	}
	return fmt.Sprintf("%v/64 dev eth0 nodad", addr)
}
