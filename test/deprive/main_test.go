package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/netns"
)

// ask lets the test binary, as a command, try bpf(2): without arguments that make
// sense the kernel says EINVAL or EPERM, and ENOSYS where it has none.
const ask = "DEPRIVE_TEST_BPF"

func TestMain(m *testing.M) {
	if os.Getenv(ask) != "" {
		for _, command := range []uintptr{unix.BPF_MAP_CREATE, unix.BPF_LINK_CREATE} {
			var none [8]byte
			_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
			fmt.Print(unix.ErrnoName(errno), " ")
		}
		return
	}
	os.Exit(m.Run())
}

func TestDeprives(t *testing.T) {
	netns.Require(t)
	cgroup := netns.Cgroup(t)
	inner := filepath.Join(cgroup, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	deprive := filepath.Join(t.TempDir(), "deprive")
	if out, err := exec.Command("go", "build", "-o", deprive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const capabilities, own = "grep CapEff /proc/self/status", "grep ^0:: /proc/self/cgroup"
	for _, test := range []struct {
		args    []string
		command string
		want    string
	}{
		{[]string{"-drop", "all"}, capabilities, "CapEff:\t0000000000000000\n"},
		{[]string{"-drop", "CAP_BPF,CAP_SYS_ADMIN"}, capabilities, fmt.Sprintf("CapEff:\t%016x\n", effective(t)&^(1<<unix.CAP_BPF|1<<unix.CAP_SYS_ADMIN))},
		{[]string{"-memlock", "65536"}, "ulimit -l", "64\n"},
		{[]string{"-hide", "/usr/share"}, "ls /usr/share | wc -l", "0\n"},
		{[]string{"-no-cgroup2"}, "grep -c cgroup2 /proc/self/mountinfo", "0\n"},
		{[]string{"-cgroup", inner}, own, "0::/" + under(t, inner) + "\n"},
		{[]string{"-cgroup", inner, "-cgroup-namespace"}, own + "; grep -c ' / .* - cgroup2 ' /proc/self/mountinfo", "0::/\n1\n"},
		{[]string{"-cgroup", inner, "-cgroup-namespace", "-then-cgroup", cgroup}, own, "0::/..\n"},
		{[]string{"-bpf", "ENOSYS"}, "", "ENOSYS ENOSYS "},
		{[]string{"-bpf", "LINK_CREATE=ENOSYS", "-drop", "all"}, "", "EINVAL ENOSYS "},
		{[]string{"-bpf", "MAP_CREATE=E2BIG", "-bpf", "LINK_CREATE=EACCES"}, "", "E2BIG EACCES "},
	} {
		cmd := exec.Command(deprive, append(append(test.args, "--"), "sh", "-c", test.command)...)
		if test.command == "" {
			cmd = exec.Command(deprive, append(append(test.args, "--"), os.Args[0])...)
			cmd.Env = append(os.Environ(), ask+"=1")
		}
		out, err := cmd.CombinedOutput()
		if string(out) != test.want {
			t.Errorf("%v: %s: %q, %v, want %q", test.args, test.command, out, err, test.want)
		}
	}
	for _, args := range [][]string{{}, {"-drop", "CAP_NONSENSE", "--", "true"}, {"-bpf", "LINK=EPERM", "--", "true"}, {"-bpf", "EWHAT", "--", "true"}, {"--", "no-such-command"}} {
		if out, err := exec.Command(deprive, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "deprive: ") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

// under is the name of a cgroup's directory below the hierarchy's root.
func under(t *testing.T, dir string) string {
	t.Helper()
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "cgroup.events")); err != nil { // all but the root have it
			name, err := filepath.Rel(at, dir)
			if err != nil {
				t.Fatal(err)
			}
			return name
		}
	}
}

// effective are the capabilities of this process.
func effective(t *testing.T) (set uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nCapEff:\t")
	if _, err := fmt.Sscanf(rest, "%x", &set); err != nil {
		t.Fatal(err)
	}
	return set
}
