package pluginhost

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilities is a set, bit n is capability number n of capabilities(7).
type capabilities uint64

// capabilityNames is indexed by number.
func capabilityNames() []string {
	return strings.Fields(`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
		net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace
		sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control
		setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore`)
}

// parseCapabilities reads names such as CAP_NET_ADMIN, in any case.
func parseCapabilities(names []string) (capabilities, error) {
	var set capabilities
	for _, name := range names {
		n := -1
		for i, known := range capabilityNames() {
			if strings.EqualFold(name, "cap_"+known) {
				n = i
			}
		}
		if n < 0 {
			return 0, fmt.Errorf("%q is no capability; want names such as CAP_NET_ADMIN", name)
		}
		set |= 1 << n
	}
	return set, nil
}

func (c capabilities) has(n int) bool { return c&(1<<n) != 0 }

// limitThread takes from the calling thread all that a program which it starts
// could have beyond c. The caller has locked its goroutine to the thread and
// never unlocks it, so that no other goroutine runs there.
//
// A program of root gets its bounding set, one of another user its ambient set.
// The thread itself keeps what it has: it still needs it to start the program.
func (c capabilities) limitThread() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	permitted := capabilities(data[0].Permitted) | capabilities(data[1].Permitted)<<32
	for n := range 64 {
		if c.has(n) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // beyond the last one of this kernel
		}
		if err != nil && os.Geteuid() == 0 {
			return fmt.Errorf("drop capability %d, which the manifest does not list: %w; give the agent CAP_SETPCAP", n, err)
		}
	}
	inheritable := c & permitted
	data[0].Inheritable, data[1].Inheritable = uint32(inheritable), uint32(inheritable>>32)
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set the inheritable capabilities: %w", err)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	for n := range 64 {
		if !inheritable.has(n) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(n), 0, 0); err != nil {
			return fmt.Errorf("raise ambient capability %d: %w", n, err)
		}
	}
	return nil
}
