package model

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ErrServiceKey is wrapped when a text names no service.
var ErrServiceKey = errors.New("model: bad service name")

// DefaultNamespace is that of a service whose name has none.
const DefaultNamespace = "default"

// BuiltinNamespace is that of the services that the servers of the store publish
// themselves. Nobody else may register one in it.
const BuiltinNamespace = "raft"

// LeaderService is the built-in service that leads to the server that leads.
func LeaderService() ServiceKey { return ServiceKey{Namespace: BuiltinNamespace, Name: "leader"} }

// ServersService is the built-in service that leads to any server.
func ServersService() ServiceKey { return ServiceKey{Namespace: BuiltinNamespace, Name: "servers"} }

// ServiceKey names a service.
type ServiceKey struct {
	Namespace string
	Name      string
}

// Service is what a node says of a service that it runs instances of: the
// configured part, the same for all instances.
type Service struct {
	Key        ServiceKey
	Ports      []ServicePort
	VIP        netip.Addr       // zero: none
	Intercept  []netip.AddrPort // further frontends, on this node only
	OnEmpty    OnEmpty
	Balance    Balance
	Affinity   time.Duration // of a client to its endpoint; 0: none
	Hosts      []string      // extra HTTP hosts
	Routes     []Route
	DrainTime  time.Duration
	Registered int64 // unix ms; of disagreeing definitions the smallest wins
}

// ServicePort is a port that a service listens on at its VIP.
type ServicePort struct {
	Port     uint16
	Protocol Protocol
}

// Instance is one running copy of a service, owned by one node.
type Instance struct {
	ID       string // unique on its node
	Service  ServiceKey
	Addr     netip.AddrPort // on the node itself
	HostPort uint16         // at the node's address, for others; 0: Addr's port
	Weight   uint16
}

// Route matches HTTP requests; all parts that are set have to match.
type Route struct {
	Host       string
	PathPrefix string
	Headers    map[string]string
	Methods    []string
}

// Protocol is a transport.
type Protocol uint8

// The transports.
const (
	TCP Protocol = 1
	UDP Protocol = 2
)

// OnEmpty is what an intercept address does while there is no endpoint.
type OnEmpty uint8

// The choices; a VIP always refuses.
const (
	OnEmptyPass   OnEmpty = 0
	OnEmptyRefuse OnEmpty = 1
)

// Balance is how connections are shared out.
type Balance uint8

// The policies.
const (
	BalanceDefault    Balance = 0
	BalanceRandom     Balance = 1
	BalanceRoundRobin Balance = 2
	BalanceLeastLoad  Balance = 3
	BalanceHash       Balance = 4
)

// InstanceState is what its node says of an instance. The number is in the
// state vector, which has two bits for it. Append only.
type InstanceState uint8

// The states of an instance.
const (
	InstanceCritical InstanceState = 0 // not checked yet, or its check fails
	InstancePassing  InstanceState = 1
	InstanceDraining InstanceState = 2 // passing, and to get no new connections
	InstanceDrained  InstanceState = 3 // its drain time is over
)

// ParseServiceKey reads "name", "namespace/name", or "name.namespace" as DNS has it: a
// service's name has no dot.
func ParseServiceKey(s string) (ServiceKey, error) {
	ns, name, both := strings.Cut(s, "/")
	if !both {
		if name, ns, both = strings.Cut(s, "."); !both {
			ns = DefaultNamespace
		}
		if strings.Contains(ns, ".") {
			return ServiceKey{}, fmt.Errorf("%w %q: want NAME.NAMESPACE, without what follows in DNS", ErrServiceKey, s)
		}
	}
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return ServiceKey{}, fmt.Errorf("%w %q: want NAME or NAMESPACE/NAME", ErrServiceKey, s)
	}
	return ServiceKey{Namespace: ns, Name: name}, nil
}

// ParseBalance reads what Balance.String prints.
func ParseBalance(s string) (Balance, bool) {
	for b := BalanceDefault; b <= BalanceHash; b++ {
		if s == b.String() {
			return b, true
		}
	}
	return BalanceDefault, false
}

// String prints default, random, round-robin, least-load or hash.
func (b Balance) String() string {
	switch b {
	case BalanceDefault:
		return "default"
	case BalanceRandom:
		return "random"
	case BalanceRoundRobin:
		return "round-robin"
	case BalanceLeastLoad:
		return "least-load"
	case BalanceHash:
		return "hash"
	}
	return fmt.Sprintf("balance(%d)", uint8(b))
}

// String prints "namespace/name".
func (k ServiceKey) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// String prints critical, passing, draining or drained.
func (s InstanceState) String() string {
	switch s {
	case InstanceCritical:
		return "critical"
	case InstancePassing:
		return "passing"
	case InstanceDraining:
		return "draining"
	case InstanceDrained:
		return "drained"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// String prints tcp or udp.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}
