package config

import (
	"net/netip"
	"time"
)

// Config is the whole configuration of one agent. Every key of the file is a
// field; the tags say:
//
//	key      its name; the path of a key is its section and its name: node.name
//	section  (on a section) the section's name with a dot
//	doc      one sentence for the reference tables and `agent --help`
//	default  the default as shown in the tables, where it is derived from others
//	unit     what a number counts
//	enum     the words allowed
//	alias    a second name for its flag
//	omit     "true" if the key is left out of what is written while it has no value
//	live     "true" if a reload (SIGHUP) applies a changed value without restart
type Config struct {
	Node      Node      `section:"node."`
	Cluster   Cluster   `section:"cluster."`
	Gossip    Gossip    `section:"gossip."`
	RPC       RPC       `section:"rpc."`
	Raft      Raft      `section:"raft."`
	API       API       `section:"api."`
	HTTP      HTTP      `section:"http."`
	Store     Store     `section:"store."`
	Dataplane Providers `key:"dataplane" live:"true" doc:"Data-plane providers that run on this node; auto takes the best L4 plane that the kernel supports, off runs none."`
	Plugins   Plugins   `key:"plugins" default:"{}" live:"true" doc:"Settings of each plugin by its name, checked by the plugin itself; one of them is also FAIRLEAD_PLUGIN_<NAME>_<KEY>."`

	VIPPools []netip.Prefix `key:"vip_pools" doc:"Prefixes of service VIPs. The first has those of the built-in services, near its end; none are allocated yet."`

	DNS      DNS       `section:"dns."`
	Services []Service `key:"services" default:"[]" live:"true" doc:"Services with instances on this node; as a flag or a variable: YAML or JSON text."`

	ServicesDir string `key:"services_dir" default:"services.d beside the configuration file" doc:"Directory of files *.yaml with further services, one or a list under services: in each; watched, so that a change needs no reload; off has none."`

	Log Log `section:"log."`

	ShutdownDrain   time.Duration `key:"shutdown_drain" doc:"How long, in a graceful stop, the instances of this node show as draining before it says left, so that others send nothing new to them; not waited for without instances or without another live node; 0 to 5m, and at most half of shutdown_timeout is used."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" doc:"How long a graceful stop may take, saying left included, before the process ends anyway; 100ms to 10m."`
}

// Node says who this node is and where it keeps its state.
type Node struct {
	Name      string    `key:"name" default:"host name" doc:"Name of this node, unique in the cluster: 1 to 63 letters, digits, dots, underscores and hyphens."`
	DataDir   string    `key:"data_dir" doc:"Directory for the node's id, its epoch and the peers file; never shared or cloned between nodes."`
	Advertise Advertise `key:"advertise" alias:"advertise-address" default:"gossip.bind" doc:"IP address, with or without port, at which the other nodes reach this one."`
	InMemory  bool      `key:"in_memory" doc:"Keep no state on disk: a restart is a new node with a new id."`
}

// Cluster says which cluster the node belongs to and how it finds it.
type Cluster struct {
	Name            string   `key:"name" doc:"Name of the cluster, the same on every node: 1 to 63 letters, digits, dots, underscores and hyphens. Packets of other clusters are dropped."`
	Join            []string `key:"join" default:"[]" doc:"Nodes to contact first, host:port (port 7400 if absent); an own address in it is ignored."`
	SecretFile      string   `key:"secret_file" doc:"File with the cluster's secrets, one a line, 32 to 256 bytes each, as fairlead keygen makes them; the first signs, all are trusted. Without it agents do not call each other."`
	Server          bool     `key:"server" doc:"Whether this node may be a server, which keeps the store and takes part in Raft."`
	BootstrapExpect int      `key:"bootstrap_expect" default:"-1 (automatic)" unit:"servers" doc:"Servers that form a new cluster together; 0 waits to be added, -1 is 1 if the join list and the peers file are empty and 0 otherwise."`
}

// Gossip is the membership protocol's socket, UDP and TCP on one port.
type Gossip struct {
	Bind     netip.AddrPort `key:"bind" doc:"Address of the gossip socket, UDP and TCP; beyond loopback it needs gossip.insecure."`
	Profile  string         `key:"profile" enum:"lan,wan,local" doc:"Set of timings: lan for one site, wan for sites with round trips above 50 ms, local for nodes on one host."`
	Insecure bool           `key:"insecure" doc:"Accept that gossip is not encrypted yet: whoever reaches the port can forge membership."`
}

// RPC is the listener for calls between agents, under mutual TLS.
type RPC struct {
	Listen        Listen `key:"listen" default:"off without cluster.secret_file, else the address of gossip.bind with port 7401" doc:"Address for calls between agents (gRPC, mutual TLS), or off; it needs cluster.secret_file."`
	MaxHandshakes int    `key:"max_handshakes" unit:"connections" doc:"Connections to rpc.listen that have not yet shown who they are, 1 to 4096; one more has the oldest closed."`
	MaxFrameBytes int    `key:"max_frame_bytes" unit:"bytes" doc:"What agents take from each other in one piece, 65536 to 16777216; the same on all servers."`
	MaxQueueBytes int    `key:"max_queue_bytes" unit:"bytes" doc:"What may wait for one server on one channel, 1048576 to 1073741824; what does not fit is lost, and Raft sends it again."`
}

// Raft holds the timings and the size of the consensus group.
type Raft struct {
	Heartbeat time.Duration `key:"heartbeat" doc:"Time between two heartbeats of the leader; 10ms to 10s."`
	Election  time.Duration `key:"election" doc:"Time without a leader after which a server stands for election; at least 5 heartbeats, at most 1m."`
	Voters    int           `key:"voters" unit:"servers" doc:"Voters that the cluster aims at, an odd number from 1 to 9."`
	Peers     []RaftPeer    `key:"peers" default:"[]" doc:"Static set of 1 to 9 servers, the same on every node; a node that it does not name is no server and asks them. As a flag or a variable: YAML or JSON text."`
}

// RaftPeer is one server of a static set.
type RaftPeer struct {
	Name string         `key:"name" doc:"The server's node.name."`
	Addr netip.AddrPort `key:"addr" doc:"Its rpc.listen address as others reach it."`
}

// API is where clients and the command line reach the agent.
type API struct {
	Socket   string `key:"socket" doc:"Unix socket of the client API, mode 0600; off disables it."`
	Listen   Listen `key:"listen" doc:"TCP address of the client API, or off; beyond loopback it needs api.tls or api.insecure."`
	TLS      APITLS `section:"tls."`
	Insecure bool   `key:"insecure" doc:"Accept a client API beyond loopback without TLS: whoever reaches the port controls the agent."`
}

// APITLS names the PEM files of the client API. All empty means no TLS.
type APITLS struct {
	Cert     string `key:"cert" doc:"PEM file with the certificate of the client API."`
	Key      string `key:"key" doc:"PEM file with its private key."`
	ClientCA string `key:"client_ca" doc:"PEM file with the authorities whose client certificates are accepted; none asks for no certificate."`
}

// HTTP is the listener for metrics, health and the dashboard.
type HTTP struct {
	Listen Listen `key:"listen" doc:"Address of metrics, health and dashboard, or off."`
}

// Store chooses where the configured state of the cluster lives.
type Store struct {
	Kind      string   `key:"kind" enum:"embedded,etcd" doc:"embedded is the agents' own replicated store, etcd an existing etcd cluster."`
	Endpoints []string `key:"endpoints" default:"[]" doc:"Addresses of the etcd cluster, host:port or http(s)://host:port."`
	TLS       StoreTLS `section:"tls."`
}

// StoreTLS names the PEM files for an etcd cluster. All empty means no TLS.
type StoreTLS struct {
	Cert string `key:"cert" doc:"PEM file with the client certificate for etcd."`
	Key  string `key:"key" doc:"PEM file with its private key."`
	CA   string `key:"ca" doc:"PEM file with the authorities that signed etcd's certificate."`
}

// DNS is the name server for services and nodes.
type DNS struct {
	Listen Listen `key:"listen" doc:"Address of the DNS server, UDP and TCP, or off."`
	Zone   string `key:"zone" doc:"Zone that the DNS server answers for."`
}

// Log is the form of the agent's log.
type Log struct {
	Level  string `key:"level" enum:"debug,info,warn,error" live:"true" doc:"Least severe level that is logged."`
	Format string `key:"format" enum:"text,json" doc:"One line of text or one JSON object per entry."`
}

// Plugins holds free-form settings by plugin name. Values are string, bool,
// int, float64, []any and map[string]any.
type Plugins map[string]map[string]any
