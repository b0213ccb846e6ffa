// Package etcd serves the store by the wire API of etcd v3, so that etcdctl,
// clientv3 and whatever else speaks it can use it unchanged.
//
//	KV           Range, Put, DeleteRange, Txn, Compact
//	Watch        from any revision that is not compacted
//	Lease        grant, revoke, keep alive, time to live, list
//	Maintenance  status, alarms, hashes, snapshot, move leader
//	Cluster      member list
//	HTTP         /health, /version
//
// Whatever is not there answers UNIMPLEMENTED. Every server answers everything:
// writes go to the leader, reads are linearizable unless the client asks for a
// serializable one. Errors are those of etcd, word for word, since clients compare
// them; limits are etcd's defaults.
//
// # Faces
//
//	listener ──► Front ──► Server.Face(Reach) ──► Store
//	                └────► a way to a server, on agents that are none
//
// One Server has a face for each listener, which says what keyspaces are reached
// there: the user's, or the one that a call names. Listeners know a Front only, so
// that who answers may change while they serve.
//
// # Watches
//
// A watch does not queue events. Its stream remembers the next revision and reads
// the history from there whenever there is more: a slow reader costs nothing but
// its own delay, and is not sent anything twice or in another order. If the
// history is compacted meanwhile, it is told so.
package etcd
