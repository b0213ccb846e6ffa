// Package follow gives each agent the system keyspace, whether it is a server of
// the store or not, and whether or not a server can be reached.
//
//	other servers ──────────┐
//	own server ──► Local ───┼─► Follower ──► Source ──► catalog, built-in services …
//	file ◄──────────────────┘
//
// # Following
//
// A Follower reads the whole keyspace at one revision, in pages, and then watches
// from the next revision on. It is at one server at a time, and stays there as long
// as that one answers and has a leader:
//
//   - A server that says that it has no leader, that falls silent, or whose
//     connection breaks is left for the next one, in random order, so that agents
//     spread. After a round in vain it rests, longer each time, with jitter.
//   - What it has is kept when it goes elsewhere: it goes on from its own revision,
//     and reads anew only if the history since then is compacted.
//   - It never goes back. A server whose revision is lower is left, and one of
//     another cluster is refused, until an operator says of that cluster that it is
//     to be followed: Accept.
//
// Events of one revision are applied together, or not at all.
//
// # An agent that is a server
//
// Its own server is followed before all others, and shown without being copied; only
// while that is behind what is known, others are. Nodes become servers and cease to be
// some while they run: whoever reads sees one line of revisions all the time. A
// server has its own files: that of the copy is taken away meanwhile.
//
// # Age
//
// Once a second the server is asked how far the watch is. Its answer says that what
// is here was current when it was asked: Status.Current is that moment. It is true
// within a few seconds, which a server takes to end its watches after it lost its
// leader.
//
// # The copy on disk
//
// The last known good copy is a file, replaced whole at most once a second while
// there is something new, and at the end. It has a SHA-256 of everything; one that
// does not fit is set aside and not used. It is read at the start, so that what was
// configured is known without any server.
//
// # An existing etcd cluster
//
// With Config.Prefix the keyspace is the keys of an etcd cluster with that prefix,
// which is cut off. One that was restored from a backup may have its id still: so its
// keys at the copy's revision are compared before it is followed on. This is why
// etcd's own client is not used here: it hides which server answers and what its
// revision is, resumes watches wherever it likes, and would go back without a word.
package follow
