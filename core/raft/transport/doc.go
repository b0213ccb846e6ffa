// Package transport carries what the servers of a Raft group say to each other, by
// gRPC under mutual TLS.
//
//	               ┌ control: votes, heartbeats, answers ─ queue ─ connection ─►
//	Send ──► peer ─┤
//	               └ entries: appends, proposals ───────── queue ─ connection ─►
//	SendSnapshot ──── one at a time ────────────────────────────── connection ─►
//	Ask ───────────── what waits goes together ─── queue ───────── connection ─►
//
//	Handler ◄── Transport ◄── Port ◄── what others send
//
// # Channels
//
// Each kind of message has a connection of its own to each server: on one
// connection a heartbeat would stand behind a MiB of entries, and in TCP nothing
// passes anything. A channel has a bounded queue and a goroutine; a queue that is
// full loses the message and says so to the Handler, and nobody ever waits. So a
// server that does not read delays nobody but itself.
//
// On one channel messages to one server arrive in their order, some not at all.
// A batch that was on a connection which broke is sent once more on a new one, so a
// message may arrive twice; Raft bears both.
//
// # Who talks to whom
//
// A Port believes agents of its cluster only (package identity). Each stream and
// call then says from which server it is, for which one, and of which cluster, and
// is refused in words if the node that the certificate names is not that server, if
// this is not the one that was meant, or if no such server is a member any more.
//
// # Messages are read while Raft goes on
//
// Send keeps a message and encodes it later, on the channel's goroutine. That is
// safe because nothing writes to a message, or to what it points at, after
// etcd/raft v3.7 gave it out in a Ready:
//
//   - Every message is made for one server and forgotten by raft.send's caller;
//     From and Term are set before it is queued (raft.go, send).
//   - Entries are shared with the log, and with messages to other servers, but
//     never written to: appendEntry clones what is proposed before it sets term and
//     index, and what a leader sent was decoded for the log alone. A log that is cut
//     and written anew gets a new array: slices of entries are given out with their
//     capacity cut off (log_unstable.go, slice: "an append will reallocate and copy
//     this slice"; package replica does the same).
//   - The metadata of a snapshot and its ConfState are replaced, not changed
//     (package replica), and contexts of heartbeats are made anew each time
//     (read_only.go, heartbeatCtx).
//   - Encoding writes to a message only what it remembers of sizes, and that
//     atomically, so that two may encode one entry at once.
//
// # What TLS does not bound
//
// A Port takes at most Limits.Handshakes connections that have not yet shown who
// they are, for 5 seconds each; frames are at most Limits.FrameBytes, looked at
// before anything is set aside for them. Messages are cut to fit.
package transport
