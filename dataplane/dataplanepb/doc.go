// Package dataplanepb is the contract of package dataplane on the wire:
// dataplane.proto and the code generated from it. ../PROTOCOL.md describes it.
package dataplanepb
