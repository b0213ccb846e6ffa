// Package formation makes one Raft cluster out of servers that find each other
// through SWIM. It is a pure value: a Server is given messages, what SWIM knows
// and the time, and yields records to persist, messages and a decision.
//
// # Use
//
// One goroutine owns a Server. After every call it works off Ready, in this order:
//
//	r := server.Ready()
//	write(r.Record)    // durable before anything below; on failure stop here for good
//	send(r.Messages)   // to node ids, by whom the receiver knows to be that node
//	begin(r.Decision)  // the voters of a new Raft group, Raft id = node id
//
// Decision comes again after each start. A server that is started again is given
// the record that its disk holds; a new data directory has a new node id and an
// empty record. Records and ids are never copied and never restored from an older
// copy.
//
// # Ballots
//
// A server that sets bootstrap_expect takes part until it belongs to a cluster.
// The candidate is the lowest id of those that it sees alive for Stable. It draws a
// cluster id and writes down a ballot: the voters are the bootstrap_expect lowest of
// those, itself with them; the witnesses are all others that take part and that it
// sees alive, for however short a time. Then it asks all of them.
//
//	candidate                       voter or witness
//	    │ ── ask ──────────────────►   │  checks, writes its yes down
//	    │ ◄─────────────── yes | no ── │
//	    │  has every yes, still sees   │
//	    │  them all: writes formed     │
//	    │ ── formed ───────────────►   │  a voter writes formed, and begins;
//	    │                              │  a witness waits to be added
//	    │  or writes nothing of it     │
//	    │ ── withdrawn ────────────►   │  writes that it is free again
//	    │                              │
//	    │ ◄──────────────────── query ─│  each Retry, of who said yes and heard
//	    │ ── formed | withdrawn ───►   │  nothing; voters that know answer too
//
// A server says yes to one ballot at a time, and only to a ballot
//
//   - with as many voters as its own bootstrap_expect,
//   - that has every server that takes part and that it sees alive for Stable,
//   - that has more than half of all such servers that it knows, dead ones included,
//
// and only as long as no living server that takes part declares another
// bootstrap_expect, and it never heard of a formed cluster. The candidate holds its own ballot
// to the same when it writes it and again when it forms: what does not fit any more
// it withdraws. Of two candidates that stand in each other's way the one with the
// higher id withdraws.
//
// A ballot of a candidate's that is not in its record was withdrawn, since it was
// there before anybody was asked. So a candidate that was down, or whose word was
// lost, answers queries truly and keeps no list.
//
// # Why there is no second cluster
//
// Invariants, of records on disks:
//
//	(1) a yes ends with the cluster formed, by its candidate's withdrawal, or by an
//	    operator's Recover
//	(2) a withdrawn ballot never forms; a formed one is never withdrawn
//	(3) a ballot is formed first by its candidate, which by then holds a yes of
//	    every server of the ballot
//	(4) a record holds one yes or one formed cluster
//
// Each is kept by one server alone: (1) and (4) by who said yes, (2) and (3) by the
// candidate, whose record holds either the ballot, or the formed cluster, or neither.
// No message is trusted to be in time or in order. It follows, for clusters X and Y
// that both formed and whose servers are voters and witnesses alike:
//
//	no server is in both         else its yes to the one ended, against (1) and (2),
//	                             or stood beside that to the other, against (4)
//	no server of Y saw one of X  when it said yes: its ballot had to have whom it
//	alive for Stable             saw, and that one would be in both
//	not both knew the other      if somebody of X knew all of Y, X is more than half
//	                             of both; so is Y if somebody of Y knew all of X
//
// Half-formed counts as well: servers that said yes to X and do not know that it
// formed cannot say yes to Y, so they stop each ballot of those that see them.
//
// What can form, then, is a second cluster of bootstrap_expect servers that neither
// see the first's nor, on one side at least, ever knew all of them: two sites that were
// started while they were cut off, or that were told of more than 2·n servers in part.
// No protocol without a list of all servers can tell that from a cluster that never
// had a second site. It is told by Awaits once they meet; formed clusters never merge.
// Hence: set bootstrap_expect to more than half of the servers there will be.
//
// A cluster that a server heard of is kept in its record (Seen). From then on it waits
// to be added, over restarts, also while no server of that cluster is alive.
//
// The Raft group may begin on a voter as soon as its record holds the formed cluster,
// before the others know: all begin with the same voters and an empty log, and a
// server that does not know yet is to the others like one that is down.
//
// # Why it does not block for good
//
// If messages arrive at last, SWIM's views agree for a while, and nobody declares
// another number, the lowest candidate's ballot has everybody whom anybody sees. A yes
// to another ballot then is in the way only while that candidate does not answer:
// if it is alive, it has everybody's yes and forms, or finds its ballot outdated, or is
// told that somebody said yes to a lower one, and withdraws.
//
// If it is down, its yes-sayers wait: it may have formed its cluster with what they
// said. If its data directory is lost, nobody is left who knows. A new directory has
// a new id, but a server that turns up under an old name or address is no proof:
// both may be alive. So an operator says it, by Recover, which is refused while
// the candidate or a voter of that cluster is seen alive, or while another voter is
// down that may belong to it. Who has no vote may wait for the same servers: if that
// counted, several that wait would take each other for the cluster, for good. What an operator gave up by mistake still
// makes no cluster with two histories: a ballot's voters begin with the same cluster id
// or not at all, and the agents' port refuses another's.
//
// Everything that can be waited for, Awaits says in words.
package formation
