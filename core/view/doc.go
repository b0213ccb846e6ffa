// Package view joins what is known of the cluster into one immutable value:
// nodes with their state, services with the definition that counts, and the
// endpoints that follow from both. It is pure.
//
//	member table ──┐
//	node records ──┼──► Apply(view, event) → view ──► DNS, data planes, API
//	own standing ──┘          │
//	                     Build(nodes): the same, slowly
//
// One event makes one view, or none if it changes nothing. Views share what
// did not change, so an event costs what it changes and a reader may keep any
// view for as long as it likes. Diff names what is different between two.
//
// # Endpoints
//
// An endpoint is never written, it follows: its instance is in the record of
// a node, passes its check or drains, and the node is alive or suspect. A
// suspect node's endpoints are marked and stay; a dead one's are gone. What
// runs on this node runs, whatever this node's state in the cluster is. Explain
// says of each instance why it is an endpoint or is none.
//
// Addresses are those that this node has to use. Its own instances are at
// their own address for sockets of this host, and at the node's advertised
// address and host port for others. Instances of other nodes are at their
// node's advertised address and host port. An instance that listens on a
// loopback address and has no host port is local-only, unless its node
// advertises a loopback address: then all nodes are on one host.
//
// # Roles
//
// What a server of the store is, is in its record: the group, whether it has a vote, and
// the term in which it leads. Of a group that node leads which says so in the highest
// term, until another one says more, so that a record which is old takes no role from
// who has it. The instance of model.LeaderService is an endpoint on that node only:
// connections turn to a new leader as soon as its record is here, whatever became of the
// one before. All of this routes calls and proves nothing.
//
// # Definitions
//
// All nodes that define a service should say the same. If they do not, the
// definition that was registered first counts, and the view lists the nodes
// that disagree. Nodes that are up come before dead ones, and those before
// nodes that left: their word counts only while nobody better says anything,
// so that a service outlives a restart of its only node and clients are refused
// instead of lost. Intercept addresses concern one node and count there.
package view
