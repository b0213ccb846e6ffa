package host

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxNames bounds what CgroupNames remembers. Ids are not used again, so on a
// host that makes many cgroups the old ones only take room.
const maxNames = 4096

// fileIDKernfs is the type of handle by which the kernel finds a cgroup: its id
// (FILEID_KERNFS, include/linux/exportfs.h).
const fileIDKernfs = 0xfe

// CgroupNames finds the paths of cgroups by their ids. One goroutine uses it.
type CgroupNames struct {
	root  string
	known map[uint64]string
}

// NewCgroupNames looks below root, where the hierarchy is mounted.
func NewCgroupNames(root string) *CgroupNames {
	return &CgroupNames{root: root, known: make(map[uint64]string)}
}

// Name is the path below the root, with a slash in front, of the cgroup that a
// process was in a moment ago; empty if both are gone, or may not be seen.
func (c *CgroupNames) Name(id uint64, pid uint32) string {
	if name, ok := c.known[id]; ok {
		return name
	}
	name, ok := c.byHandle(id)
	if !ok {
		name, ok = c.byProcess(id, pid)
	}
	if !ok {
		return ""
	}
	if len(c.known) >= maxNames {
		clear(c.known)
	}
	c.known[id] = name
	return name
}

// byHandle asks the kernel, which takes CAP_DAC_READ_SEARCH.
func (c *CgroupNames) byHandle(id uint64) (string, bool) {
	root, err := unix.Open(c.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(root)
	handle := unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(root, handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", false
	}
	below, ok := strings.CutPrefix(path, c.root)
	return filepath.Clean("/" + below), ok
}

// byProcess asks which cgroup the process is in by now, and whether that is the one.
func (c *CgroupNames) byProcess(id uint64, pid uint32) (string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", false
	}
	name, err := ParseOwnCgroup(string(text))
	if err != nil {
		return "", false
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(c.root, name), &st) != nil || st.Ino != id {
		return "", false
	}
	return name, true
}
