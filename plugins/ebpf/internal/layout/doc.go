// Package layout is the content of the maps of package bpf: how words and slots
// are written, where in the arrays they go, and in which order changes become
// visible, so that a program in the kernel never sees a half of one. It decides;
// a Kernel does what it says. There is no system call here, so all of it is tested
// against a kernel that is a few Go maps.
//
//	frontend ──► id ──► publications[2·id + scope] = {set, count, flags}
//	                                 │
//	    endpoints[set] = header, endpoints[set+1 … set+count], by endpoint id
//
// # Who may use what again, and when
//
// A program that has read an id, a word or a slot may use it until it ends. So what
// nothing leads to any more is retired, not free: ids and slots are given out again
// only after Kernel.Grace, which returns when every program that ran before has
// ended. It takes some 10 ms, so it is asked for only when nothing else is left.
package layout

// Version is the layout's. Another one means other maps: a program must never run
// on the maps of a layout that is not its own.
const Version = 1
