// Package sim runs clusters of swim.Node values in virtual time, breaks
// everything around them that can break, and checks after each call into a
// Node that what it holds is still true.
//
// A World is the machines, the network between them and the clock. Its only
// source of chance is the seed: the same seed gives the same run, byte by byte.
// A Run drives one World through six acts:
//
//	formation    join through a seed, one leave, no fault: nobody is suspected
//	storm        loss, delay, duplication, reordering, cuts, partitions, pauses,
//	             crashes, restarts, restored directories, reinstalls, …
//	heal         all faults end: within Floor the live agree, and stay agreed
//	reunion      a partition without contacts: the sides find each other by the dead
//	one-way cut  one direction of one link is gone: nobody dies of it
//	crash        one process ends: all see it within Detection, then all is quiet
//
// # Invariants
//
// Those that hold after every call are functions of an Observation: what one
// Node held before and after the call, and what it was told. Those of a whole
// act are functions of the World. Each is named after its number in the list
// that the project's design keeps, and says its sentence; Invariants lists them.
// Where a number has two halves, it has two functions.
//
// # When a seed fails
//
// The test prints the invariant, the last lines of the trace, and the command
// that runs this seed alone. If it is a bug of core/swim, write it as a scenario
// in testdata/scenarios once it is understood.
//
// # Mutants
//
// testdata/mutants holds patches to core that each plant one bug, and name the
// invariant that has to find it. They are applied with `go test -overlay`; the
// production code has no switches for tests.
package sim
