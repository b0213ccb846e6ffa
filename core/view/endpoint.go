package view

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/fairlead/fairlead/core/model"
)

// Reason says why an instance is an endpoint, or why it is none. Scripts match
// the words.
type Reason string

// The reasons. The first three are those of endpoints.
const (
	ReasonReady     Reason = "ready"
	ReasonSuspect   Reason = "node-suspect"
	ReasonDraining  Reason = "draining"
	ReasonFailing   Reason = "failing" // not checked yet, or its check fails
	ReasonDrained   Reason = "drained"
	ReasonNodeDead  Reason = "node-dead"
	ReasonNodeLeft  Reason = "node-left"
	ReasonLocalOnly Reason = "local-only" // listens on loopback without a host port: its own node only
	ReasonNoAddress Reason = "no-address" // its node has no address to reach it at
	ReasonNotLeader Reason = "not-leader" // of model.LeaderService: its node does not lead, or another one since
)

// Placement is an instance and why it is an endpoint or is none.
type Placement struct {
	Node     model.NodeID
	Instance string
	Addr     netip.AddrPort // where it listens, on its node
	Weight   uint16
	State    model.InstanceState // what its node says of it
	Since    time.Time           // of State, on this node's clock
	Reason   Reason
	Detail   string    // for people, with the remedy where there is one
	Endpoint *Endpoint // nil unless it is one
}

// RemovalReason says why what was an endpoint is none any more.
type RemovalReason uint8

// The reasons.
const (
	NotRemoved   RemovalReason = 0 // it is an endpoint
	Dead         RemovalReason = 1
	Left         RemovalReason = 2
	Failing      RemovalReason = 3
	Drained      RemovalReason = 4
	Deregistered RemovalReason = 5
)

// String prints the name of the reason.
func (r RemovalReason) String() string {
	return [...]string{"not-removed", "dead", "left", "failing", "drained", "deregistered", "unknown"}[min(r, 6)]
}

// EndpointID is the id of an instance's endpoint: a hash of its service, node
// and name, never 0.
func EndpointID(k model.ServiceKey, node model.NodeID, instance string) uint64 {
	var scratch [128]byte
	b := scratch[:0]
	for _, part := range [...]string{k.Namespace, k.Name, instance} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(node))
	return max(1, xxhash.Sum64(b))
}

// place says what becomes of instance i of a node: an endpoint, or why not.
func place(self model.NodeID, n *Node, i int) (Endpoint, Reason) {
	in := &n.Record.Definition.Instances[i]
	own := n.ID == self
	e := Endpoint{Node: n.ID, Instance: in.ID, Weight: in.Weight, Zone: n.Record.Definition.Zone}
	reason := ReasonReady
	switch {
	case own || n.Value.State == model.StateAlive:
	case n.Value.State == model.StateSuspect:
		e.State, reason = Suspect, ReasonSuspect
	case n.Value.State == model.StateDead:
		return e, ReasonNodeDead
	default:
		return e, ReasonNodeLeft
	}
	if in.Service == model.LeaderService() && !n.leads {
		return e, ReasonNotLeader
	}
	switch n.Record.States[i] {
	case model.InstancePassing:
	case model.InstanceDraining:
		e.State, reason = Draining, ReasonDraining
		e.DrainUntil = drainUntil(n, i)
	case model.InstanceDrained:
		return e, ReasonDrained
	default:
		return e, ReasonFailing
	}
	local := netip.AddrPortFrom(in.Addr.Addr().Unmap(), in.Addr.Port())
	port := cmp.Or(in.HostPort, in.Addr.Port())
	advertised := netip.AddrPortFrom(n.advertise(), port)
	switch {
	case !own && local.Addr().IsLoopback() && in.HostPort == 0 && advertised.Addr().IsLoopback():
		advertised = local // the whole cluster is on one host
	case !own && local.Addr().IsLoopback() && in.HostPort == 0:
		return e, ReasonLocalOnly
	case !own && !advertised.Addr().IsValid():
		return e, ReasonNoAddress
	case !advertised.Addr().IsValid():
		advertised = local
	}
	e.Addr, e.AddrForeign = advertised, advertised
	if own {
		e.Addr = local
	}
	e.ID = EndpointID(in.Service, n.ID, in.ID)
	return e, reason
}

func drainUntil(n *Node, i int) time.Time {
	d := n.part(n.Record.Definition.Instances[i].Service).definition
	if d == nil || d.DrainTime == 0 {
		return time.Time{}
	}
	return n.Record.Since[i].Add(d.DrainTime)
}

// endpoints appends the endpoints that a node adds to a service.
func (n *Node) endpoints(list []Endpoint, self model.NodeID, k model.ServiceKey) []Endpoint {
	for _, i := range n.part(k).instances {
		if e, _ := place(self, n, i); e.ID != 0 {
			list = append(list, e)
		}
	}
	return list
}

func sortEndpoints(list []Endpoint) {
	slices.SortFunc(list, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Node, b.Node))
	})
}

// Explain lists every instance of a service, by node and in the order of its
// record, and says why it is an endpoint or is none.
func (v *View) Explain(k model.ServiceKey) []Placement {
	var out []Placement
	s := v.Service(k)
	if s == nil {
		return nil
	}
	for _, id := range s.Nodes {
		n := v.Node(id)
		for _, i := range n.part(k).instances {
			e, reason := place(v.Self, n, i)
			p := Placement{
				Node: id, Instance: e.Instance, Addr: n.Record.Definition.Instances[i].Addr, Weight: e.Weight, State: n.Record.States[i], Since: n.Record.Since[i],
				Reason: reason, Detail: detail(n, i, reason),
			}
			if e.ID != 0 {
				p.Endpoint = &e
			}
			out = append(out, p)
		}
	}
	return out
}

func detail(n *Node, i int, r Reason) string {
	in := &n.Record.Definition.Instances[i]
	switch r {
	case ReasonLocalOnly:
		return fmt.Sprintf("listens on %v and has no host port, so only node %s reaches it: set host_port to a port of that node that leads there", in.Addr, n.Name)
	case ReasonNoAddress:
		return fmt.Sprintf("node %s says no address: set its node.advertise", n.Name)
	case ReasonFailing:
		return fmt.Sprintf("not checked yet, or its check fails: node %s knows what it said", n.Name)
	case ReasonNodeDead, ReasonNodeLeft, ReasonSuspect:
		return fmt.Sprintf("node %s is %v since %s", n.Name, n.Value.State, n.Since.UTC().Format(time.RFC3339))
	case ReasonDraining, ReasonDrained:
		return "taken out of service on node " + n.Name
	case ReasonNotLeader:
		return "node " + n.Name + " does not lead the store"
	}
	return ""
}

// Removal says why the endpoint of an instance that an older view had is not
// in this one and, if its node is dead, since when it was suspected.
func (v *View) Removal(k model.ServiceKey, node model.NodeID, instance string) (RemovalReason, time.Time) {
	n := v.Node(node)
	if n == nil {
		return Dead, time.Time{} // so long that it is forgotten
	}
	for _, i := range n.part(k).instances {
		e, reason := place(v.Self, n, i)
		if e.Instance != instance {
			continue
		}
		switch reason {
		case ReasonNodeDead:
			return Dead, n.SuspectedSince
		case ReasonNodeLeft:
			return Left, time.Time{}
		case ReasonFailing, ReasonNotLeader:
			return Failing, time.Time{}
		case ReasonDrained:
			return Drained, time.Time{}
		case ReasonReady, ReasonSuspect, ReasonDraining:
			return NotRemoved, time.Time{}
		}
	}
	return Deregistered, time.Time{}
}
