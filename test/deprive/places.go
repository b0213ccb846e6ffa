package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// enterCgroup moves this process, and makes the cgroup namespace where it then is.
func (w want) enterCgroup() error {
	if err := enter(w.cgroup); err != nil {
		return err
	}
	if w.cgroupNamespace {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("make a cgroup namespace: %w", err)
		}
	}
	return enter(w.later)
}

func enter(dir string) error {
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}

// changeMounts alters what is mounted, in a namespace of the command's own.
func (w want) changeMounts() error {
	remount := w.cgroupNamespace && w.later == ""
	if len(w.hide) == 0 && !w.noCgroup2 && !remount {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if w.noCgroup2 || remount {
		if err := replaceCgroup2(remount); err != nil {
			return err
		}
	}
	for _, dir := range w.hide {
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return nil
}

// replaceCgroup2 unmounts the hierarchy from everywhere, and mounts it as this
// process's namespace shows it.
func replaceCgroup2(mount bool) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		at := fields[4]
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
		if mount {
			if err := unix.Mount("none", at, "cgroup2", 0, ""); err != nil {
				return fmt.Errorf("mount cgroup2 at %s: %w", at, err)
			}
		}
	}
	return nil
}
