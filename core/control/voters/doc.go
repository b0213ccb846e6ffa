// Package voters decides how the membership of a Raft group changes: which one
// change, if any, its leader makes next, from what gossip says of who is alive and
// what Raft says of who is caught up.
//
// Others lost quorum here: they shrank the group on every death, until the last
// ones were a minority of nobody, or grew it by whoever turned up. So:
//
//   - A death removes nobody. A dead voter is exchanged for a server that is caught
//     up, both in one joint change, or it stays and is named until there is one.
//   - Voters never fall below the target by themselves, and their number stays odd:
//     an even one bears no more failures, and needs one server more for a majority.
//   - A server comes in as a learner, which no majority waits for. It becomes a
//     voter once it is caught up.
//   - Who is alive or dead has to have been so for a while.
//   - Nothing is begun unless a majority of the voters that would result were heard
//     of lately, nor while another change is under way.
package voters
