package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// namePrefix begins the name of every namespace of this package. A name is
// fairlead-test.<pid>.<start>.<topology>.<node>: the process that made it (a pid alone is reused, its start time in clock ticks
// since boot is not), the number of the topology in that process, and the node or "switch".
const namePrefix = "fairlead-test."

// spaceName composes the name of a namespace of this process.
func spaceName(topology uint64, part string) (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d.%d.%d.%s", namePrefix, os.Getpid(), start, topology, part), nil
}

// abandoned tells whether name is one of ours and its maker is gone.
func abandoned(name string) bool {
	rest, ours := strings.CutPrefix(name, namePrefix)
	parts := strings.Split(rest, ".")
	if !ours || len(parts) != 4 {
		return false
	}
	pid, errPid := strconv.Atoi(parts[0])
	start, errStart := strconv.ParseUint(parts[1], 10, 64)
	if errPid != nil || errStart != nil {
		return false
	}
	lives, err := startTime(pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	return lives != start
}

// Sweep removes what test binaries that were killed left behind: their namespaces and the processes still in those. It returns
// the names that it removed. Namespaces of living test binaries, and those of anybody else, are left alone.
func Sweep() ([]string, error) {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("netns: sweep: %w", err)
	}
	var removed []string
	var errs []error
	for _, entry := range entries {
		if !abandoned(entry.Name()) {
			continue
		}
		if inode, err := inodeOf(filepath.Join(runDir, entry.Name())); err == nil {
			errs = append(errs, killInside(inode))
		}
		errs = append(errs, removeSpace(entry.Name()))
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(errs...)
}

// removeSpace takes the name of a namespace away; the kernel then takes the namespace apart, devices included, when no process and
// no socket is left in it. A name that is gone already is no error.
func removeSpace(name string) error {
	path := filepath.Join(runDir, name)
	// EINVAL: not mounted, the maker died between creating the file and mounting on it.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("netns: unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("netns: remove namespace: %w", err)
	}
	return nil
}

// killInside kills every process whose namespace is the given one, by pid, until none is left.
func killInside(inode uint64) error {
	// A process can fork while the list is read; its child is found by the next round.
	for range 100 {
		pids, err := pidsInside(inode)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := killAndWait(pid, inode); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("netns: processes keep appearing in the namespace with inode %d", inode)
}

// killAndWait kills one process, seen in the namespace, through a descriptor that cannot come to mean another one, and waits for its end.
func killAndWait(pid int, inode uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("netns: pidfd of %d: %w", pid, err)
	}
	defer unix.Close(fd)
	// Only now is the pid sure to stay the same process, so look again.
	if in, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || in != inode {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("netns: kill %d: %w", pid, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("netns: wait for %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("netns: process %d does not die of SIGKILL within 5s", pid)
		}
		return nil
	}
}

// pidsInside lists the processes in a namespace, except this one.
func pidsInside(inode uint64) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("netns: list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// An error means that the process is gone or a zombie: neither is inside.
		if in, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && in == inode {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// startTime returns when a process started, in clock ticks since boot (field 22 of proc(5) stat).
func startTime(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("netns: start time: %w", err)
	}
	// The name in field 2 may hold spaces and brackets: count from its end.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("netns: %s: %d fields after the name, want 20 or more", path, len(fields))
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("netns: %s: start time: %w", path, err)
	}
	return start, nil
}
