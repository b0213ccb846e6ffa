package ebpf

import (
	"encoding/binary"
	"errors"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// Numbers of linux/io_uring.h.
const (
	ringSQ, ringCQ, ringSQEs = 0, 0x8000000, 0x10000000 // what is mapped where
	opConnect                = 16
	enterGetEvents           = 1
)

// uringConnect connects a socket by io_uring, and returns what it is told.
func uringConnect(t *testing.T, fd int, to string) error {
	t.Helper()
	var params [30]uint32 // struct io_uring_params
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		t.Skipf("skipped: no io_uring here: %v", errno)
	}
	defer unix.Close(int(ring))
	sq, cq := params[10:20], params[20:30] // offsets: head, tail, ring_mask, ring_entries, …, array or cqes
	mapping := func(at int64, size int) []byte {
		b, err := unix.Mmap(int(ring), at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(b) })
		return b
	}
	subs, completions, entries := mapping(ringSQ, 4096), mapping(ringCQ, 4096), mapping(ringSQEs, 4096)

	var addr unix.RawSockaddrInet4
	sa := sockaddr(to).(*unix.SockaddrInet4)
	addr.Family, addr.Addr = unix.AF_INET, sa.Addr
	addr.Port = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(sa.Port)))
	entries[0] = opConnect
	binary.NativeEndian.PutUint32(entries[4:], uint32(fd))
	binary.NativeEndian.PutUint64(entries[8:], uint64(unix.SizeofSockaddrInet4)) // the length stands where others have an offset
	binary.NativeEndian.PutUint64(entries[16:], uint64(uintptr(unsafe.Pointer(&addr))))
	binary.NativeEndian.PutUint32(subs[sq[6]:], 0) // the only entry
	binary.NativeEndian.PutUint32(subs[sq[1]:], 1) // is new
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, 1, 1, enterGetEvents, 0, 0)
	runtime.KeepAlive(&addr)
	if errno != 0 {
		t.Fatal(errno)
	}
	result := int32(binary.NativeEndian.Uint32(completions[cq[5]+8:]))
	if result < 0 {
		return syscall.Errno(-result)
	}
	return nil
}

// TestUring: io_uring asks the same hooks.
func TestUring(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("a", vip("10.200.1.1:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")), service("none", vip("10.200.1.2:80", dataplane.TCP)),
	))
	fd := rawSocket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
	if err := uringConnect(t, fd, "10.200.1.1:80"); err != nil {
		t.Fatal(err)
	}
	if got := peer(t, fd); got != "10.200.1.1:80" {
		t.Errorf("the peer is %s", got)
	}
	none := rawSocket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
	if err := uringConnect(t, none, "10.200.1.2:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without endpoints: %v, want ECONNREFUSED", err)
	}
}
