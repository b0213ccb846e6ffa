package record

import (
	"fmt"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// EncodeVector returns the vector of these states, which are those of a
// definition's instances in its order. The error wraps ErrRecord.
func EncodeVector(states []model.InstanceState) ([]byte, error) {
	if len(states) > MaxInstances {
		return nil, fmt.Errorf("%w: the states of %d instances, at most %d fit the rumour of %d bytes about a node: spread them over more nodes",
			ErrRecord, len(states), MaxInstances, wire.MaxRecordBytes)
	}
	b := make([]byte, len(states))
	for i, s := range states {
		b[i] = byte(s)
	}
	return b, nil
}

// DecodeVector returns the states of n instances. One that the vector does not
// reach, or whose state is a later version's, is critical: nobody is sent
// where it is not known to be well.
func DecodeVector(b []byte, n int) []model.InstanceState {
	states := make([]model.InstanceState, n)
	for i := range min(n, len(b)) {
		if s := model.InstanceState(b[i]); s <= model.InstanceDrained {
			states[i] = s
		}
	}
	return states
}
