package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/raft/transport"
)

// Config is what a Server is made of. Fields without "optional" are required.
type Config struct {
	// Cluster is the name of the cluster, and Node that of this node.
	Cluster, Node string
	// NodeID is the id of this node, and of the server that it becomes first. Optional
	// for a static set.
	NodeID model.NodeID
	// Dir is the data directory; empty keeps everything in memory.
	Dir string
	// Set are the servers of a static set, this one included. Optional.
	Set []Peer
	// RPC is where the other servers reach this one, and API the URLs of its
	// client API; both are told to the others. Optional.
	RPC string
	API []string

	// Keeper proves who this node is, and Port is where the others reach it. Both
	// are needed for a set of several.
	Keeper *identity.Keeper
	Port   grpc.ServiceRegistrar
	Limits transport.Limits

	// HeartbeatInterval and ElectionTimeout are raft.Config's.
	HeartbeatInterval, ElectionTimeout time.Duration

	// Neighbours returns what gossip knows of other nodes. It is called often, from any
	// goroutine, and must not block. Optional.
	Neighbours func() []Neighbour

	// OnChange is told when there is a newer state, or when somebody else leads.
	// It must not block. Optional.
	OnChange func()

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Peer is a server of a static set.
type Peer struct {
	Name string
	Addr netip.AddrPort
}

func (c *Config) check() error {
	switch {
	case c.Cluster == "" || c.Node == "" || c.Log == nil || c.Metrics == nil:
		return errors.New("server: Cluster, Node, Log and Metrics are required")
	case !c.hasItself():
		return c.notOne()
	case len(c.Set) > 1 && (c.Keeper == nil || c.Port == nil):
		return errors.New("server: a set of several needs cluster.secret_file and rpc.listen: servers talk under mutual TLS only")
	}
	return nil
}

// hasItself reports whether this node is of its own set.
func (c *Config) hasItself() bool {
	return len(c.Set) == 0 || slices.Contains(c.names(), c.Node)
}

func (c *Config) notOne() error {
	return fmt.Errorf("server: node.name is %s, which raft.peers does not name: it has %s", c.Node, strings.Join(c.names(), ", "))
}

// names returns those of the set, sorted.
func (c *Config) names() []string {
	var names []string
	for _, p := range c.Set {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}
