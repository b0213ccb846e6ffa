package view

import (
	"bytes"
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// Member is what membership says of a node.
type Member struct {
	ID    model.NodeID
	Name  string
	Addr  netip.AddrPort // of its gossip
	Value model.Value
	Since time.Time // when the state last changed, on this node's clock
}

// Node is a member with its record. It is immutable.
type Node struct {
	Member
	Role           Role
	leads          bool      // its group, as far as is known, whatever its state
	SuspectedSince time.Time // while suspect; once dead: when the last suspicion began, zero if there was none
	Record         *Record   // nil: none yet
	Problem        string    // why the newest record is not the one here
}

// Record is what a node says of itself. It is immutable.
type Record struct {
	Definition record.Definition
	States     []model.InstanceState // of the definition's instances, in their order
	Since      []time.Time           // when each took its state, on this node's clock

	parts *parts
}

// parts is a definition by services. Records with one definition share it.
type parts struct{ by map[model.ServiceKey]*local }

// local is a node's part in one service.
type local struct {
	definition *model.Service // nil: it runs instances only
	instances  []int          // positions in the record
}

// Role is what a node is to the cluster.
type Role uint8

// The roles. Append only.
const (
	RoleMember   Role = 1 // takes part, is no server
	RoleSuspect  Role = 2
	RoleFailed   Role = 3
	RoleLeft     Role = 4
	RoleLeader   Role = 5 // of its group of servers
	RoleFollower Role = 6
	RoleLearner  Role = 7 // a server that has no vote
)

// Roles yields all of them.
func Roles() iter.Seq[Role] {
	return func(yield func(Role) bool) {
		for r := RoleMember; r <= RoleLearner && yield(r); r++ {
		}
	}
}

// String prints member, suspect, failed, left, leader, follower or learner.
func (r Role) String() string {
	if r > RoleLearner {
		r = 0
	}
	return [...]string{"unknown", "member", "suspect", "failed", "left", "leader", "follower", "learner"}[r]
}

// Standing is the role of a node in a state that is no server.
func Standing(s model.State) Role {
	switch s {
	case model.StateSuspect:
		return RoleSuspect
	case model.StateDead:
		return RoleFailed
	case model.StateLeft:
		return RoleLeft
	}
	return RoleMember
}

// NewRecord returns a record all of whose instances took their state at since.
// There is one state for each instance of the definition.
func NewRecord(d record.Definition, states []model.InstanceState, since time.Time) *Record {
	p := &parts{by: make(map[model.ServiceKey]*local)}
	at := func(k model.ServiceKey) *local {
		l := p.by[k]
		if l == nil {
			l = &local{}
			p.by[k] = l
		}
		return l
	}
	for i := range d.Services {
		at(d.Services[i].Key).definition = &d.Services[i]
	}
	for i := range d.Instances {
		l := at(d.Instances[i].Service)
		l.instances = append(l.instances, i)
	}
	return (&Record{Definition: d, parts: p}).With(states, since)
}

// With returns a record of the same definition with other states. It costs
// less than NewRecord, and Apply finds sooner what is different.
func (r *Record) With(states []model.InstanceState, since time.Time) *Record {
	next := &Record{Definition: r.Definition, parts: r.parts, States: states, Since: make([]time.Time, len(states))}
	for i := range next.Since {
		next.Since[i] = since
	}
	return next
}

// after returns r, which follows was: a state that did not change keeps its
// time. It is was if nothing changed.
func (r *Record) after(was *Record) *Record {
	if was == nil {
		return r
	}
	same := r.parts == was.parts || sameDefinition(&r.Definition, &was.Definition)
	if same && slices.Equal(r.States, was.States) {
		return was
	}
	next := *r
	if same {
		next.Definition, next.parts = was.Definition, was.parts
	}
	next.Since = slices.Clone(r.Since)
	if same {
		for i, s := range next.States {
			if s == was.States[i] {
				next.Since[i] = was.Since[i]
			}
		}
		return &next
	}
	for key, l := range next.parts.by {
		before := was.parts.by[key]
		if before == nil {
			continue
		}
		for _, i := range l.instances {
			for _, j := range before.instances {
				if next.Definition.Instances[i].ID == was.Definition.Instances[j].ID && next.States[i] == was.States[j] {
					next.Since[i] = was.Since[j]
				}
			}
		}
	}
	return &next
}

// sameDefinition compares by the encoding, the one form that all nodes agree
// on. Definitions that cannot be encoded are not the same as any.
func sameDefinition(a, b *record.Definition) bool {
	if len(a.Services) != len(b.Services) || len(a.Instances) != len(b.Instances) || a.Zone != b.Zone || a.Advertise != b.Advertise ||
		!slices.Equal(a.Instances, b.Instances) {
		return false
	}
	x, err1 := record.Encode(*a)
	y, err2 := record.Encode(*b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// part returns the node's part in a service; the zero part if it has none.
func (n *Node) part(k model.ServiceKey) local {
	if n != nil && n.Record != nil {
		if l := n.Record.parts.by[k]; l != nil {
			return *l
		}
	}
	return local{}
}

// Instances is the number of instances of a service that the node's record has.
func (n *Node) Instances(k model.ServiceKey) int { return len(n.part(k).instances) }

// rank orders nodes by how much their definitions count: 0 is best.
func (n *Node) rank(self model.NodeID) int {
	switch {
	case n.ID == self || n.Value.State.Live():
		return 0
	case n.Value.State == model.StateDead:
		return 1
	}
	return 2
}

// advertise is where other nodes reach the node.
func (n *Node) advertise() netip.Addr {
	if n.Record != nil && n.Record.Definition.Advertise.IsValid() {
		return n.Record.Definition.Advertise.Unmap()
	}
	return n.Addr.Addr().Unmap()
}

// fold returns the node after an event; was may be nil. It is was if nothing
// changed. Its role is still to be settled.
func fold(was *Node, e Seen) *Node {
	next := &Node{Member: e.Member}
	if was != nil {
		next.Record, next.Problem = was.Record, was.Problem
	}
	switch e.Member.Value.State {
	case model.StateSuspect:
		next.SuspectedSince = e.At
		if was != nil && was.Value.State == model.StateSuspect {
			next.SuspectedSince = was.SuspectedSince
		}
	case model.StateDead:
		if was != nil && (was.Value.State == model.StateSuspect || was.Value.State == model.StateDead) {
			next.SuspectedSince = was.SuspectedSince
		}
	}
	if e.Record != nil {
		next.Record, next.Problem = e.Record.after(next.Record), ""
	}
	if e.Problem != "" {
		next.Problem = e.Problem
	}
	if was != nil && next.same(was) {
		return was
	}
	return next
}

func (n *Node) same(o *Node) bool {
	return n.Member.same(o.Member) && n.SuspectedSince.Equal(o.SuspectedSince) && n.Record == o.Record && n.Problem == o.Problem
}

func (m Member) same(o Member) bool {
	return cmp.Compare(m.ID, o.ID) == 0 && m.Name == o.Name && m.Addr == o.Addr && m.Value == o.Value && m.Since.Equal(o.Since)
}
