package datapath

import (
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// Sample says of how many flows one is reported.
type Sample struct{ memory mapping }

// NewSample maps the settings of the programs.
func NewSample(m *ebpf.Map) (*Sample, error) {
	memory, err := mapped(m)
	if err != nil {
		return nil, err
	}
	return &Sample{memory}, nil
}

// Set reports one flow in so many; 0: none.
func (s *Sample) Set(oneIn uint32) { atomic.StoreUint32(&s.memory.numbers()[0], oneIn) }

// Close leaves the setting as it is.
func (s *Sample) Close() { s.memory.close() }
