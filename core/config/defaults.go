package config

import (
	"net/netip"
	"path"
	"time"
)

// Ports that an address without a port, or a derived address, gets.
const (
	GossipPort = 7400
	RPCPort    = 7401
)

// AutomaticBootstrap is the default of cluster.bootstrap_expect: 1 server if
// neither the join list nor the peers file names another node, else 0.
const AutomaticBootstrap = -1

// Defaults returns the configuration of an agent for which nothing is written.
// It is complete but for node.name, which is the host name that [Load] is given.
// All addresses are on loopback: reaching other hosts is a decision that the
// operator writes down.
func Defaults() *Config {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(loopback, port) }
	return &Config{
		Node:      Node{DataDir: "/var/lib/fairlead"},
		Cluster:   Cluster{Name: "fairlead", Join: []string{}, Server: true, BootstrapExpect: AutomaticBootstrap},
		Gossip:    Gossip{Bind: at(GossipPort), Profile: "lan"},
		RPC:       RPC{MaxHandshakes: 32, MaxFrameBytes: 4 << 20, MaxQueueBytes: 64 << 20},
		Raft:      Raft{Heartbeat: 100 * time.Millisecond, Election: time.Second, Voters: 3, Peers: []RaftPeer{}},
		API:       API{Socket: "/run/fairlead/api.sock", Listen: ListenOn(at(7402))},
		HTTP:      HTTP{Listen: ListenOn(at(7403))},
		Store:     Store{Kind: "embedded", Endpoints: []string{}},
		Dataplane: Providers{"auto", "l7"},
		Plugins:   Plugins{},
		VIPPools:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, 0, 0}), 16)},
		DNS:       DNS{Listen: ListenOn(at(15353)), Zone: "mesh.internal"},
		Services:  []Service{},
		Log:       Log{Level: "info", Format: "text"},

		// Long enough for "left" to spread and for drained connections of a
		// small service, short enough for systemd's default of 90 s.
		ShutdownTimeout: 10 * time.Second,

		// Several times what a rumour takes to all of a few hundred nodes.
		ShutdownDrain: time.Second,
	}
}

// derive fills the defaults that depend on other keys.
func (c *Config) derive(origins Origins, file, hostname string) {
	if origins.Of("services_dir").Layer == LayerDefault && file != "" {
		c.ServicesDir = path.Join(path.Dir(file), "services.d")
	}
	if origins.Of("node.name").Layer == LayerDefault {
		c.Node.Name = hostname
	}
	if origins.Of("rpc.listen").Layer == LayerDefault && c.Cluster.SecretFile != "" {
		c.RPC.Listen = ListenOn(netip.AddrPortFrom(c.Gossip.Bind.Addr(), RPCPort))
	}
}

// AdvertiseAddr is the address that other nodes are told: node.advertise with
// the port of gossip.bind unless it has its own, or gossip.bind itself. The
// port is 0 if gossip.bind asks for any free port: the caller knows it once
// the socket is open.
func (c *Config) AdvertiseAddr() netip.AddrPort {
	a := c.Node.Advertise
	if !a.IsSet() {
		return c.Gossip.Bind
	}
	port := c.Gossip.Bind.Port()
	if a.port != 0 {
		port = a.port
	}
	return netip.AddrPortFrom(a.addr, port)
}

// JoinAddresses returns cluster.join with the default port where none is
// written. Names are not resolved. The entries were checked by Validate.
func (c *Config) JoinAddresses() []string {
	out := make([]string, 0, len(c.Cluster.Join))
	for _, entry := range c.Cluster.Join {
		if addr, err := joinAddress(entry); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// ServicesPath is the directory with further services, empty if there is none.
func (c *Config) ServicesPath() string {
	if c.ServicesDir == off {
		return ""
	}
	return c.ServicesDir
}

// SocketPath is the path of the API socket, empty if it is off.
func (a API) SocketPath() string {
	if a.Socket == off {
		return ""
	}
	return a.Socket
}
