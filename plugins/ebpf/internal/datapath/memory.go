package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapping is the memory of an array map. What is stored there, programs see.
type mapping struct{ bytes []byte }

// mapped maps the whole of an array into this process.
func mapped(m *ebpf.Map) (mapping, error) {
	size := int(m.MaxEntries()) * int(m.ValueSize()) // Invariant: all values are multiples of 8 bytes
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, fmt.Errorf("memory of map %v: %w", m, err)
	}
	return mapping{b}, nil
}

func (m *mapping) close() {
	if m.bytes != nil {
		_ = unix.Munmap(m.bytes) // of what Mmap returned: cannot fail
		m.bytes = nil
	}
}

// words is the memory as words of 8 bytes: the mapping begins at a page.
func (m *mapping) words() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/8)
}

// numbers is the memory as numbers of 4 bytes.
func (m *mapping) numbers() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/4)
}
