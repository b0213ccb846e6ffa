// Package record is the codec of node records: what a node says of itself, as
// bytes that other nodes pull (the definition) and hear in rumours (the
// vector). It is pure.
//
// # Definition
//
// The encoding is protobuf's wire format, written by hand, so that bytes are
// the same for the same definition: its hash names it in the cluster. Fields
// come in the order of their numbers, maps sorted by key, zero values are left
// out. Numbers are never reused; readers skip unknown ones, and take an enum's
// unknown value as it is.
//
//	Definition  1 advertise (ip)   2 zone   3 Service…   4 Instance…   5 Server
//	Service     1 namespace   2 name   3 Port…   4 vip (ip)   5 intercept (ip, port)…   6 on_empty   7 balance
//	            8 affinity ns   9 hosts…   10 Route…   11 drain_time ns   12 registered unix ms (zigzag)
//	Port        1 port   2 protocol
//	Instance    1 id   2 namespace   3 name   4 address (ip, port)   5 host_port   6 weight + 1
//	Route       1 host   2 path_prefix   3 Header…   4 methods…
//	Header      1 name   2 value
//	Server      1 raft id   2 group   3 rpc (ip, port)   4 api (ip, port)   5 expect   6 term in which it leads
//
// An ip is 4 or 16 bytes; a port after it is 2 more, big endian. An instance
// without a weight has weight 1.
//
// # Vector
//
// The model.InstanceState of each instance, in the order of the definition. It
// belongs to the definition whose hash stands before it in the rumour, and to
// no other. The first byte says how the rest is written; the writer takes what
// is shorter, the first of the two if neither is:
//
//	1   two bits for each instance, four to a byte, from the lowest bits on
//	2   runs: varints of count << 2 | state
//
// A node all of whose instances pass has a vector of three bytes or so. How
// long one may be to travel in a rumour is core/membership's to say; others
// are pulled, as definitions are.
package record
