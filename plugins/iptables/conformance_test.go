package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// build compiles the provider as a process. The path leaves room for a socket's
// name.
func build(t *testing.T) string {
	t.Helper()
	return buildCommand(t, "fairlead-dataplane-iptables")
}

func buildCommand(t *testing.T, command string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "it-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, command)
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/"+command).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestConformance asks the provider, as a process, all that a host may rely on, with
// each variant.
func TestConformance(t *testing.T) {
	path := build(t)
	eachVariant(t, func(t *testing.T, v host.Variant) {
		netns.Isolated(t)
		services := 1_000 // a snapshot of 10,000 takes some seconds through nf_tables
		if v == host.Legacy {
			services = 10_000
		}
		conformance.TestWith(t, conformance.Target{Exec: path, Child: true}, conformance.Options{
			Config: fmt.Appendf(nil, `{"variant": %q}`, v), Services: scale.N(services), Reconciles: scale.N(1_000),
		})
		for _, text := range saved(t, v) {
			if ours(text) {
				t.Errorf("the suite left rules:\n%s", text)
			}
		}
	})
}
