package view

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Service is a service as this node sees it. It is immutable.
type Service struct {
	Key model.ServiceKey

	// Definition is the one that counts; Key alone if nobody defines the
	// service. Its Intercept and OnEmpty are those of this node's own
	// definition, whoever's the rest is.
	Definition  model.Service
	DefinedBy   model.NodeID   // whose definition counts; 0: nobody's
	Since       int64          // unix ms of the first registration that is known, be its node up or not: it orders services that want the same
	Disagreeing []model.NodeID // nodes that are up and say otherwise, in their order

	Nodes     []model.NodeID // that define it or run instances of it, in their order
	Endpoints []Endpoint     // in the order of their ids

	// Changed is the epoch of the view in which it became what it is.
	Changed uint64
}

// Said is what one node says of a service.
type Said struct {
	Node       model.NodeID
	Definition model.Service
	Counts     bool // it is the one that counts
	Agrees     bool // it says the same as that
	Up         bool // the node is alive or suspect, or this one
}

// Endpoint is an instance that takes connections, as this node reaches it.
type Endpoint struct {
	ID          uint64 // stable while the instance keeps its name and node; not 0
	Node        model.NodeID
	Instance    string
	Addr        netip.AddrPort // for sockets of this host's network namespace
	AddrForeign netip.AddrPort // for others, and for forwarded traffic
	State       EndpointState
	Weight      uint16
	Zone        string
	DrainUntil  time.Time // of a draining one, if its service has a drain time
}

// EndpointState says how good an endpoint is.
type EndpointState uint8

// The states.
const (
	Ready    EndpointState = 0
	Suspect  EndpointState = 1 // its node is suspect
	Draining EndpointState = 2 // no new connections
)

// String prints ready, suspect or draining.
func (s EndpointState) String() string {
	return [...]string{"ready", "suspect", "draining", "unknown"}[min(s, 3)]
}

// Endpoint returns the endpoint of an id.
func (s *Service) Endpoint(id uint64) (Endpoint, bool) {
	i, found := slices.BinarySearchFunc(s.Endpoints, id, func(e Endpoint, id uint64) int { return cmp.Compare(e.ID, id) })
	if !found {
		return Endpoint{}, false
	}
	return s.Endpoints[i], true
}

// Definitions lists what each node that defines a service says of it, in the
// order of their ids.
func (v *View) Definitions(k model.ServiceKey) []Said {
	s := v.Service(k)
	if s == nil {
		return nil
	}
	var out []Said
	for _, id := range s.Nodes {
		n := v.Node(id)
		if d := n.part(k).definition; d != nil {
			out = append(out, Said{
				Node: id, Definition: *d, Counts: id == s.DefinedBy,
				Agrees: SameDefinition(d, &s.Definition), Up: n.rank(v.Self) == 0,
			})
		}
	}
	return out
}

// SameDefinition reports whether two nodes say the same of a service. What
// concerns one node only, and when it was registered, does not count.
func SameDefinition(a, b *model.Service) bool {
	return a.Key == b.Key && slices.Equal(a.Ports, b.Ports) && a.VIP == b.VIP && a.Balance == b.Balance && a.Affinity == b.Affinity &&
		slices.Equal(a.Hosts, b.Hosts) && slices.EqualFunc(a.Routes, b.Routes, sameRoute) && a.DrainTime == b.DrainTime
}

func sameRoute(a, b model.Route) bool {
	return a.Host == b.Host && a.PathPrefix == b.PathPrefix && maps.Equal(a.Headers, b.Headers) && slices.Equal(a.Methods, b.Methods)
}

// same compares all but Changed.
func (s *Service) same(o *Service) bool {
	return s.DefinedBy == o.DefinedBy && s.Since == o.Since && s.Definition.Registered == o.Definition.Registered &&
		s.Definition.OnEmpty == o.Definition.OnEmpty && slices.Equal(s.Definition.Intercept, o.Definition.Intercept) &&
		SameDefinition(&s.Definition, &o.Definition) && slices.Equal(s.Disagreeing, o.Disagreeing) &&
		slices.Equal(s.Nodes, o.Nodes) && slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.same)
}

func (e Endpoint) same(o Endpoint) bool {
	equal := e.DrainUntil.Equal(o.DrainUntil)
	e.DrainUntil = o.DrainUntil
	return equal && e == o
}

// define settles which definition counts, and who disagrees. nodes are those
// of s.Nodes, in their order.
func (s *Service) define(self model.NodeID, nodes []*Node) {
	s.Definition, s.DefinedBy, s.Since, s.Disagreeing = model.Service{Key: s.Key}, 0, 0, nil
	var best *Node
	var said, own *model.Service
	for _, n := range nodes {
		d := n.part(s.Key).definition
		if d == nil {
			continue
		}
		if n.ID == self {
			own = d
		}
		if best == nil || d.Registered < s.Since {
			s.Since = d.Registered
		}
		// Of equals the first stays: nodes come in the order of their ids.
		if best == nil || cmp.Or(cmp.Compare(n.rank(self), best.rank(self)), cmp.Compare(d.Registered, said.Registered)) < 0 {
			best, said = n, d
		}
	}
	if best == nil {
		return
	}
	s.Definition, s.DefinedBy = *said, best.ID
	s.Definition.Intercept, s.Definition.OnEmpty = nil, model.OnEmptyPass
	if own != nil {
		s.Definition.Intercept, s.Definition.OnEmpty = own.Intercept, own.OnEmpty
	}
	for _, n := range nodes {
		if d := n.part(s.Key).definition; d != nil && n.rank(self) == 0 && !SameDefinition(d, said) {
			s.Disagreeing = append(s.Disagreeing, n.ID)
		}
	}
}
