package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/netns"
)

// ethernetHeader is counted by the loopback device and sent by nobody.
const ethernetHeader = 14

// usage is what a fleet has used since it was started.
type usage struct {
	at      time.Time
	cpu     time.Duration // all threads of all members
	wakeups uint64        // times that a thread of them waited and went on
	traffic netns.Traffic
}

// rates is the usage of one member in a window.
type rates struct {
	bytes, packets, cpu, wakeups float64 // each per second; cpu in ms
}

// usage reads all counters of the fleet.
func (f *fleet) usage() (usage, error) {
	u := usage{at: time.Now(), traffic: f.node.Traffic("lo")}
	for _, m := range f.members {
		cpu, err := cpuTime(m.proc.Pid())
		if err != nil {
			return u, fmt.Errorf("%v %s: %w", f, m.name, err)
		}
		wakeups, err := switches(m.proc.Pid())
		if err != nil {
			return u, fmt.Errorf("%v %s: %w", f, m.name, err)
		}
		u.cpu += cpu
		u.wakeups += wakeups
	}
	return u, nil
}

// since is the usage per member and second since an earlier reading.
func (u usage) since(earlier usage, members int) rates {
	per := u.at.Sub(earlier.at).Seconds() * float64(members)
	t := u.traffic.Sub(earlier.traffic)
	return rates{
		bytes:   float64(t.TxBytes-ethernetHeader*t.TxPackets) / per,
		packets: float64(t.TxPackets) / per,
		cpu:     float64((u.cpu - earlier.cpu).Microseconds()) / 1000 / per,
		wakeups: float64(u.wakeups-earlier.wakeups) / per,
	}
}

// cpuTime reads the CPU clock of a process: user and system time of all its
// threads, ended ones included, in nanoseconds where /proc/PID/stat has
// hundredths of a second.
func cpuTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// switches sums the voluntary context switches of the threads of a process.
func switches(pid int) (uint64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, thread := range threads {
		n, err := field(thread, "voluntary_ctxt_switches:")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// memory is the mean of the members' memory in MiB: all that is mapped and
// present, and the part that no other process shares.
func (f *fleet) memory() (resident, private float64, err error) {
	for _, m := range f.members {
		path := fmt.Sprintf("/proc/%d/smaps_rollup", m.proc.Pid())
		for _, sum := range []struct {
			to  *float64
			key string
		}{{&resident, "Rss:"}, {&private, "Private_Clean:"}, {&private, "Private_Dirty:"}} {
			kib, err := field(path, sum.key)
			if err != nil {
				return 0, 0, fmt.Errorf("%v %s: %w", f, m.name, err)
			}
			*sum.to += float64(kib) / 1024 / float64(len(f.members))
		}
	}
	return resident, private, nil
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
