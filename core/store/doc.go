// Package store is the replicated state machine: keys and values with their
// history, leases, and what makes a proposal count once. It is pure: it is given
// committed entries and says what follows from them, the same on every server.
//
//	committed entry ──► Machine.Apply ──► Result                one goroutine
//	                        │
//	                        ▼
//	                    Machine.View ──► Range, Since, Lease …  any goroutine
//
// # Keyspaces
//
// One log holds two keyspaces, User and System, which know nothing of each
// other: each has its own keys, revisions, leases and quota.
//
// # Revisions
//
// A command that writes makes one revision, whatever it writes; its writes are
// numbered within. A key has versions from its creation to its deletion, and
// all of them can be read until Compact drops what is older than a revision.
// These are the rules of etcd v3, so that its clients can be served: see the
// "API guarantees" and the comments of rpc.proto there.
//
// # Views
//
// A View is immutable and shares what did not change with those before and
// after it. Trees are copied on write, a node at a time; lists are only ever
// appended to beyond what older views can see.
//
// # Exactly once
//
// A command may carry a client and a sequence. Applied again, it changes
// nothing and has the result that it had. See Client.
//
// # Fences
//
// A command may carry the term in which its proposer led. If another leads by
// the time it is committed, it is refused: a deposed leader writes nothing.
package store
