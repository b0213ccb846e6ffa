// Package membership runs the swim protocol on a host: one goroutine owns the
// pure swim.Node, and everything that blocks lives around it.
//
//	UDP ──► reader ──► bounded queue ──┐                     ┌──► UDP
//	TCP ──► one goroutine per stream ──┤                     ├──► TCP, one goroutine per stream
//	Leave, SetRecord, … ───────────────┼──► owner ──► Ready ─┼──► node.json (boot counter, before anything leaves)
//	timer at the next deadline ────────┘  (swim.Node)        ├──► event log ──► readers
//	                                                         └──► Snapshot (atomic pointer) ──► readers, peers.json
//
// The owner never waits for the network or for a reader. It waits for the disk
// only to write a raised boot counter, because nothing may be said under an
// epoch that could be forgotten.
//
// # What a reader sees
//
// A Snapshot is immutable and carries the sequence number of the last event
// that it includes. Events come in order and without gaps; a reader that lags
// by more than the log holds is given the current Snapshot instead, marked as
// a reset, and goes on from there. Nothing is lost in silence.
//
// # Node records
//
// What a node says of itself has two parts. The vector is small, changes often
// and travels as a rumour; in front of it stands the hash of the definition,
// which is large and changes rarely. A definition is pulled over a stream by
// whoever lacks it, first from the member that told of it, at last from its
// owner, so that a change does not draw the whole cluster to one host. Of a
// vector that is too long for a rumour the hash travels in its place, and it is
// pulled in the same way.
//
// # Files
//
//	lock        flock, holds the pid of the agent that uses the directory
//	node.json   id, minted once, and boot counter, raised by each start
//	peers.json  members that did not say good-bye: where to look after a restart
package membership
