// Package replica is one server of a Raft group as a value: it is told of
// messages, ticks, proposals and finished writes, and says what is to be written,
// applied and sent. It starts no goroutine and touches no disk and no network, so
// that a simulation can run a whole group in one thread.
//
//	Step Tick Propose Read ──► Replica ──► Ready{Append, Apply, Send, Reads, State, Done}
//	Appended Applied       ──►    │
//	                        go.etcd.io/raft/v3, asynchronous storage writes
//
// # Order
//
// Appends are carried out one after the other, and so are applies; one of each
// may be under way at the same time. When Append is on disk, Appended is called
// with it; when Apply is done, Applied. Messages of Send may leave at once: what
// has to wait for a write is held back inside the Append (Raft §5.3, and §10.2.1
// of the thesis: a leader writes while its followers do). That is also so of requests
// for votes, which the library would let go before the own vote is on disk (§3.8 of
// the thesis): whoever wins without it could win the same term twice.
//
// # Reads
//
// Read asks for an index from which on a read is linearizable: the leader confirms
// with a quorum that it leads. Every try has a context of its own, so that an
// answer to an older one confirms nothing newer (etcd issues 20418 and 21399).
//
// # Membership
//
// Only ConfChangeV2 entries are used. A change is in force when it is applied. The
// leader finds out before it proposes one whether the group can live with it;
// nothing refuses it later. The library makes an empty entry of a change that comes
// at the wrong time, and says nothing: here that time is known, and each change has
// an id, so that Ready tells of each one what became of it. One that moves more than
// one server goes by a joint state, which the leader ends by itself, or the next
// one does.
//
// # Servers that join
//
// A server that joins begins with nothing: no entry, no member. It does not stand
// for election. A leader adds it as a learner and sends a snapshot, of which the
// learner is a member already: NeedsSnapshot says when one has to be made for that.
// The learner is promoted when it follows the log.
//
// The id of a server belongs to its directory. A directory that was emptied gets
// another id, and joins; the old id never comes back. Where that is not so, because
// ids are given from outside (a static set of servers), a server that lost what it
// had confirmed finds that out by the leader's heartbeat, and ends: ErrForgot.
package replica
