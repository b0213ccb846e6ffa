package l4

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of linux/io_uring.h.
const (
	ringSQ, ringCQ, ringSQEs = 0, 0x8000000, 0x10000000 // what is mapped where
	opConnect                = 16
)

// uringConnect connects a socket by io_uring, and returns what that is told.
func uringConnect(c client, fd int, to netip.AddrPort) error {
	var params [30]uint32 // struct io_uring_params
	n, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return skipf("no io_uring here: %v", errno)
	}
	ring := int(n)
	defer unix.Close(ring)
	sq, cq := params[10:20], params[20:30] // offsets: head, tail, ring_mask, ring_entries, …, array or cqes
	var maps [3][]byte
	for i, at := range []int64{ringSQ, ringCQ, ringSQEs} {
		b, err := unix.Mmap(ring, at, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map the ring: %w", err)
		}
		defer func() { _ = unix.Munmap(b) }()
		maps[i] = b
	}
	submissions, completions, entries := maps[0], maps[1], maps[2]

	addr := rawSockaddr(c, to)
	var pin runtime.Pinner // the kernel reads it after the call
	pin.Pin(&addr[0])
	defer pin.Unpin()
	entries[0] = opConnect
	binary.NativeEndian.PutUint32(entries[4:], uint32(fd))
	binary.NativeEndian.PutUint64(entries[8:], uint64(len(addr))) // the length stands where others have an offset
	binary.NativeEndian.PutUint64(entries[16:], uint64(uintptr(unsafe.Pointer(&addr[0]))))
	binary.NativeEndian.PutUint32(submissions[sq[6]:], 0) // the only entry
	binary.NativeEndian.PutUint32(submissions[sq[1]:], 1) // is new
	if _, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(ring), 1, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("io_uring_enter", errno)
	}
	if err := await(ring, unix.POLLIN, c.answer); err != nil {
		return err
	}
	if result := int32(binary.NativeEndian.Uint32(completions[cq[5]+8:])); result < 0 {
		return unix.Errno(-result)
	}
	return nil
}

// rawSockaddr is an address as the kernel reads it.
func rawSockaddr(c client, to netip.AddrPort) []byte {
	if to.Addr().Is4() && !c.mapped {
		b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
		b = binary.BigEndian.AppendUint16(b, to.Port())
		ip := to.Addr().As4()
		return append(append(b, ip[:]...), make([]byte, 8)...)
	}
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	b = binary.BigEndian.AppendUint16(b, to.Port())
	ip := to.Addr().As16()
	return append(append(append(b, 0, 0, 0, 0), ip[:]...), 0, 0, 0, 0) // flow label, address, scope
}
