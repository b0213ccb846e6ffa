package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fairlead is the path of the binary under test. It is set once, before any
// test runs.
var fairlead string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if fairlead = os.Getenv("FAIRLEAD_BIN"); fairlead != "" {
		abs, err := filepath.Abs(fairlead)
		fairlead = abs
		return m.Run(), err
	}
	dir, err := os.MkdirTemp("", "fairlead-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	fairlead = filepath.Join(dir, "fairlead")
	if out, err := exec.Command("go", "build", "-o", fairlead, "../../cmd/fairlead").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return m.Run(), nil
}
