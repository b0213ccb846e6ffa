package l4

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the name of the cgroups of this package; the process
// that made one follows.
const cgroupPrefix = "fairlead-traffic."

// cgroup is a child cgroup that this process is in while the suite runs, so that
// programs attached to it see the sockets of the suite and of nobody else.
type cgroup struct {
	dir, home string
}

// enterCgroup makes the cgroup and moves this process into it.
func enterCgroup() (*cgroup, error) {
	home, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	sweepCgroups(home)
	c := &cgroup{home: home, dir: filepath.Join(home, cgroupPrefix+strconv.Itoa(os.Getpid()))}
	for range 10 {
		if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("l4: make a cgroup: %w", err)
		}
		if err = move(c.dir); !errors.Is(err, os.ErrNotExist) {
			break // else another run removed what was still empty
		}
	}
	if err != nil {
		_ = os.Remove(c.dir)
		return nil, err
	}
	return c, nil
}

// leave moves this process back, kills who is left behind, and removes the cgroup.
func (c *cgroup) leave() error {
	if err := move(c.home); err != nil {
		return err
	}
	return removeCgroup(c.dir)
}

func move(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("l4: enter cgroup %s: %w", dir, err)
	}
	return nil
}

func removeCgroup(dir string) error {
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644) // since 5.14; before, what is left stays busy
	var err error
	for range 200 { // the killed leave in a while
		if err = unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			break
		}
		_, _ = unix.Poll(nil, 10)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("l4: remove cgroup %s: %w", dir, err)
	}
	return nil
}

// sweepCgroups removes those of runs that were killed: they are empty, while a run
// is in its own.
func sweepCgroups(home string) {
	left, _ := filepath.Glob(filepath.Join(home, cgroupPrefix+"*"))
	for _, dir := range left {
		_ = unix.Rmdir(dir)
	}
}

// ownCgroup is the directory of this process's cgroup v2.
func ownCgroup() (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("l4: %w", err)
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("l4: %w", err)
	}
	_, path, found := bytes.Cut(self, []byte("0::"))
	if !found {
		return "", errors.New("l4: this process is in no cgroup of version 2, which the plane needs: boot with cgroup v2, or mount it")
	}
	path, _, _ = bytes.Cut(path, []byte("\n"))
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			return filepath.Join(fields[4], string(path)), nil
		}
	}
	return "", errors.New("l4: cgroup v2 is not mounted, and the plane needs it: mount -t cgroup2 none /sys/fs/cgroup/unified")
}
