package dataplane

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime reads the CPU clock of a process: user and system time of all its
// threads, in nanoseconds.
func cpuTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

const mib = 1024 // in the kB of /proc

// private is the memory in MiB that a process shares with no other: its own,
// and what it alone has in memory of files, above all its program. The latter
// is shared by all processes of one program, and the kernel can drop it.
func private(pid int) (own, files float64, err error) {
	var kib [3]uint64
	for i, key := range []string{"Private_Clean:", "Private_Dirty:", "Anonymous:"} {
		if kib[i], err = field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), key); err != nil {
			return 0, 0, err
		}
	}
	own = float64(kib[2]) / mib
	return own, float64(kib[0]+kib[1])/mib - own, nil
}

// resident is the memory in MiB of a process, and the most it was since
// forgetPeak.
func resident(pid int) (now, peak float64, err error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	rss, err1 := field(path, "VmRSS:")
	hwm, err2 := field(path, "VmHWM:")
	return float64(rss) / mib, float64(hwm) / mib, errors.Join(err1, err2)
}

func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// field reads the number after a key of a file of /proc.
func field(path, key string) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == key {
			return strconv.ParseUint(words[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}
