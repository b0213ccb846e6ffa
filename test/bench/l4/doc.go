// Package l4 measures what a service address costs beside the address of its
// endpoint, and what it costs to program many of them.
//
//	make bench-l4                   everything here (about 15 minutes)
//	go test -C test/bench ./...     a moment of it: does it still work?
//
// # Seats
//
// All is measured in one process, in a network namespace with nothing but a
// loopback device, so that what is not translated has nowhere to go. A [seat] is
// a thread of that process with sockets of its own. On some seats nothing leads
// sockets: they dial endpoints, which is what the others are compared with. Each
// other seat belongs to one plane, with one number of services. The seats of the
// eBPF plane are child cgroups, each with a provider of its own, so that all numbers of
// services are there at the same time.
//
// Rules in the nat table lead a whole network namespace. The iptables plane works in
// that of the benchmark, so its seat is programmed anew for each number of services,
// which is timed; what it is compared with, the layouts that kube-proxy makes, have a
// namespace for each number. "direct" there is a connect that no rule is for, in the
// same namespace.
//
// # What is counted
//
// Rounds are interleaved: in each one every seat has its turn, beginning with
// another one each time. A round gives the median and the 99th percentile of a few
// hundred connects, each followed by the accept and by a reset on the same thread,
// which are not timed. Differences and ratios are those of the same round; shown are
// their median, lowest and highest. A/A is a second seat without anything: the
// noise. Of many services a random one is dialled each time, "hot" is one of them
// all the time. Messages and bulk go through open sockets, client and server on the same
// thread, so that no wake-up is measured; each is timed by itself, and a round gives
// the median.
//
// The run time of the program is what the kernel says (bpf_stats) in rounds of
// their own, its clock reads included. System calls are counted by a tracepoint.
//
// A number over its bar is marked OVER; it fails nothing, as machines differ.
package l4
