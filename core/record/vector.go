package record

import (
	"encoding/binary"
	"fmt"

	"github.com/fairlead/fairlead/core/model"
)

// The formats of a vector, its first byte. Append only: a state that two bits
// do not hold needs another one.
const (
	formatPacked = 1 // two bits for each instance, the lowest first
	formatRuns   = 2 // varints: a count of equal states, shifted left by two, and the state
)

// perByte is how many states a byte of formatPacked holds.
const perByte = 4

// MaxVectorBytes is the longest vector: MaxInstances, packed.
const MaxVectorBytes = 1 + (MaxInstances+perByte-1)/perByte

// EncodeVector returns the vector of these states, which are those of a
// definition's instances in its order: the shorter of the two forms, so that
// the same states are always the same bytes. It has at most MaxVectorBytes, and
// no more than 1 + ⌈n/4⌉. No states are nil. The error wraps ErrRecord.
func EncodeVector(states []model.InstanceState) ([]byte, error) {
	if len(states) > MaxInstances {
		return nil, tooManyInstances(len(states))
	}
	if len(states) == 0 {
		return nil, nil
	}
	size := 1 + (len(states)+perByte-1)/perByte
	if b := appendRuns(make([]byte, 0, size), states, size-1); b != nil {
		return b, nil
	}
	b := make([]byte, size)
	b[0] = formatPacked
	for i, s := range states {
		b[1+i/perByte] |= known(s) << (2 * (i % perByte))
	}
	return b, nil
}

// appendRuns appends the form of runs, or returns nil if it would be longer
// than limit.
func appendRuns(b []byte, states []model.InstanceState, limit int) []byte {
	b = append(b, formatRuns)
	for i := 0; i < len(states); {
		end := i + 1
		for end < len(states) && known(states[end]) == known(states[i]) {
			end++
		}
		b = binary.AppendUvarint(b, uint64(end-i)<<2|uint64(known(states[i])))
		if len(b) > limit {
			return nil
		}
		i = end
	}
	return b
}

// known is a state as two bits. What no version of this code knows is critical.
func known(s model.InstanceState) byte {
	if s > model.InstanceDrained {
		s = model.InstanceCritical
	}
	return byte(s)
}

// DecodeVector returns the states of n instances. One that the vector does not
// reach is critical, and so are all of a later version's vector: nobody is sent
// where it is not known to be well.
func DecodeVector(b []byte, n int) []model.InstanceState {
	states := make([]model.InstanceState, n)
	if len(b) == 0 {
		return states
	}
	switch format, b := b[0], b[1:]; format {
	case formatPacked:
		for i := range min(n, perByte*len(b)) {
			states[i] = model.InstanceState(b[i/perByte] >> (2 * (i % perByte)) & 3)
		}
	case formatRuns:
		for at := 0; at < n; {
			run, size := binary.Uvarint(b)
			if size <= 0 {
				break
			}
			b = b[size:]
			end := at + int(min(run>>2, uint64(n-at)))
			for ; at < end; at++ {
				states[at] = model.InstanceState(run & 3)
			}
		}
	}
	return states
}

func tooManyInstances(n int) error {
	return fmt.Errorf("%w: %d instances on one node, at most %d: spread them over more nodes", ErrRecord, n, MaxInstances)
}
