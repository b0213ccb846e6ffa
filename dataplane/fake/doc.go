// Package fake is a data plane without data: it keeps in memory what it is told
// to program, and its String prints that. It obeys the contract to the letter,
// so it is the reference that tests and the conformance suite run against, and
// an example for authors. fairlead-dataplane-fake is its program.
//
// NewIn gives it a directory that plays the kernel: what was programmed stays
// there when the process dies, a new one finds it, and Cleanup works without
// anything else.
package fake
