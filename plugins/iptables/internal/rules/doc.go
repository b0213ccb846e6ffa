// Package rules says what should stand in the nat table for a snapshot, and
// which text leads there from what stands now. It is pure: text in, text out.
//
//	PREROUTING ─► FAIRLEAD-tag-PRE ─┐   covering prefixes: others' packets leave here
//	OUTPUT ─────► FAIRLEAD-tag-OUT ─┤
//	                                └─► node ─► node ─► … 16-ary over the frontends
//	                                                └─► service chain ─► DNAT
//	POSTROUTING ► FAIRLEAD-tag-POST ─► FAIRLEAD-tag-SOURCE ─► MASQUERADE where the answer
//	                                would not come back
//
// # Names
//
// Every chain but these four is named by the hash of its rules, which name
// other chains: so a name says all that can be reached through it, and a chain is
// never altered. A change adds chains, refills one or two of the four, and removes the chains
// that nothing leads to any more, in one COMMIT: a packet sees all of it or nothing.
// What lies beside the path from the root to the changed service keeps its name and
// is not in the text. A service in both hooks with the same addresses, as most are,
// has its chains once.
//
// The tag is made of the instance id, so several agents may share a kernel, and what
// one of them left can be found in the output of iptables-save alone.
//
// # Ways through
//
// All steps down are gotos, so a packet that nothing matches returns to the base
// chain at once. A node has 16 rules at most, a rule for each subtree or frontend; a
// large service draws its endpoint by halves.
//
// Affinity is the recent match: a list of clients for each endpoint, looked through one
// after the other before anything is drawn. The kernel remembers 100 clients of each
// (ip_list_tot of xt_recent) and forgets first whom it has not seen for longest.
package rules
