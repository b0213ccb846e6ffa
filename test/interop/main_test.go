package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// program is the fairlead that is tested, work where agents that several tests
// share have their state. They are set once, before any test runs.
var program, work string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if work, err = os.MkdirTemp("", "fl-interop-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	if program = os.Getenv("FAIRLEAD_BIN"); program == "" {
		program = filepath.Join(work, "fairlead")
		if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/fairlead").CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	code = m.Run()
	for _, c := range shared.started {
		if code != 0 {
			c.tell(func(text string) { fmt.Fprintln(os.Stderr, text) })
		}
		c.stop()
	}
	return code, nil
}

// shared are stores that tests use together, each its own keys: starting one
// costs more than most tests.
var shared struct {
	mu      sync.Mutex
	started map[string]*cluster
}

// sharing returns the shared store of a name.
func sharing(t *testing.T, name string, start func(dir string) (*cluster, error)) *cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if c := shared.started[name]; c != nil {
		return c
	}
	c, err := start(filepath.Join(work, name))
	if err != nil {
		t.Fatal(err)
	}
	if shared.started == nil {
		shared.started = map[string]*cluster{}
	}
	shared.started[name] = c
	return c
}

// everywhere runs a test on a store of one agent, on one of three, and on an agent
// that is no server and passes calls on to those three. Other tests use the same
// stores at other times.
func everywhere(t *testing.T, test func(t *testing.T, endpoints []string)) {
	t.Helper()
	t.Run("one", func(t *testing.T) { test(t, sharing(t, "one", startOne).endpoints) })
	t.Run("three", func(t *testing.T) { test(t, sharing(t, "set", startSet).endpoints[:3]) })
	t.Run("no server", func(t *testing.T) { test(t, sharing(t, "set", startSet).endpoints[3:]) })
}
