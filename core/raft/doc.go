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
// # Failure
//
// If the log cannot be written, or the replica finds itself in a state that cannot
// be, the server stops at once and for good: nothing more leaves it, Err says
// why. What else the process does goes on.
package raft
