package ebpf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
)

// probing lets the test binary, as a command, print what Probe reports, or what
// Configure notes of the configuration that is its value.
const probing = "EBPF_TEST_PROBE"

func printReport() int {
	var out any
	var err error
	if config := os.Getenv(probing); config == "probe" {
		out, err = New("test").Probe(context.Background())
	} else {
		out, err = New("test").Configure(context.Background(), dataplane.Config{JSON: []byte(config), InstanceID: "test"})
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// deprived is what Probe reports in a process that is without something.
func deprived(t *testing.T, deprive string, args ...string) (r dataplane.Report) {
	t.Helper()
	tell(t, deprive, "probe", &r, args...)
	return r
}

func tell(t *testing.T, deprive, what string, out any, args ...string) {
	t.Helper()
	cmd := exec.Command(deprive, append(append([]string{}, args...), "--", os.Args[0])...)
	cmd.Env = append(os.Environ(), probing+"="+what)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, text)
	}
}

func buildDeprive(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deprive")
	if out, err := exec.Command("go", "build", "-o", path, "../../test/deprive").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// check is one of a report; the last one if id is empty.
func check(r dataplane.Report, id string) (dataplane.Check, bool) {
	for _, c := range r.Checks {
		if c.ID == id {
			return c, true
		}
	}
	return dataplane.Check{}, false
}

// TestProbeNamesWhatIsMissing: each thing that the provider needs, taken away, is
// named by one check with the reason and what to do.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	cgroup := netns.Isolated(t)
	deprive := buildDeprive(t)
	inner := filepath.Join(cgroup, "container")
	beside := filepath.Join(cgroup, "beside")
	for _, dir := range []string{inner, beside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
	}
	const supported, degraded, unsupported = dataplane.Supported, dataplane.Degraded, dataplane.Unsupported
	for _, test := range []struct {
		name           string
		without        []string
		verdict        dataplane.Verdict
		check          string // that says so
		reason, remedy string // parts
	}{
		{"nothing", nil, supported, "", "", ""},
		{"rights", []string{"-drop", "all"}, unsupported, "bpf-syscall", "operation not permitted", "root, or give it CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON"},
		{"the right to make programs", []string{"-drop", "CAP_BPF,CAP_SYS_ADMIN"}, unsupported, "bpf-syscall", "operation not permitted", "give it CAP_BPF"},
		{"the right to attach", []string{"-drop", "CAP_NET_ADMIN,CAP_SYS_ADMIN"}, unsupported, "hook-getpeername4", "operation not permitted", "give it CAP_NET_ADMIN"},
		{"the right to trace", []string{"-drop", "CAP_PERFMON,CAP_SYS_ADMIN"}, unsupported, "programs", "load program", "give it CAP_PERFMON"}, // of whichever is loaded first
		{"the right to mount", []string{"-drop", "CAP_SYS_ADMIN"}, supported, "", "", ""},
		{"bpf(2)", []string{"-bpf", "ENOSYS"}, unsupported, "bpf-syscall", "function not implemented", "CONFIG_BPF_SYSCALL"},
		{"permission of a container", []string{"-bpf", "EPERM"}, unsupported, "bpf-syscall", "operation not permitted", "seccomp"},
		{"links", []string{"-bpf", "LINK_CREATE=EINVAL"}, unsupported, "cgroup-links", "not supported", "5.7"},
		{"programs", []string{"-bpf", "PROG_LOAD=EINVAL"}, unsupported, "hook-getpeername4", "invalid argument", "5.8"},
		{"iterators", []string{"-bpf", "ITER_CREATE=EINVAL"}, supported, "", "", ""}, // sock_diag does
		{"cgroup v2", []string{"-no-cgroup2"}, unsupported, "cgroup2-root", "not mounted", "mount -t cgroup2"},
		{"the host's cgroups", []string{"-cgroup", inner, "-cgroup-namespace"}, degraded, "cgroup2-whole", "as in a container", "--cgroupns=host"},
		{"a cgroup of its own", []string{"-cgroup", inner, "-cgroup-namespace", "-then-cgroup", inner}, supported, "", "", ""},
		{"its place in the tree", []string{"-cgroup", inner, "-cgroup-namespace", "-then-cgroup", beside}, unsupported, "cgroup2-root", "outside of the cgroups", "WSL2"},
		{"memory to lock", []string{"-memlock", "65536", "-drop", "CAP_SYS_RESOURCE"}, supported, "", "", ""},
		{"memory to lock, on an old kernel", []string{"-memlock", "65536", "-drop", "CAP_SYS_RESOURCE", "-bpf", "MAP_CREATE=EPERM"}, unsupported, "bpf-syscall", "ulimit -l", "LimitMEMLOCK=infinity"},
		{"a BPF file system", []string{"-hide", "/sys/fs/bpf"}, supported, "", "", ""}, // one can be mounted
		{"a BPF file system, nor the right to mount one", []string{"-hide", "/sys/fs/bpf", "-drop", "CAP_SYS_ADMIN"}, unsupported, "bpffs", "none can be made", "CAP_SYS_ADMIN"},
		{"types", []string{"-hide", "/sys/kernel/btf"}, degraded, "btf", "no such file", "CONFIG_DEBUG_INFO_BTF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := attached(t)
			r := deprived(t, deprive, test.without...)
			if r.Verdict != test.verdict {
				t.Errorf("verdict %v, want %v", r.Verdict, test.verdict)
			}
			for _, c := range r.Checks {
				if c.Result != dataplane.Supported {
					t.Logf("%s: %v: %s; %s", c.ID, c.Result, c.Reason, c.Remedy)
				}
				if (c.Result != dataplane.Supported) != (c.ID == test.check) {
					t.Errorf("%s is %v", c.ID, c.Result)
				}
				if strings.Contains(c.Reason, "\n") || (c.Remedy == "") != (c.Result == dataplane.Supported) {
					t.Errorf("%s: reason %q, remedy %q", c.ID, c.Reason, c.Remedy)
				}
			}
			if c, ok := check(r, test.check); ok && (!strings.Contains(c.Reason, test.reason) || !strings.Contains(c.Remedy, test.remedy)) {
				t.Errorf("it says %q and %q, want %q and %q", c.Reason, c.Remedy, test.reason, test.remedy)
			} else if !ok && test.check != "" {
				t.Errorf("there is no check %s", test.check)
			}
			if after := attached(t); after != before {
				t.Errorf("%d programs are attached after it, %d before", after, before)
			}
			if left, err := filepath.Glob("/sys/fs/bpf/fairlead*"); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// TestConfigureNotesWhereItIs: a provider that was named runs also where Probe would
// not say SUPPORTED; then it says what that means.
func TestConfigureNotesWhereItIs(t *testing.T) {
	cgroup := netns.Isolated(t)
	deprive := buildDeprive(t)
	inner, beside := below(t, "container"), below(t, "beside")
	for _, test := range []struct {
		name, config string
		args         []string
		want         []string // parts, one of each note
	}{
		{"as it should be", fmt.Sprintf(`{"cgroup": %q}`, cgroup), nil, nil},
		{"outside of the tree", fmt.Sprintf(`{"cgroup": %q}`, beside), []string{"-cgroup", inner}, []string{"this process is not in " + beside}},
		{"inside of the tree, seen from a cgroup namespace", fmt.Sprintf(`{"cgroup": %q}`, cgroup), []string{"-cgroup", inner, "-cgroup-namespace", "-then-cgroup", inner}, nil},
		{"outside, seen from a cgroup namespace", fmt.Sprintf(`{"cgroup": %q}`, beside), []string{"-cgroup", inner, "-cgroup-namespace", "-then-cgroup", inner}, []string{"this process is not in " + beside}},
		{"in a container", `{}`, []string{"-cgroup", inner, "-cgroup-namespace"}, []string{"as in a container"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var notes []dataplane.Diagnostic
			tell(t, deprive, test.config, &notes, test.args...)
			if len(notes) != len(test.want) {
				t.Errorf("%+v, want %d", notes, len(test.want))
			}
			for i, want := range test.want {
				if i < len(notes) && (notes[i].Path != "cgroup" || !strings.Contains(notes[i].Message, want)) {
					t.Errorf("%+v, want %q", notes[i], want)
				}
			}
		})
	}
}
