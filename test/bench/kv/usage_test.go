package kv

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the CPU clock of a process: user and system time of all threads, in
// nanoseconds where /proc/PID/stat has hundredths of a second.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	const scheduler = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		t.Fatalf("CPU clock of process %d: %v", pid, err)
	}
	return time.Duration(ts.Nano())
}

// memory is what a process holds, in MiB.
type memory struct{ anon, file float64 }

func memoryOf(t *testing.T, pid int) (m memory) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "RssAnon:" && fields[0] != "RssFile:" {
			continue
		}
		kib, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if fields[0] == "RssAnon:" {
			m.anon = kib / 1024
		} else {
			m.file = kib / 1024
		}
	}
	return m
}
