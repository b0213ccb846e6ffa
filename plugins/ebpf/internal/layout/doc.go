// Package layout is the content of the maps of package bpf: how words and slots
// are written, where in the arrays they go, and in which order changes become
// visible, so that a program in the kernel never sees a half of one. It decides;
// a Kernel does what it says. There is no system call here, so all of it is tested
// against a kernel that is a few slices.
//
//	Index: frontend ──► entry = {key, word for home}, foreign[entry] = word for others
//	                                          │ {set, count, flags}
//	    endpoints[set … set+count-1], by endpoint id: address, owner, hits
//	                                          │                   │
//	    services[place]: id, affinity, counts, name ◄── if count is 0, place is set
//
// # Counts
//
// Programs count a connection in the slot that they chose, and what a service could
// not do in its place. A set that is replaced hands its hits on before the new one is
// published: to the slots of the same endpoints, or, for those that are gone, to the
// service's Past. So what was counted is in the maps, and outlives the process.
//
// # Who may use what again, and when
//
// A program that has found an entry, a word or a slot may use it until it ends. So what
// nothing leads to any more is retired, not free: entries, places and slots are given out again
// only after Kernel.Grace, which returns when every program that ran before has
// ended. It takes some 10 ms, so it is asked for only when nothing else is left.
package layout

// Version is the layout's. Another one means other maps: a program must never run
// on the maps of a layout that is not its own.
const Version = 2
