package hostcheck

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func gatherKernel() Kernel {
	k := Kernel{UnprivilegedBPF: sysctl("kernel/unprivileged_bpf_disabled")}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		k.Release = unix.ByteSliceToString(u.Release[:])
	}
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	k.BTF = err == nil
	k.Cgroup2, k.BPFFS = mounts("cgroup2"), mounts("bpf")
	for line := range lines("/proc/self/cgroup") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			k.Cgroup = path
		}
	}
	for line := range lines("/proc/self/status") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			k.Capabilities, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return k
}

// lines yields the lines of a file of the kernel's, none if it cannot be read.
func lines(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		for scanner := bufio.NewScanner(file); scanner.Scan(); {
			if !yield(scanner.Text()) {
				return
			}
		}
	}
}

// mounts lists where file systems of a type are, each place once.
func mounts(kind string) []string {
	var at []string
	for line := range lines("/proc/self/mountinfo") {
		head, tail, _ := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if len(fields) < 5 || !strings.HasPrefix(tail, kind+" ") {
			continue
		}
		if path := unescape(fields[4]); !slices.Contains(at, path) {
			at = append(at, path)
		}
	}
	return at
}

// unescape undoes how mountinfo writes blanks and backslashes.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// sysctl reads a number below /proc/sys.
func sysctl(name string) Known[int] {
	text, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if errors.Is(err, fs.ErrNotExist) {
		return Known[int]{Why: "this kernel has no " + strings.ReplaceAll(name, "/", ".")}
	}
	if err != nil {
		return knownOr(0, err)
	}
	return knownOr(strconv.Atoi(strings.TrimSpace(string(text))))
}

// fileLimit is the hard limit: the Go runtime raises the soft one to it, in an
// agent as well.
func fileLimit() Known[uint64] {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit)
	return knownOr(limit.Max, err)
}

// kernelClock asks the kernel, which an NTP client tells how exact it is.
func kernelClock() Known[Clock] {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	const timeError = 5 // TIME_ERROR
	return knownOr(Clock{
		Synchronised: state != timeError && t.Status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(t.Maxerror) * time.Microsecond,
	}, err)
}

// pinned lists what data planes of ours keep in BPF file systems.
func pinned(bpffs []string) Known[[]string] {
	var all []string
	for _, at := range bpffs {
		dir := filepath.Join(at, "fairlead")
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return knownOr(all, err)
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return Known[[]string]{Value: all}
}
