package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/runnable"
)

// fairlead is the path of the binary under test, plugins the directory with
// those that it is to host: fake, the reference provider, and flawed, see
// testdata. installed is FAIRLEAD_BIN, with the plugins that are shipped beside
// it, or empty. They are set once, before any test runs.
var fairlead, plugins, installed string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if plugins, err = os.MkdirTemp("", "fairlead-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(plugins)
	if err := build(filepath.Join(plugins, "fake"), "../../dataplane/fake/fairlead-dataplane-fake"); err != nil {
		return 1, err
	}
	for name, pkg := range map[string]string{
		"flawed": "./testdata/flawed", "instance": "./testdata/instance", "l7": "../../cmd/fairlead-dataplane-l7",
		"dialer": "./testdata/dialer", "ebpf": "../../cmd/fairlead-dataplane-ebpf",
	} {
		if err := build(filepath.Join(plugins, name), pkg); err != nil {
			return 1, err
		}
	}
	// Alone in a directory: plugins beside the program would be found, and auto
	// would choose from them.
	fairlead = filepath.Join(plugins, "bin", "fairlead")
	if installed = os.Getenv("FAIRLEAD_BIN"); installed == "" {
		err = build(fairlead, "../../cmd/fairlead")
	} else if installed, err = filepath.Abs(installed); err == nil {
		if err = os.MkdirAll(filepath.Dir(fairlead), 0o755); err == nil {
			err = runnable.Copy(installed, fairlead)
		}
	}
	if err != nil {
		return 1, err
	}
	code := m.Run()
	return code, netns.RootIsFree()
}

func build(path, pkg string) error {
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
