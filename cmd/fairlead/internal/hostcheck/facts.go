package hostcheck

import (
	"io/fs"
	"net/netip"
	"time"
)

// Known is a value, or why it is not known.
type Known[T any] struct {
	Value T
	Why   string // empty: Value is known
}

// needsRoot is the reason that another user does not have.
const needsRoot = "only root may see this"

// Facts is what was seen of a host.
type Facts struct {
	Config Config
	Agent  Agent

	Kernel    Kernel
	Netfilter Netfilter
	Network   Network
	Storage   Storage
	Files     Known[uint64] // descriptors that a process may have
	Planes    []Plane
	Leftovers Leftovers
}

// Config is the part of an agent's configuration that the host matters to.
type Config struct {
	Cluster    string         // its name: packets of others are not answered
	Bind       netip.AddrPort // gossip, UDP and TCP
	Advertise  netip.AddrPort
	Listen     map[string]netip.AddrPort // further TCP listeners by the name of their key
	Join       []string                  // host:port
	DataDir    string                    // empty: in memory
	Pools      []netip.Prefix            // of VIPs
	Planes     []string                  // wishes: names of data planes, and auto
	Written    bool                      // somebody wrote Planes; else they are the default, which nobody misses
	PacketSize int                       // bytes of UDP payload in a gossip packet, at most
}

// Agent is the agent that answers at the socket of the configuration.
type Agent struct {
	Answers bool
	Denied  bool     // there is a socket, and this user may not open it
	Holds   []string // its listeners, ip:port
	Members []Member // that are up, as it sees them
}

// Member is a node as the running agent sees it.
type Member struct {
	ID         string
	Name, Addr string
}

// Kernel is what the kernel offers to eBPF.
type Kernel struct {
	Release         string
	BTF             bool
	Cgroup2         []string // where it is mounted
	Cgroup          string   // of this process, below the root of cgroup2
	BPFFS           []string // where it is mounted
	UnprivilegedBPF Known[int]
	Capabilities    uint64 // effective ones of this process
}

// Netfilter is the state of iptables and conntrack.
type Netfilter struct {
	Iptables  string     // what --version says; empty: it is not installed
	Legacy    Known[int] // rules of others by variant, both families
	NFT       Known[int]
	LockHeld  Known[bool] // the xtables lock, just now
	Conntrack Known[Conntrack]
}

// Conntrack is the fill of the connection table; Max 0: it is not loaded.
type Conntrack struct{ Count, Max int }

// Network is addresses, routes and who listens.
type Network struct {
	Ports     []Port
	Addresses []Address
	Routes    []Route
	Forward   Known[int] // net.ipv4.ip_forward
	Localnet  Known[int] // net.ipv4.conf.all.route_localnet
	RPFilter  Known[int] // net.ipv4.conf.all.rp_filter
	Clock     Known[Clock]
	Peers     []Peer
}

// PortState is what a try to listen came to.
type PortState string

// The results.
const (
	PortFree      PortState = "free"
	PortTaken     PortState = "taken"
	PortForbidden PortState = "forbidden"
	PortAbsent    PortState = "absent" // the address is none of this host's
	PortUnclear   PortState = "unclear"
)

// Port is one address that an agent listens at.
type Port struct {
	Key       string // of the configuration
	Transport string // tcp or udp
	Addr      netip.AddrPort
	State     PortState
	Error     string // of PortUnclear
}

// Address is an address of this host with the network that it is in.
type Address struct {
	Device   string
	Loopback bool
	MTU      int
	Prefix   netip.Prefix
}

// Route is a route, but no default one and none of a loopback device.
type Route struct {
	Device string
	Prefix netip.Prefix
}

// Clock is what the kernel knows of its time.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration
}

// Peer is a node to join.
type Peer struct {
	Addr string
	Own  bool          // it is an address of this node
	RTT  time.Duration // the longer one of TCP and UDP
	TCP  string        // why it does not accept; empty: it does
	UDP  string        // why a ping was not answered; empty: it was, or TCP failed
}

// trouble is what is wrong with it, empty if nothing is.
func (p Peer) trouble() string {
	switch {
	case p.TCP != "":
		return p.TCP
	case p.UDP != "":
		return "accepts TCP, but " + p.UDP
	}
	return ""
}

// Storage is the data directory.
type Storage struct {
	Dir   Directory
	Fsync Known[time.Duration] // 99th percentile of small writes made durable
}

// Directory is a directory, or the nearest one above that exists.
type Directory struct {
	Exists   bool
	IsDir    bool
	Mode     fs.FileMode
	Mine     bool   // it belongs to this user
	Writable bool   // by this user; of Above if it does not exist
	Above    string // the nearest existing directory, if it does not exist
	Hidden   bool   // this user may not even see whether it exists
}

// Plane is one installed data plane, and what its probe says.
type Plane struct {
	Name    string
	Verdict string // SUPPORTED, DEGRADED, UNSUPPORTED, INCONCLUSIVE; empty: it did not answer
	Reason  string
	Remedy  string
}

// Leftovers are traces of data planes of ours.
type Leftovers struct {
	Pins   Known[[]string] // directories in the BPF file systems
	Chains Known[int]      // of iptables, FAIRLEAD-…
	Tables Known[int]      // of nftables, fairlead-…
}
