package hostcheck

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// The oldest kernel with links to cgroups, which a data plane at the sockets
// replaces in one step.
const minMajor, minMinor = 5, 7

func release(f Facts) []Finding {
	var major, minor int
	if _, err := fmt.Sscanf(f.Kernel.Release, "%d.%d", &major, &minor); err != nil {
		return unknown("release", fmt.Sprintf("%q is no release of Linux", f.Kernel.Release))
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return lacking(f, "ebpf", "release", f.Kernel.Release, fmt.Sprintf("run Linux %d.%d or newer, or another data plane", minMajor, minMinor))
	}
	return ok("release", f.Kernel.Release)
}

func btf(f Facts) []Finding {
	if !f.Kernel.BTF {
		finding := lacking(f, "ebpf", "btf", "no /sys/kernel/btf/vmlinux", "run a kernel that was built with CONFIG_DEBUG_INFO_BTF=y, to end connections to dead endpoints by the thousand")
		if finding[0].State == Failed {
			finding[0].State = Warning // it works without, more slowly
		}
		return finding
	}
	return ok("btf", "/sys/kernel/btf/vmlinux")
}

func cgroup2(f Facts) []Finding {
	if len(f.Kernel.Cgroup2) == 0 {
		return lacking(f, "ebpf", "cgroup2", "not mounted", "mount -t cgroup2 none /sys/fs/cgroup")
	}
	return ok("cgroup2", "at "+strings.Join(f.Kernel.Cgroup2, ", "))
}

// ownCgroup is about namespaces of cgroups: a process whose cgroup is above what
// it sees as the root is not led by what is attached there.
func ownCgroup(f Facts) []Finding {
	switch {
	case len(f.Kernel.Cgroup2) == 0:
		return nil // said already
	case f.Kernel.Cgroup == "":
		return unknown("cgroup", "this process is in no cgroup of version 2")
	case strings.HasPrefix(f.Kernel.Cgroup, "/.."):
		return lacking(f, "ebpf", "cgroup", f.Kernel.Cgroup+", outside of the hierarchy that is mounted here",
			"run the agent where the whole hierarchy is mounted, or in this container's own cgroup namespace")
	}
	return ok("cgroup", f.Kernel.Cgroup)
}

// bpffs is mounted by the data plane itself where it may.
func bpffs(f Facts) []Finding {
	switch {
	case len(f.Kernel.BPFFS) > 0:
		return ok("bpffs", "at "+strings.Join(f.Kernel.BPFFS, ", "))
	case f.Kernel.has(unix.CAP_SYS_ADMIN):
		return ok("bpffs", "not mounted; the data plane ebpf does that at /sys/fs/bpf")
	}
	return lacking(f, "ebpf", "bpffs", "not mounted, and this process may not", "mount -t bpf bpf /sys/fs/bpf, or run the agent as root, which does it")
}

// has reports whether this process has a capability.
func (k Kernel) has(capability int) bool { return k.Capabilities&(1<<capability) != 0 }

func unprivilegedBPF(f Facts) []Finding {
	const check = "unprivileged-bpf"
	switch v := f.Kernel.UnprivilegedBPF; {
	case v.Why != "":
		return unknown(check, v.Why)
	case v.Value == 0:
		return found(check, Warning, "any user may load programs into the kernel", "sysctl -w kernel.unprivileged_bpf_disabled=2")
	default:
		return ok(check, fmt.Sprintf("disabled (%d)", v.Value))
	}
}

// capabilities are those of this process; the agent may have others.
func capabilities(f Facts) []Finding {
	names := map[int]string{unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_BPF: "CAP_BPF"}
	var missing []string
	for _, n := range []int{unix.CAP_NET_ADMIN, unix.CAP_BPF} {
		if !f.Kernel.has(n) && (n != unix.CAP_BPF || !f.Kernel.has(unix.CAP_SYS_ADMIN)) {
			missing = append(missing, names[n])
		}
	}
	if len(missing) > 0 {
		return found("capabilities", Skipped, "this process has no "+strings.Join(missing, ", no "), "run it with the rights of the agent; data planes of the kernel need these")
	}
	return ok("capabilities", "CAP_NET_ADMIN and CAP_BPF")
}
