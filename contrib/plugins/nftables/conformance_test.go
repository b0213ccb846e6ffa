package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/dataplane/conformance"
)

func TestMain(m *testing.M) { os.Exit(netspace.Main(m)) }

// build compiles the provider as a process. The path leaves room for a socket's
// name.
func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nft-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "fairlead-dataplane-nftables")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestConformance asks the provider, as a process, all that a host may rely on.
func TestConformance(t *testing.T) {
	netspace.Require(t)
	conformance.TestWith(t, conformance.Target{Exec: build(t), Child: true}, conformance.Options{Services: netspace.N(10_000), Reconciles: netspace.N(1_000)})
	if left := ruleset(t); left != "" {
		t.Errorf("the suite left tables: %s", left)
	}
}
