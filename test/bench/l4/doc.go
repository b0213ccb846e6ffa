// Package l4 measures what a service address costs beside the address of its
// endpoint, and what it costs to program many of them.
//
//	make bench-l4                           everything here (about 10 minutes)
//	FAIRLEAD_BENCH_PART=nat make bench-l4   the planes that do NAT only; ebpf: that plane only
//	FAIRLEAD_BENCH_ROUNDS=5 make bench-l4   fewer rounds than 21
//	go test -C test/bench ./l4              a moment of it: does it still work?
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
// Rules of NAT lead a whole network namespace, so each seat of the planes iptables
// (legacy and nft) and nftables has one of its own, and so has each layout that
// kube-proxy makes: one rule for each service in a row, by iptables, and a map from
// address to chain, by the program nft. Those are rendered here. The planes are
// processes, built for the run, and are told what to do over their socket, as an agent
// does; the layouts are given to iptables-restore and nft. "direct" there is a connect
// that no rule is for, in the same namespace.
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
// The planes that do NAT have three phases, each in rounds of random order: all are
// programmed from nothing; all have one endpoint of one service changed; connects are
// timed while nothing is programmed, after a round that is not counted. So none of them
// has connects timed on rules that are younger than those of another. What is slow to
// program is programmed less often, at least once. What is not done in two minutes, as
// kube-proxy's iptables layout in nft tables, is said to take at least that, and is
// programmed in portions for the rest of the run.
//
// A number over its bar is marked OVER; it fails nothing, as machines differ.
package l4
