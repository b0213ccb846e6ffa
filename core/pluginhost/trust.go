package pluginhost

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// trust says whose files may run. Its zero value trusts everybody, which is
// right for an agent without rights that others lack.
type trust struct {
	root   bool
	owners map[uint32]bool
}

// newTrust returns the rule for this process: as root, files of root and of the
// owner of the agent's own binary.
func newTrust(binary string) trust {
	if os.Geteuid() != 0 {
		return trust{}
	}
	t := trust{root: true, owners: map[uint32]bool{0: true}}
	if info, err := os.Stat(binary); err == nil {
		t.owners[info.Sys().(*syscall.Stat_t).Uid] = true
	}
	return t
}

// file refuses a file that somebody else could have written. It looks at what
// was opened, not at a path that may mean another file by now.
func (t trust) file(path string, info fs.FileInfo) *Refusal {
	if !t.root {
		return nil
	}
	return t.check(path, info, false)
}

// directories refuses a directory in which, or in a parent of which, somebody
// else could put another file in the place of path. The path has no symbolic
// links.
func (t trust) directories(dir string) *Refusal {
	if !t.root {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return refuse(err.Error(), "check the path")
		}
		// In a sticky directory such as /tmp nobody can rename or remove what
		// is not theirs, so it is good enough for a parent.
		if r := t.check(at, info, at != dir); r != nil {
			return r
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func (t trust) check(path string, info fs.FileInfo, parent bool) *Refusal {
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !t.owners[owner] {
		return refuse(fmt.Sprintf("%s belongs to user %s, and the agent runs as root", path, strconv.FormatUint(uint64(owner), 10)),
			"chown root "+path)
	}
	sticky := info.Mode()&fs.ModeSticky != 0
	if info.Mode().Perm()&0o022 != 0 && (!parent || !sticky) {
		return refuse(fmt.Sprintf("%s has mode %04o: others than its owner may write it, and the agent runs as root", path, info.Mode().Perm()),
			"chmod go-w "+path)
	}
	return nil
}
