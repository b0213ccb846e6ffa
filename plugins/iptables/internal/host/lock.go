package host

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// LockFile is what the legacy binaries lock while they read and write the tables.
func LockFile() string { return cmp.Or(os.Getenv("XTABLES_LOCKFILE"), "/run/xtables.lock") }

// LockHolder names the process that holds the lock, as far as the kernel tells: ""
// if nobody does.
func LockHolder() string {
	var st syscall.Stat_t
	if err := syscall.Stat(LockFile(), &st); err != nil {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	pid, ok := holder(string(locks), st.Ino)
	if !ok {
		return ""
	}
	if pid <= 0 { // of another PID namespace
		return "a process that is not seen from here"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// holder finds the process that holds a lock of a file. The device is not compared:
// overlay file systems show another one than stat.
func holder(locks string, inode uint64) (pid int, ok bool) {
	for line := range strings.Lines(locks) {
		// 1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] == "->" { // who waits has an arrow
			continue
		}
		at := strings.Split(f[5], ":")
		if n, err := strconv.ParseUint(at[len(at)-1], 10, 64); err != nil || n != inode {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		return pid, err == nil
	}
	return 0, false
}

// TryLock takes the lock and gives it back, and says ErrLocked if it was not to be
// had in time.
func TryLock(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	file, err := os.OpenFile(LockFile(), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	defer file.Close()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return ErrLocked
		case <-again.C:
		}
	}
	return nil // closing the file gives it back
}
