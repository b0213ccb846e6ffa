// Package forward answers etcd's services on an agent that is no server of the
// store: it passes calls on to one that is, by the agents' port.
//
//	client ──► Front ──► Forwarder ──► one server at a time
//
// A server is kept while it answers and knows a leader; then the next one is
// asked, first the one that leads, as far as is known. What a client may count on:
//
//   - A call that may have been carried out is not made again: a write goes to
//     another server only if surely nothing of it was sent, or if the server said
//     that it did nothing. Reads are made again.
//   - While no server knows a leader, calls wait for one as they do at a server.
//     Serializable reads do not need one.
//   - A watch, or another stream, ends with UNAVAILABLE when its server goes or
//     loses its leader. Clients resume it, which then goes by another server.
//   - Which keyspace a call is about is decided here, by the face that it came in
//     at.
package forward
