package view

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/fairlead/fairlead/core/model"
)

// View is the cluster as this node sees it at one moment. It is immutable and
// safe to share.
type View struct {
	Self         model.NodeID
	Epoch        uint64 // rises with each view of this node, over restarts too
	Completeness Completeness

	nodes     *btree.BTreeG[*Node]
	services  *btree.BTreeG[*Service]
	shards    *btree.BTreeG[*Shard]
	endpoints int

	lineage *int     // the same for all views that follow from one New or Build
	changed *changes // what Diff goes by
}

// Completeness says whether what the view lacks is gone, or may only not be
// known yet.
type Completeness uint8

// The grades; all but Incomplete are complete. A view that is complete stays so.
const (
	Incomplete Completeness = 0
	Exchanged  Completeness = 1 // one full exchange, and all definitions it told of
	Alone      Completeness = 2 // every member of the last run is dead, or there was none
	TimedOut   Completeness = 3 // waited long enough
)

// String prints incomplete, exchanged, alone or timeout.
func (c Completeness) String() string {
	return [...]string{"incomplete", "exchanged", "alone", "timeout"}[min(c, TimedOut)]
}

// New returns the view of a node that knows nothing yet.
func New(self model.NodeID, epoch uint64) *View { return Build(self, epoch, Incomplete, nil) }

// Build makes a view of all nodes at once. Apply arrives at the same content;
// Build is how tests know.
func Build(self model.NodeID, epoch uint64, complete Completeness, nodes []*Node) *View {
	v := &View{
		Self: self, Epoch: epoch, Completeness: complete, lineage: new(int), changed: newChanges(),
		nodes:    newTree(func(a, b *Node) bool { return a.ID < b.ID }),
		services: newTree(func(a, b *Service) bool { return a.Key.Compare(b.Key) < 0 }),
		shards:   newTree(lessShard),
	}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *Node) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range nodes {
		v.enlist(n)
	}
	holders := make(map[model.ServiceKey][]*Node)
	for _, n := range nodes {
		n = v.settled(n)
		v.nodes.Set(n)
		if n.Record != nil {
			for k := range n.Record.parts.by {
				holders[k] = append(holders[k], n)
			}
		}
	}
	for k, of := range holders {
		s := &Service{Key: k, Changed: epoch}
		for _, n := range of {
			s.Nodes = append(s.Nodes, n.ID)
			s.Endpoints = n.endpoints(s.Endpoints, self, k)
		}
		sortEndpoints(s.Endpoints)
		s.define(self, of)
		v.services.Set(s)
		v.changed.live.Set(s)
		v.endpoints += len(s.Endpoints)
	}
	return v
}

// Node returns the node of an id, or nil.
func (v *View) Node(id model.NodeID) *Node {
	n, _ := v.nodes.Get(&Node{Member: Member{ID: id}})
	return n
}

// Nodes yields all nodes, this one, dead and departed ones included, in the
// order of their ids.
func (v *View) Nodes() iter.Seq[*Node] { return all(v.nodes) }

// Service returns the service of a key, or nil.
func (v *View) Service(k model.ServiceKey) *Service {
	s, _ := v.services.Get(&Service{Key: k})
	return s
}

// Services yields all services in the order of their keys.
func (v *View) Services() iter.Seq[*Service] { return all(v.services) }

// Len is the number of services.
func (v *View) Len() int { return v.services.Len() }

// NodeCount is the number of nodes that Nodes yields.
func (v *View) NodeCount() int { return v.nodes.Len() }

// EndpointCount is the number of endpoints of all services.
func (v *View) EndpointCount() int { return v.endpoints }

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func all[T any](t *btree.BTreeG[T]) iter.Seq[T] {
	return func(yield func(T) bool) { t.Scan(yield) }
}
