package bpf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// compiler is the one that made the committed objects: Debian 12's. Another one
// makes other objects of the same sources.
const compiler = "Debian clang version 14.0.6"

// TestObjectsAreOfTheSources compiles again and compares.
func TestObjectsAreOfTheSources(t *testing.T) {
	version, err := exec.Command("clang", "--version").Output()
	if err != nil {
		t.Skipf("skipped: no clang here: %v: install Debian's clang, llvm and libbpf-dev (scripts/setup.sh generate)", err)
	}
	if !strings.HasPrefix(string(version), compiler) {
		t.Skipf("skipped: this is %.40q, the objects were made by %s", version, compiler)
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		t.Skipf("skipped: %v: install libbpf-dev (scripts/setup.sh generate)", err)
	}
	sources := map[string]string{"Socket": "socket", "Destroy": "destroy", "Probe": "probe"}
	out := t.TempDir()
	for name, source := range sources {
		cmd := exec.Command("go", append(strings.Fields("tool -modfile=../tools/go.mod bpf2go -output-dir"), out, "-tags", "linux", "-go-package", "bpf",
			"-cc", "clang", "-strip", "llvm-strip", "-cflags", flags(t), "-no-global-types", name, source+".c")...)
		cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, b)
		}
		for _, suffix := range []string{"_bpfel.o", "_bpfeb.o", "_bpfel.go", "_bpfeb.go"} {
			fresh, err := os.ReadFile(filepath.Join(out, source+suffix))
			if err != nil {
				t.Fatal(err)
			}
			if committed, err := os.ReadFile(source + suffix); err != nil || !bytes.Equal(fresh, committed) {
				t.Errorf("%s%s is not what clang makes of %s.c now (%v): run make generate, and commit", source, suffix, source, err)
			}
		}
	}
}

// flags are those of the go:generate lines.
func flags(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), `-cflags "`)
	found, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatal("doc.go has no go:generate line with -cflags")
	}
	return found
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
