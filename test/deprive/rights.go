package main

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilities are the names that -drop takes.
func capabilities() map[string]uintptr {
	return map[string]uintptr{
		"CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN,
		"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE,
		"CAP_SYS_RESOURCE": unix.CAP_SYS_RESOURCE, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_BPF": unix.CAP_BPF,
	}
}

// dropCapabilities takes them from all that this process becomes.
func (w want) dropCapabilities() error {
	var drop []uintptr
	switch w.drop {
	case "":
		return nil
	case "all":
		for n := range uintptr(64) {
			drop = append(drop, n)
		}
	default:
		for name := range strings.SplitSeq(w.drop, ",") {
			n, ok := capabilities()[name]
			if !ok {
				return fmt.Errorf("-drop %s: want all, or some of %v", name, capabilities())
			}
			drop = append(drop, n)
		}
	}
	var gone uint64
	for _, n := range drop {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // beyond the last one of this kernel
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
		gone |= 1 << n
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for i := range data {
		kept := ^uint32(gone >> (32 * i))
		data[i].Effective &= kept
		data[i].Permitted &= kept
		data[i].Inheritable &= kept
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// limitMemory limits what may be locked, also for root.
func (w want) limitMemory() error {
	if w.memlock < 0 {
		return nil
	}
	limit := unix.Rlimit{Cur: uint64(w.memlock), Max: uint64(w.memlock)}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil); err != nil {
		return fmt.Errorf("limit locked memory: %w", err)
	}
	return nil
}

// commands are the names of commands of bpf(2) that -bpf takes.
func commands() map[string]uint32 {
	return map[string]uint32{
		"MAP_CREATE": unix.BPF_MAP_CREATE, "PROG_LOAD": unix.BPF_PROG_LOAD, "PROG_ATTACH": unix.BPF_PROG_ATTACH, "PROG_QUERY": unix.BPF_PROG_QUERY,
		"OBJ_PIN": unix.BPF_OBJ_PIN, "OBJ_GET": unix.BPF_OBJ_GET, "BTF_LOAD": unix.BPF_BTF_LOAD,
		"LINK_CREATE": unix.BPF_LINK_CREATE, "LINK_UPDATE": unix.BPF_LINK_UPDATE, "ITER_CREATE": unix.BPF_ITER_CREATE,
	}
}

// Where seccomp_data of seccomp(2) has the number of the system call and the low
// half of its first argument.
const (
	offsetNumber = 0
	offsetFirst  = 16
)

// filter lets calls of bpf(2) fail.
func (w want) filter() error {
	if len(w.bpf) == 0 {
		return nil
	}
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{{Code: load, K: offsetNumber}, {Code: equal, K: unix.SYS_BPF, Jt: 1}, {Code: answer, K: unix.SECCOMP_RET_ALLOW}}
	program = append(program, unix.SockFilter{Code: load, K: offsetFirst})
	for _, one := range w.bpf {
		name, errno, some := strings.Cut(one, "=")
		if !some {
			name, errno = "", one
		}
		number, err := errnoOf(errno)
		if err != nil {
			return err
		}
		if some {
			command, ok := commands()[name]
			if !ok {
				return fmt.Errorf("-bpf %s: want one of %v", one, commands())
			}
			program = append(program, unix.SockFilter{Code: equal, K: command, Jf: 1})
		}
		program = append(program, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | number})
	}
	program = append(program, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

func errnoOf(name string) (uint32, error) {
	for n := range unix.Errno(200) {
		if unix.ErrnoName(n) == name {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("%q is no errno: want a name such as EPERM", name)
}
