// Package host finds what the data plane needs of the machine: the cgroup v2
// hierarchy, the BPF file system, this process's place in both. It looks at what is
// mounted, never at versions or at where a distribution usually puts things.
package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNone is wrapped when a file system is mounted nowhere.
var ErrNone = errors.New("not mounted")

// Mount is one line of mountinfo.
type Mount struct {
	Root  string // what of the file system is mounted
	Point string
	Type  string
}

// Mounts reads the mounts of this process.
func Mounts() ([]Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	return ParseMounts(string(text)), nil
}

// ParseMounts reads proc_pid_mountinfo(5): the fourth field is the root, the fifth
// the mount point, and the type comes after a field that is a dash.
func ParseMounts(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		dash := 6
		for dash < len(fields) && fields[dash] != "-" {
			dash++
		}
		if dash+1 >= len(fields) {
			continue
		}
		out = append(out, Mount{Root: unescape(fields[3]), Point: unescape(fields[4]), Type: fields[dash+1]})
	}
	return out
}

// unescape undoes how the kernel writes spaces, tabs, line ends and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// DefaultBPFFS is where systemd and everybody else mount the BPF file system.
const DefaultBPFFS = "/sys/fs/bpf"

// IsBPFFS reports whether a directory is in a BPF file system.
func IsBPFFS(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.BPF_FS_MAGIC
}

// BPFFS lists where BPF file systems are mounted, each path once.
func BPFFS(mounts []Mount) []string {
	seen := make(map[string]bool)
	var out []string
	for _, m := range mounts {
		if m.Type == "bpf" && !seen[m.Point] && IsBPFFS(m.Point) {
			seen[m.Point] = true
			out = append(out, m.Point)
		}
	}
	return out
}

// CanMountBPFFS tries to make a BPF file system that is mounted nowhere and gone
// at once.
func CanMountBPFFS() error {
	fd, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("fsconfig: %w", err)
	}
	return nil
}

// MountBPFFS mounts a BPF file system at a directory, unless one is there.
func MountBPFFS(dir string) error {
	if IsBPFFS(dir) {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount a BPF file system at %s: %w: run `mount -t bpf bpf %s`", dir, err, dir)
	}
	return nil
}

// Cookie is what programs know this process's network namespace by.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("cookie of the network namespace: socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("cookie of the network namespace: %w", err)
	}
	return cookie, nil
}
