package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/dataplane/conformance"
)

func TestMain(m *testing.M) {
	code := netspace.Main(m)
	if directory != "" {
		os.RemoveAll(directory)
	}
	os.Exit(code)
}

// directory is where executable was compiled; empty: it was not.
var directory string

// executable is the provider compiled as a process, once. The path leaves room for a
// socket's name.
var executable = sync.OnceValues(func() (string, error) {
	var err error
	if directory, err = os.MkdirTemp("", "nft-"); err != nil {
		return "", err
	}
	path := filepath.Join(directory, "fairlead-dataplane-nftables")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return path, fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func build(t *testing.T) string {
	t.Helper()
	path, err := executable()
	if err != nil {
		t.Fatal(err)
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
