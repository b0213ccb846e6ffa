// Package swim decides who is alive. It is the protocol of "SWIM: Scalable
// Weakly-consistent Infection-style Process Group Membership" (Das, Gupta,
// Motivala, DSN 2002) with confirmations of suspicions from Lifeguard
// (Dadgar, Phillips, Currey, 2018) as a pure value: a Node is given packets,
// frames and the time, and yields packets, wanted streams and events. It does
// no I/O, starts nothing, and draws chance only from the source it was given.
//
// # Use
//
// One goroutine owns a Node. After every call that takes now it calls Ready
// and works it off, then waits for input or NextDeadline, whichever is first:
//
//	for {
//		apply(node.Ready()) // persist the epoch, then send, then publish
//		select {
//		case p := <-packets:
//			err := node.Step(p.from, p.data, clock()) // err: count and go on
//		case <-timer(node.NextDeadline()):
//			node.Tick(clock())
//		}
//	}
//
// # Members
//
// What a node believes of a member is a model.Value, and the greater of two
// values wins, whoever says it and in whatever order they arrive:
//
//	               no ack for a period             not refuted in time
//	┌────────┐ ─────────────────────────► ┌─────────┐ ─────────────► ┌────────┐
//	│ alive  │    (e, i, suspect)         │ suspect │  (e, i, dead)  │  dead  │
//	└────────┘ ◄───────────────────────── └─────────┘                └────────┘
//	    ▲  │        owner refutes: (e, i+1, alive)                     │    │
//	    │  │ owner says good-bye: (e, i+1, left)                       │    │
//	    │  ▼                                                           │    ▼ 24 h
//	    │ ┌────────┐      owner answers an accusation: (e, i+1, alive) │  forgotten
//	    └─│  left  │ ◄ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘    ▲
//	      └────────┘      owner starts again: (e+1, 0, alive)               │ 24 h
//	           └────────────────────────────────────────────────────────────┘
//
// The epoch e counts starts of the owner and is persisted before it is spoken;
// the incarnation i counts its answers to accusations. Only the owner raises
// either, so a value above the owner's own word proves a copied or restored
// data directory (see self.go).
//
// # A planned restart
//
// A node that is about to restart says so: alive at (e, i+1), held for at most
// MaxHold. While the hold is in force, on each node's own clock, nobody accuses
// it. Of a member at one word
//
//	alive < suspect < dead < alive and held < left
//
// so a suspicion by a node that did not hear of the hold is not taken over but
// answered with the hold, which takes it back. What is passed on is the time
// that is left, an epoch has one hold, and only the owner can announce one, as
// it refutes those of others. After it m is a member like any: a node that did
// not come back is found by the next probe (hold.go).
//
// # One probe
//
//	t                     what                                             message
//	0                     ping the next member of a shuffled list          ping
//	+ RTT-adaptive wait   ask k helpers; ping over TCP in parallel          ping-req, stream
//	  a helper's wait     helper pings and answers before our deadline      ack or nack
//	+ T                   no ack from anybody: suspect, helpers that        claim
//	                      nacked are accusers too
//
// The next probe starts after T whatever became of this one. A TCP ping that
// is refused ends the wait at once: the host itself says that nobody listens.
//
// # Messages
//
//	message   answered by   carries                      effect
//	ping      ack           seq, target id               liveness; the id tells a reused address
//	ping-req  ack | nack    seq, target id, wait         a helper's ping
//	claim     claim         value, accusers, identity,   merged; stale ones answered, own ones refuted
//	                        hold
//	record    –             opaque state of its owner    newest kept
//	exchange  exchange      all live members             merged on both sides, over a stream
//
// Claims and records are rumours: they ride on every packet, and while a node
// has unsent ones it sends gossip packets as well (rumour.go, gossip.go). The
// header of each packet carries its sender's own epoch and incarnation, so
// every packet refutes what is older.
//
// # Cost
//
// Per node and second two packets when idle, whatever n; memory O(n); each
// event costs each node at most its retransmit limit of claims; a step costs
// O(probes and suspicions under way) plus the messages in it.
//
// Left for later, with its place prepared: local health (the two waits in
// probe.go), digest sync in place of the periodic exchange (exchange.go), AEAD
// (package wire).
package swim
