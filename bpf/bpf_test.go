package bpf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// compiler is the one that made the committed objects, that of distribution, as
// os-release(5) calls it. Another one makes other objects of the same sources.
const (
	compiler     = "Debian clang version 14.0.6"
	distribution = "debian 12"
)

// TestObjectsAreOfTheSources compiles again and compares. Where the compiler can be
// had from the distribution its lack is no excuse, except to ordinary users.
func TestObjectsAreOfTheSources(t *testing.T) {
	lack := t.Fatalf
	if os.Geteuid() != 0 || release(t) != distribution {
		lack = t.Skipf
	}
	version, err := exec.Command("clang", "--version").Output()
	if err != nil {
		lack("the objects cannot be compared with what clang makes: %v: as root run make setup, which installs Debian's clang", err)
	}
	if !strings.HasPrefix(string(version), compiler) {
		lack("this is %.40q, the objects were made by %s: put Debian's clang in PATH before others", version, compiler)
	}
	if _, err := exec.LookPath("llvm-strip"); err != nil {
		lack("%v: as root run make setup, which installs llvm", err)
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		lack("%v: as root run make setup, which installs libbpf-dev", err)
	}
	out, committed := t.TempDir(), objects(t, ".")
	for _, command := range generators(t, out) {
		cmd := exec.Command(command[0], command[1:]...)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, b)
		}
	}
	fresh := objects(t, out)
	for name, text := range fresh {
		if !bytes.Equal(text, committed[name]) {
			t.Errorf("%s is not what clang makes of the sources now: run make generate, and commit", name)
		}
	}
	for name := range committed {
		if fresh[name] == nil {
			t.Errorf("%s is made by no go:generate line: delete it", name)
		}
	}
}

// release is the name and version of the distribution.
func release(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[key] = strings.Trim(value, `"`)
	}
	return fields["ID"] + " " + fields["VERSION_ID"]
}

// objects reads what bpf2go made in a directory.
func objects(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_bpfe[lb]*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no objects in %s: %v", dir, err)
	}
	out := make(map[string][]byte)
	for _, name := range names {
		if out[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// generators are the commands of the go:generate lines, to make another directory's
// files. What a line of a test file makes is for tests, as go generate tells it.
func generators(t *testing.T, dir string) (commands [][]string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line, is := strings.CutPrefix(strings.TrimSpace(line), "//go:generate ")
			if !is {
				continue
			}
			before, rest, _ := strings.Cut(line, `"`) // the flags of the compiler
			flags, after, ok := strings.Cut(rest, `"`)
			if !ok {
				t.Fatalf("%s: the line has no flags in quotes: %s", file, line)
			}
			command := slices.Concat(strings.Fields(before), []string{flags}, strings.Fields(after))
			n := len(command) - 2 // the name and the source are last
			more := []string{"-output-dir", dir}
			if strings.HasSuffix(file, "_test.go") {
				more = append(more, "-output-suffix", "_test")
			}
			commands = append(commands, slices.Concat(command[:n], more, command[n:]))
		}
	}
	if len(commands) < 2 {
		t.Fatal("no go:generate lines")
	}
	return commands
}

// TestKernelTakesThePrograms lets the verifier judge all programs. Nothing is
// attached.
func TestKernelTakesThePrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: loading programs needs root")
	}
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"socket": LoadSocket, "destroy": LoadDestroy, "probe": LoadProbe} {
		t.Run(name, func(t *testing.T) {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			c, err := ebpf.NewCollection(spec)
			var judged *ebpf.VerifierError
			switch {
			case errors.As(err, &judged):
				t.Fatalf("%+v", judged)
			case errors.Is(err, ebpf.ErrNotSupported):
				t.Skipf("skipped: this kernel lacks something: %v", err)
			case err != nil:
				t.Fatal(err)
			}
			for name, p := range c.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				instructions, _ := info.Instructions()
				t.Logf("%s: %d instructions", name, len(instructions))
			}
			c.Close()
		})
	}
}
