package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fairlead is the path of the binary under test, plugins the directory with
// those that it is to host: fake, the reference provider, and flawed, see
// testdata. They are set once, before any test runs.
var fairlead, plugins string

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
	} {
		if err := build(filepath.Join(plugins, name), pkg); err != nil {
			return 1, err
		}
	}
	if fairlead = os.Getenv("FAIRLEAD_BIN"); fairlead != "" {
		fairlead, err = filepath.Abs(fairlead)
	} else {
		fairlead = filepath.Join(plugins, "fairlead")
		err = build(fairlead, "../../cmd/fairlead")
	}
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func build(path, pkg string) error {
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
