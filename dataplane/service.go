package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Key names a service.
type Key struct {
	Namespace string
	Name      string
}

// ParseKey reads "namespace/name"; without a namespace it is "default".
func ParseKey(s string) (Key, error) {
	ns, name, both := strings.Cut(s, "/")
	if !both {
		ns, name = "default", s
	}
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return Key{}, fmt.Errorf("%w: service %q: want NAME or NAMESPACE/NAME", ErrInvalid, s)
	}
	return Key{Namespace: ns, Name: name}, nil
}

// String prints "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then by name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Service is one service with its endpoints. It is immutable once it is in a
// snapshot.
type Service struct {
	Key       Key
	Frontends []Frontend
	Endpoints Endpoints
	Balance   Balance
	Affinity  Affinity
	Hosts     []string      // extra HTTP hosts
	Routes    []Route       // HTTP routes that lead here
	DrainTime time.Duration // of connections to removed endpoints
	Since     int64         // unix ms of its registration; 0: before all others
}

// Compare orders services by seniority: of two that want the same, the one
// that was registered first has it, and of those the one whose key comes first.
func (s *Service) Compare(o *Service) int {
	return cmp.Or(cmp.Compare(s.Since, o.Since), s.Key.Compare(o.Key))
}

// Frontend is an address that the data plane captures for a service.
type Frontend struct {
	Addr     netip.AddrPort
	Protocol Protocol
	Kind     FrontendKind
	OnEmpty  OnEmpty
}

// Binding is what makes a frontend unique on a node.
type Binding struct {
	Addr     netip.AddrPort
	Protocol Protocol
}

// Binding returns what no two services may share.
func (f Frontend) Binding() Binding { return Binding{Addr: f.Addr, Protocol: f.Protocol} }

// Refuses reports whether a connection is refused while there is no endpoint.
func (f Frontend) Refuses() bool {
	if f.OnEmpty == OnEmptyDefault {
		return f.Kind == FrontendVIP
	}
	return f.OnEmpty == OnEmptyRefuse
}

// Affinity keeps a client at one endpoint.
type Affinity struct {
	ByClient bool
	TTL      time.Duration // since its last connection
}

// Route matches HTTP requests; all parts that are set have to match.
type Route struct {
	Host       string
	PathPrefix string
	Headers    map[string]string
	Methods    []string
}

// Protocol is a transport. The numbers are those of the wire.
type Protocol uint8

// The transports.
const (
	TCP Protocol = 1
	UDP Protocol = 2
)

// FrontendKind says where an address comes from.
type FrontendKind uint8

// The kinds of frontends.
const (
	FrontendVIP       FrontendKind = 1 // the same on every node
	FrontendIntercept FrontendKind = 2 // of this node
)

// OnEmpty is what happens to a connection while there is no endpoint.
type OnEmpty uint8

// The choices. The default is to refuse on a VIP and to pass on an intercept
// address.
const (
	OnEmptyDefault OnEmpty = 0
	OnEmptyRefuse  OnEmpty = 1
	OnEmptyPass    OnEmpty = 2
)

// Balance is how connections are shared out.
type Balance uint8

// The policies. A provider that lacks one answers StatusPartial and takes its
// own.
const (
	BalanceDefault    Balance = 0
	BalanceRandom     Balance = 1
	BalanceRoundRobin Balance = 2
	BalanceLeastLoad  Balance = 3
	BalanceHash       Balance = 4
)

// EndpointState is what is known of an endpoint in a snapshot.
type EndpointState uint8

// The states; an endpoint that is gone is not in the snapshot.
const (
	Ready    EndpointState = 0
	Suspect  EndpointState = 1 // its node is suspected: see Usable
	Draining EndpointState = 2 // no new connections
)

// String prints tcp or udp.
func (p Protocol) String() string { return name(p, "", "tcp", "udp") }

// String prints vip or intercept.
func (k FrontendKind) String() string { return name(k, "", "vip", "intercept") }

// String prints the name of the choice.
func (o OnEmpty) String() string { return name(o, "default", "refuse", "pass") }

// String prints the name of the policy.
func (b Balance) String() string {
	return name(b, "default", "random", "round-robin", "least-load", "hash")
}

// String prints ready, suspect or draining.
func (s EndpointState) String() string { return name(s, "ready", "suspect", "draining") }

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}
