package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Right is a capability that the data plane uses.
type Right uint

// The rights, by what they are for.
const (
	Programs Right = unix.CAP_BPF       // to make maps and programs
	Hooks    Right = unix.CAP_NET_ADMIN // to load and attach programs for sockets
	Tracing  Right = unix.CAP_PERFMON   // to load programs that look into the kernel's own structures
	Mounting Right = unix.CAP_SYS_ADMIN // to mount file systems, and to enter network namespaces
)

// String is its name in capabilities(7).
func (r Right) String() string {
	switch r {
	case Programs:
		return "CAP_BPF"
	case Hooks:
		return "CAP_NET_ADMIN"
	case Tracing:
		return "CAP_PERFMON"
	case Mounting:
		return "CAP_SYS_ADMIN"
	}
	return fmt.Sprintf("capability %d", uint(r))
}

// Lacking are those rights that this process does not have. To bpf(2) CAP_SYS_ADMIN
// includes the others; before Linux 5.8 it was the only one.
func Lacking(rights ...Right) (lacking []Right) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return nil // nothing can be said
	}
	has := func(r Right) bool { return data[r/32].Effective&(1<<(r%32)) != 0 }
	for _, r := range rights {
		if !has(r) && !has(Mounting) {
			lacking = append(lacking, r)
		}
	}
	return lacking
}
