package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// isolatedVariable tells the copy of a test binary that it is the copy: its value
// is the directory of the cgroup that it is in.
const isolatedVariable = "NETNS_ISOLATED_CGROUP"

// cgroupPrefix begins the name of every cgroup of this package:
// fairlead-test.<pid>.<start>, as with namespaces.
const cgroupPrefix = "fairlead-test."

// Main is for TestMain of packages whose tests alter the kernel: as root it runs all tests in a copy of the test binary that has
// a network namespace with nothing but loopback, a mount namespace with a BPF file system of its own at /sys/fs/bpf, and a child
// cgroup. Nothing that the tests dial can leave, nothing that they attach or pin is seen by others, and all of it is gone with
// the process, also when that is killed; the empty cgroup is removed by the next run. Where the machine cannot do this, and for
// ordinary users, the tests run as they are, and those that need it skip ([Isolated]).
func Main(m *testing.M) int {
	if os.Getenv(isolatedVariable) != "" {
		if err := settle(); err != nil {
			fmt.Println("FAIL:", err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	code, err := runIsolated()
	if excused(err) || errors.Is(err, errNoCgroups) {
		return m.Run()
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		return 1
	}
	return code
}

// Isolated returns the directory of the cgroup that the test binary has for itself. It skips the test where [Main] could not
// isolate it, and says why.
func Isolated(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(isolatedVariable)
	if dir == "" {
		Require(t)
		t.Skipf("netns: skipped: %v", errNoCgroups)
	}
	return dir
}

var errNoCgroups = errors.New("netns: this machine has no cgroup v2 hierarchy in which cgroups can be made")

// runIsolated runs the copy to its end and returns its exit code.
func runIsolated() (int, error) {
	root, err := cgroupRoot()
	if err != nil {
		return 0, err
	}
	sweepCgroups(root)
	start, err := startTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(root, fmt.Sprintf("%s%d.%d", cgroupPrefix, os.Getpid(), start))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, fmt.Errorf("%w: %w", errNoCgroups, err)
	}
	defer removeCgroup(dir)
	cgroup, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer cgroup.Close()
	// The copy is killed with the thread that started it, so that has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), isolatedVariable+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()),
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	if err != nil {
		return 0, fmt.Errorf("netns: isolate the tests: %w", err)
	}
	return 0, nil
}

// settle prepares the namespaces from inside.
func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("netns: make mounts private: %w", err)
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("netns: mount a BPF file system: %w", err)
	}
	for _, s := range nodeSettings() {
		err := os.WriteFile(filepath.Join("/proc/sys/net", s.path), []byte(s.value), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("netns: set %s: %w", s.path, err)
		}
	}
	ip, err := tool("ip")
	if err != nil {
		return err
	}
	if out, err := exec.Command(ip, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("netns: raise loopback: %w: %s", err, out)
	}
	return nil
}

// cgroupRoot is where the cgroup v2 hierarchy is mounted.
func cgroupRoot() (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("netns: %w", err)
	}
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errNoCgroups
}

// sweepCgroups removes the cgroups of test binaries that were killed.
func sweepCgroups(root string) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), cgroupPrefix)
		pid, start, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(pid)
		if !ours || err != nil {
			continue
		}
		if lives, err := startTime(n); err == nil && strconv.FormatUint(lives, 10) == start {
			continue
		}
		removeCgroup(filepath.Join(root, e.Name()))
	}
}

// removeCgroup removes a cgroup with its children, and kills who is still inside.
func removeCgroup(dir string) {
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644) // since 5.14; before, what is left stays busy
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	for range 100 { // the killed leave in a while
		if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		_, _ = unix.Poll(nil, 10)
	}
}

// Cgroup makes a cgroup that the test has for itself and returns its directory: below that of the test binary if [Main] isolated
// it, else below the root of the hierarchy. It is removed in the end, with whoever is inside. It skips the test where there is no
// cgroup v2 hierarchy, or none that may be altered.
func Cgroup(t testing.TB) string {
	t.Helper()
	Require(t)
	above := os.Getenv(isolatedVariable)
	if above == "" {
		root, err := cgroupRoot()
		if errors.Is(err, errNoCgroups) {
			t.Skipf("netns: skipped: %v", err)
		}
		start, again := startTime(os.Getpid())
		if err := errors.Join(err, again); err != nil {
			t.Fatal(err)
		}
		sweepCgroups(root)
		above = filepath.Join(root, fmt.Sprintf("%s%d.%d", cgroupPrefix, os.Getpid(), start))
		t.Cleanup(func() { _ = os.Remove(above) }) // the last one can
	}
	for {
		if err := os.MkdirAll(above, 0o755); err != nil {
			t.Skipf("netns: skipped: %v: %v", errNoCgroups, err)
		}
		dir, err := os.MkdirTemp(above, "test.")
		if errors.Is(err, os.ErrNotExist) {
			continue // the end of another test removed what was empty
		}
		if err != nil {
			t.Fatalf("netns: %v", err)
		}
		t.Cleanup(func() { removeCgroup(dir) })
		return dir
	}
}
