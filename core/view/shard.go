package view

import (
	"cmp"
	"iter"
	"slices"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// Shard is a group of servers, as their records tell of it. It is immutable.
type Shard struct {
	Group  uint64
	Nodes  []model.NodeID // that say that they are of the group, in their order
	Term   uint64         // the highest in which one of them said that it leads; 0: none did
	Leader model.NodeID   // who said so; 0: nobody. It may be gone meanwhile
}

// Shards yields all groups in the order of their ids. There is more than one only
// where several formed apart.
func (v *View) Shards() iter.Seq[*Shard] { return all(v.shards) }

// Shard returns a group, or nil.
func (v *View) Shard(group uint64) *Shard {
	s, _ := v.shards.Get(&Shard{Group: group})
	return s
}

// Server is what the node is to the store as it says itself; nil: nothing.
func (n *Node) Server() *record.Server {
	if n == nil || n.Record == nil {
		return nil
	}
	return n.Record.Definition.Server
}

// group is that of the node, 0 if it is in none.
func (n *Node) group() uint64 {
	if s := n.Server(); s != nil {
		return s.Group
	}
	return 0
}

func newShard(group uint64) *Shard { return &Shard{Group: group} }

// add counts what the next node, in the order of ids, says of the group. Two that
// claim one term are a lie or a mistake, and the first one's counts.
func (s *Shard) add(n *Node) {
	s.Nodes = append(s.Nodes, n.ID)
	if term := n.Server().Term; term > s.Term {
		s.Term, s.Leader = term, n.ID
	}
}

// enlist counts the next node, in the order of ids, of a view that is being built.
func (v *View) enlist(n *Node) {
	group := n.group()
	if group == 0 {
		return
	}
	s := v.Shard(group)
	if s == nil {
		s = newShard(group)
		v.shards.Set(s)
	}
	s.add(n)
}

// settled returns the node with the role that it has in this view.
func (v *View) settled(n *Node) *Node {
	role, leads := v.roleOf(n)
	if role == n.Role && leads == n.leads {
		return n
	}
	other := *n
	other.Role, other.leads = role, leads
	return &other
}

// settle brings the groups in line that a node came to or left, and all that follows
// from that. Nobody else sees the view, or is, yet.
func (v *View) settle(w *writer, was, is *Node) {
	if is != nil {
		defer func() { is.Role, is.leads = v.roleOf(is) }()
	}
	from, to := was.group(), is.group()
	if from == to && (to == 0 || *was.Server() == *is.Server()) {
		return
	}
	v.shards = v.shards.Copy()
	for _, group := range slices.Compact([]uint64{from, to}) {
		v.regroup(w, group, nodeID(was, is))
	}
}

// regroup makes a group anew after a node changed, and the others of it whose part is
// another one now.
func (v *View) regroup(w *writer, group uint64, changed model.NodeID) {
	if group == 0 {
		return
	}
	old := v.Shard(group)
	if old == nil {
		old = newShard(group)
	}
	next := newShard(group)
	for _, id := range withNode(old.Nodes, changed, v.Node(changed).group() == group) {
		next.add(v.Node(id))
	}
	if len(next.Nodes) == 0 {
		v.shards.Delete(old)
		return
	}
	v.shards.Set(next)
	for _, id := range []model.NodeID{old.Leader, next.Leader} {
		n := v.Node(id)
		if n == nil || id == changed || n.group() != group {
			continue
		}
		if other := v.settled(n); other != n {
			v.nodes.Set(other)
			w.others = append(w.others, turn{n, other})
		}
	}
}

// roleOf is what a node is to the cluster, and whether it is who leads its group as far
// as is known.
func (v *View) roleOf(n *Node) (role Role, leads bool) {
	role = Standing(n.Value.State)
	s := n.Server()
	if s == nil || s.Group == 0 {
		return role, false
	}
	shard := v.Shard(s.Group)
	leads = shard != nil && shard.Leader == n.ID
	switch {
	case role != RoleMember:
	case leads:
		role = RoleLeader
	case s.Learner:
		role = RoleLearner
	default:
		role = RoleFollower
	}
	return role, leads
}

func lessShard(a, b *Shard) bool { return cmp.Less(a.Group, b.Group) }
