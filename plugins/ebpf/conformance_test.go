package ebpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// build compiles the provider as a process. The path leaves room for a socket's
// name.
func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "eb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "fairlead-dataplane-ebpf")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/fairlead/fairlead/cmd/fairlead-dataplane-ebpf").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestConformance asks the provider, as a process, all that a host may rely on.
func TestConformance(t *testing.T) {
	cgroup := netns.Isolated(t)
	path := build(t)
	conformance.TestWith(t, conformance.Target{Exec: path, Child: true}, conformance.Options{
		Config: fmt.Appendf(nil, `{"cgroup": %q}`, cgroup), Services: scale.N(10_000), Reconciles: scale.N(1_000),
	})
	left, err := os.ReadDir("/sys/fs/bpf/fairlead")
	if err == nil && len(left) > 0 {
		t.Errorf("the suite left %v in the BPF file system", left)
	}
}
