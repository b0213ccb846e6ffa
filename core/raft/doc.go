// Package raft hosts one server of a Raft group: it owns a replica, its log and
// snapshots on disk, and the state machine, and connects it to the others.
//
//	Propose, Read, Transfer ──►┌──────────┐──► Transport ──► others
//	Receive ◄── Transport ────►│   loop   │──► appender: log and snapshots on disk
//	              ticks ──────►└──────────┘──► applier: the state machine, views
//
// # Goroutines
//
// The loop owns the replica. The appender owns the log: it joins what waits into
// one write and one fdatasync. The applier owns the state machine, publishes a
// View after each batch, and hands results to those who wait. Both report to the
// loop over one channel, so that it hears of things in the order in which they
// happened. A snapshot is written by a goroutine of its own, one at a time.
//
// # Calls that count once
//
// Every server is a client of the state machine: it numbers its commands, so that
// one which is sent again, to whatever leader, happens once. Propose tries until
// its context ends; what it does not know then it says.
//
// A server that does not lead sends commands to the leader by messages, and learns what
// they come to when it applies them itself; the leader gives back what it does not take.
// Who lacks entries, and so hears nothing for half an election timeout, asks.
//
// # Servers come and go
//
// Change asks the leader for one change of the servers, which is checked before it
// is proposed: Join opens a server that waits to be added as a learner; a learner
// that follows the log is promoted, in the same change in which a dead voter is
// removed. Ids that were removed are remembered in the state for ever. When the
// transport finds the leader's process gone, the voters elect another one at once,
// one after the other.
//
// # Rest
//
// A server that is all of its group ticks only while something waits for time to pass:
// an entry on its way, a read, somebody who waits for a result. Leases and a disk that
// hangs have timers of their own. So an agent that is alone is not woken for nothing;
// the first learner ends that.
//
// # Failure
//
// If the log cannot be written, or the replica finds itself in a state that cannot
// be, the server stops at once and for good: nothing more leaves it, Err says
// why. What else the process does goes on.
package raft
