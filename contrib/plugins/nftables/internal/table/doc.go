// Package table keeps Fairlead's tables in nftables, by netlink.
//
// An instance has a table of each IP version, with three base chains and a few
// others, none of which belongs to a service:
//
//	output      : frontends{daddr . proto . dport} → class → classes{class} → goto pick-N
//	prerouting  : the same with frontends-foreign, then with frontends
//	pick-N      : slots{daddr . proto . dport . numgen random mod N} → endpoint id
//	              endpoints{daddr . proto . dport . id} → address . port → dnat
//	refuse      : redirect to port 0, where nothing ever listens
//	postrouting : masquerade what came by a frontend and would leave with an
//	              address that is not its device's
//
// A class is how many slots a service has, and for how long it keeps a client. All
// services of one class share a chain, so a service is set elements only: to change
// one is a few messages, however many there are, and no chain comes or goes with
// a service. Endpoints keep their element, with its counter, while slots move.
//
// With affinity, pick-N-TTL first looks into affinity{saddr . daddr . proto . dport} for
// an id. It counts only while endpoints has it, so it dies with the endpoint.
//
// What a process has to find again stands in comments: that of a frontend is its
// service's name; the set services counts endpoints; the set about holds the instance
// and what generation is applied, in the transaction that applied it.
package table
