// Package table keeps Fairlead's tables in nftables, by netlink.
//
// An instance has a table of each IP version, with three base chains and a few
// others:
//
//	output      : daddr . proto . dport vmap @frontends → goto pick-N, sticky-TAG or refuse
//	prerouting  : the same with frontends-foreign, then with frontends
//	pick-N      : dnat to daddr . proto . dport . numgen random mod N map @slots
//	refuse      : redirect to port 0, where nothing ever listens
//	postrouting : masquerade what one of these led, and would leave with an address
//	              that is not its device's
//
// All services with N slots share the chain pick-N, so a service is set elements only:
// to change one is a few messages, however many there are, and no chain comes or
// goes with it. A service with affinity is the exception: see sticky.go.
//
// The tables are such that the program nft can print them. It aborts on a look-up by
// what another look-up found, and by the original destination of a connection as
// the library asks for it; hence verdicts in frontends, and a bit in the mark of the
// first packet for what is to be masqueraded.
//
// What a process has to find again stands in comments: that of a frontend is its
// affinity and service, that of a slot its endpoint; the set services counts
// endpoints; the set about holds the instance and what generation is applied, in
// the transaction that applied it.
package table
