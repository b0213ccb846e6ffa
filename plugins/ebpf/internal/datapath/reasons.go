package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Reason is why a program did what it did. The numbers are those of
// bpf/headers/verdict.h.
type Reason uint8

// The reasons.
const (
	Forwarded Reason = iota
	NoFrontend
	OtherProtocol
	Withdrawn
	EmptyPassed
	EmptyRefused
	Denied
	NoMemory
	Untracked
	Broken
	Kept
	Reversed
	Peer
	reasons
)

// String prints the reason as it is in the names of counters.
func (r Reason) String() string {
	names := [reasons]string{
		"forwarded", "no_frontend", "other_protocol", "withdrawn", "empty_passed", "empty_refused", "denied", "no_memory", "untracked", "broken",
		"kept", "reversed", "peer",
	}
	if r >= reasons {
		return fmt.Sprintf("unknown_%d", uint8(r))
	}
	return names[r]
}

// Reasons lists all reasons.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// ReadReasons adds up what all processors counted.
func ReadReasons(m *ebpf.Map) ([]uint64, error) {
	sums := make([]uint64, reasons)
	var perCPU []uint64
	for r := range sums {
		if err := m.Lookup(uint32(r), &perCPU); err != nil {
			return nil, fmt.Errorf("datapath: reason %v: %w", Reason(r), err)
		}
		for _, n := range perCPU {
			sums[r] += n
		}
	}
	return sums, nil
}
