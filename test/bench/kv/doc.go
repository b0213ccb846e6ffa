// Package kv measures the store beside etcd: clusters of three processes on
// loopback, on one disk, under the same client.
//
//	make bench-kv                           everything here (about 15 minutes)
//	FAIRLEAD_BENCH_PART=writes make bench-kv   that part only, or several: writes,failover
//	FAIRLEAD_BENCH_SYSTEMS="etcd 3.7.3,fairlead" make bench-kv   those columns only
//	FAIRLEAD_BENCH_ROUNDS=9 make bench-kv   more rounds than 5
//	FAIRLEAD_BENCH_KEYS=100000 make bench-kv   a large cluster of fewer keys than a million
//	go test -C test/bench ./kv              a moment of it: does it still work?
//
// Its parts are fsync, writes, reads, open, beside, failover, watch and large.
//
// # What is compared
//
// Debian's etcd, the newest etcd whose module is served (testdata/etcdpeer, a module of
// its own), and Fairlead twice: the second is the column again, and A/A is its
// figure divided by that of the first, the noise. All clusters run for the whole of a
// part, as idle ones cost little, and take turns: in each round every cluster has its
// window, beginning with another one each time. Ratios are those of windows in
// the same round, against the etcd that does better at that figure; shown are their
// median, lowest and highest.
//
// # What makes it fair
//
// One client, this process, speaks etcd's API to all of them by gRPC without TLS, over
// connections that are spread over the three members. It shares the CPUs with
// the servers, and its share is printed. All have a heartbeat of 100 ms, an
// election timeout of 1 s, pre-vote and no compaction. Both etcds have
// --snapshot-count=10000, which is what the newest does by itself, and a quota of 8 GB;
// Fairlead takes snapshots by bytes of log. Fairlead's members speak mutual TLS
// to each other, which they cannot do without; etcd's speak plain HTTP unless
// FAIRLEAD_BENCH_PEER_TLS is 1.
//
// Data is on a disk, never in memory: the run refuses a tmpfs (TMPDIR names another
// place). The part fsync counts by strace what is synced while puts come one after
// the other, on each member, and fails if fewer than a quorum synced for each.
//
// # What is counted
//
// Keys have 8 bytes and values 256. writes and reads keep as many requests under way as there are
// clients, so their latencies are those of full load. open sends puts at
// half the rate of the better etcd's 256 clients, whether or not answers come, and counts from
// the moment at which a put was due; beside does so with 1,000 linearizable
// reads and 2,000 puts a second. CPU of the servers is the kernel's clock of the three
// processes. failover kills the leader under a put each millisecond, to all members in turn, and takes
// the longest time between two answers. watch has ten streams of a hundred watchers
// each on one key, and counts from the moment before the put to each of the
// thousand events, of which none may be missing, double or out of order. large
// puts a million keys one by one, then kills all three and starts them again: until
// the first linearizable read is answered by any.
//
// A figure on the wrong side of its bar is marked missed; it fails nothing, as
// machines differ.
package kv
