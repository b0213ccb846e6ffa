package l4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracepoint is the number of the tracepoint of system calls.
func tracepoint(t *testing.T) uint64 {
	t.Helper()
	dir := t.TempDir() // in a mount namespace of this process
	if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("mount a tracefs: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	text, err := os.ReadFile(filepath.Join(dir, "events/raw_syscalls/sys_enter/id"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// calls counts system calls: all of the calling thread, and those named bpf of every
// thread of the process.
type calls struct{ thread, bpf []int }

func countCalls(tracepoint uint64) (*calls, error) {
	c := &calls{}
	fd, err := event(tracepoint, 0)
	if err != nil {
		return nil, err
	}
	c.thread = []int{fd}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	filter, err := unix.BytePtrFromString(fmt.Sprintf("id == %d", unix.SYS_BPF))
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		fd, err := event(tracepoint, tid)
		if errors.Is(err, unix.ESRCH) {
			continue // it ended
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.bpf = append(c.bpf, fd)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(filter))); errno != 0 {
			return nil, errors.Join(fmt.Errorf("filter system calls: %w", errno), c.close())
		}
	}
	runtime.KeepAlive(filter)
	return c, nil
}

// event opens a counter of a tracepoint for one thread; 0 is the calling one.
func event(tracepoint uint64, tid int) (int, error) {
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: tracepoint, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("count system calls of thread %d: %w", tid, err)
	}
	return fd, nil
}

// read returns both counts so far. It costs as many calls of the thread as there
// are counters.
func (c *calls) read() (thread, bpf uint64, err error) {
	sum := func(fds []int) (n uint64) {
		for _, fd := range fds {
			var b [8]byte
			if _, e := unix.Read(fd, b[:]); e != nil {
				err = errors.Join(err, e)
			}
			n += binary.NativeEndian.Uint64(b[:])
		}
		return n
	}
	return sum(c.thread), sum(c.bpf), err
}

func (c *calls) close() (err error) {
	for _, fd := range append(c.thread, c.bpf...) {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// used is the CPU time of this process.
func used() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// tracked is the number of connections that the conntrack of this network
// namespace knows; 0 where the kernel has none.
func tracked() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
