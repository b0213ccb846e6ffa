package datapath

import (
	"encoding/json"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// Offsets in the stamp; see bpf/headers/stamp.h.
const (
	stampLayout = 0 // in numbers of 4 bytes
	stampBytes  = 1
	stampText   = 8 // in bytes
)

// Mark says in the kernel what is applied. What is too long for that is not said:
// the next process then asks for a snapshot.
func (m *Maps) Mark(s dataplane.State) {
	text, err := json.Marshal(s)
	n := m.stamp.numbers()
	if err != nil || len(text) > len(m.stamp.bytes)-stampText {
		return
	}
	copy(m.stamp.bytes[stampText:], text)
	atomic.StoreUint32(&n[stampLayout], layout.Version)
	atomic.StoreUint32(&n[stampBytes], uint32(len(text)))
}

// Unmark takes the word back, before anything is changed.
func (m *Maps) Unmark() { atomic.StoreUint32(&m.stamp.numbers()[stampBytes], 0) }

// Marked reads what is said to be applied; the zero State: nothing is.
func (m *Maps) Marked() dataplane.State {
	var s dataplane.State
	n := m.stamp.numbers()
	bytes := int(atomic.LoadUint32(&n[stampBytes]))
	if n[stampLayout] != layout.Version || bytes == 0 || bytes > len(m.stamp.bytes)-stampText {
		return s
	}
	if json.Unmarshal(m.stamp.bytes[stampText:stampText+bytes], &s) != nil {
		return dataplane.State{}
	}
	return s
}
