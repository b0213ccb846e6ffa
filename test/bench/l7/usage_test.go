package l7

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the CPU clock of a process and its children: user and system time of
// all threads, in nanoseconds where /proc/PID/stat has hundredths of a second.
func cpuOf(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	const scheduler = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	for _, pid := range family(t, pid) {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
			t.Fatalf("CPU clock of process %d: %v", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum
}

// residentOf is the memory in KiB of a process and its children.
func residentOf(t *testing.T, pid int) (sum float64) {
	t.Helper()
	for _, pid := range family(t, pid) {
		path := fmt.Sprintf("/proc/%d/statm", pid)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		sum += pages * float64(os.Getpagesize()) / 1024
	}
	return sum
}

// family is a process and its children: nginx has a master and a worker.
func family(t *testing.T, pid int) []int {
	t.Helper()
	out := []int{pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, child)
	}
	return out
}

// pinAll keeps every thread of this process, and those that come, to some CPUs.
func pinAll(set unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}
