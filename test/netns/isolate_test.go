package netns

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMainIsolates runs this binary as one that isolates its tests, and looks from outside.
func TestMainIsolates(t *testing.T) {
	Require(t)
	root, err := cgroupRoot()
	if err != nil {
		t.Skip("skipped: ", err)
	}
	for _, c := range []struct {
		run  string
		want string
		code int
	}{
		{"^TestInsideIsolation$", "--- PASS: TestInsideIsolation", 0},
		{"^TestInsideIsolationFails$", "--- FAIL: TestInsideIsolationFails", 1},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", c.run, "-test.v")
		cmd.Env = append(os.Environ(), helperVariable+"=isolate")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, want code %d and %q:\n%s", c.run, cmd.ProcessState, c.code, c.want, out)
		}
		start := cgroupPrefix + strings.Split(filepath.Base(cgroupOf(string(out))), ".")[1]
		left, _ := filepath.Glob(filepath.Join(root, start+"*"))
		if len(left) > 0 {
			t.Errorf("the cgroup stays: %v", left)
		}
	}
}

// cgroupOf finds the cgroup that the tests inside name.
func cgroupOf(out string) string {
	_, after, _ := strings.Cut(out, "cgroup: ")
	path, _, _ := strings.Cut(after, "\n")
	return path
}

// TestInsideIsolation is what the isolated binary runs.
func TestInsideIsolation(t *testing.T) {
	if os.Getenv(helperVariable) != "isolate" {
		t.Skip("skipped: TestMainIsolates runs it")
	}
	dir := Isolated(t)
	t.Logf("cgroup: %s", dir)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !strings.Contains(string(own), "0::/"+filepath.Base(dir)+"\n") {
		t.Errorf("it is in %q, %v, want %s", own, err, dir)
	}
	devices, err := net.Interfaces()
	if err != nil || len(devices) == 0 || devices[0].Name != "lo" || devices[0].Flags&net.FlagUp == 0 {
		t.Errorf("devices: %+v, %v", devices, err)
	}
	if _, err := net.Dial("tcp", "10.200.0.1:80"); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("an address outside: %v, want ENETUNREACH", err)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", l.Addr().String()); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		l.Close()
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/bpf", &st); err != nil || st.Type != unix.BPF_FS_MAGIC {
		t.Errorf("/sys/fs/bpf is %x, %v", st.Type, err)
	}
	// The kernel's own are maps.debug and progs.debug.
	if entries, err := filepath.Glob("/sys/fs/bpf/*[^g]"); err != nil || len(entries) > 0 {
		t.Errorf("in it: %v, %v", entries, err)
	}
	// A child cgroup, as a test that failed might leave.
	if err := os.Mkdir(filepath.Join(dir, "child"), 0o755); err != nil {
		t.Error(err)
	}
}

// TestInsideIsolationFails as a test inside may.
func TestInsideIsolationFails(t *testing.T) {
	if os.Getenv(helperVariable) != "isolate" {
		t.Skip("skipped: TestMainIsolates runs it")
	}
	t.Errorf("cgroup: %s", Isolated(t))
}
