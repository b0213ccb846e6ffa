// Package replica is one server of a Raft group as a value: it is told of
// messages, ticks, proposals and finished writes, and says what is to be written,
// applied and sent. It starts no goroutine and touches no disk and no network, so
// that a simulation can run a whole group in one thread.
//
//	Step Tick Propose Read ──► Replica ──► Ready{Append, Apply, Send, Reads, State}
//	Appended Applied       ──►    │
//	                        go.etcd.io/raft/v3, asynchronous storage writes
//
// # Order
//
// Appends are carried out one after the other, and so are applies; one of each
// may be under way at the same time. When Append is on disk, Appended is called
// with it; when Apply is done, Applied. Messages of Send may leave at once: what
// has to wait for a write is held back inside the Append (Raft §5.3, and §10.2.1
// of the thesis: a leader writes while its followers do).
//
// # Reads
//
// Read asks for an index from which on a read is linearizable: the leader confirms
// with a quorum that it leads. Every try has a context of its own, so that an
// answer to an older one confirms nothing newer (etcd issues 20418 and 21399).
//
// # Membership
//
// Only ConfChangeV2 entries are used. A change is in force when it is applied.
package replica
