// Package bench measures whole agents beside a peer: fleets of processes of
// fairlead and of hashicorp/memberlist, at the same time, on the same machine.
//
//	make bench                      the hot paths, then everything here (7 minutes)
//	go test -C test/bench ./...     fleets of 5 for a moment: does it still work?
//
// It is a module of its own, so that what it compares with is no dependency of
// Fairlead.
//
// # What is counted
//
// Each fleet lives alone on the loopback device of a network namespace of its
// own, one address of 127.0.0.0/8 per member. Bytes and packets are what that
// device carried, divided by the members: each packet counts once, where it
// is sent, with its IP header and without the 14 bytes of Ethernet. TCP
// counts whole: handshakes, acknowledgements, ends. CPU is the time of all
// threads, of the kernel's clock for the process, in nanoseconds. Memory is
// smaps_rollup.
//
// Times of failures are those that the members themselves put on their events,
// against the moment before the SIGKILL.
//
// # How to read it
//
// Both fleets are measured in the same windows, so a busy machine is busy for
// both: trust ratios before numbers. A/A is the second window of the agent
// divided by the first, which is the noise.
package bench
