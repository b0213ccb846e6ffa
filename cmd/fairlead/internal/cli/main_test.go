package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/short"
	"github.com/fairlead/fairlead/test/transcript"
)

// beFairlead makes the test binary the program itself: dev and demo start
// their own executable. Under the name of a plugin it is one.
const beFairlead = "TEST_BE_FAIRLEAD=1"

func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), handshake.FilePrefix); ok {
		os.Exit(fakePlugin(name))
	}
	if url := os.Getenv(getVariable); url != "" && len(os.Args) == 1 {
		os.Exit(printURL(url))
	}
	if os.Getenv("TEST_BE_FAIRLEAD") != "" {
		os.Exit(Run(os.Args[1:], SystemEnv("test")))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.own)
		if err := netns.RootIsFree(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// waitTimeout is for conditions that hold within a second on an idle host.
const waitTimeout = 30 * time.Second

// now is the clock of tests that print times.
func now() time.Time {
	return time.Date(2026, 5, 1, 14, 0, 0, 0, time.FixedZone("CEST", 2*60*60))
}

// command is one run of the command line.
type command struct {
	Env
	out, err transcript.Buffer
	signals  chan os.Signal
	code     chan int
}

// newCommand returns a command in an environment without any agent to find.
func newCommand(t *testing.T) *command {
	t.Helper()
	c := &command{signals: make(chan os.Signal, 4), code: make(chan int, 1)}
	c.Env = Env{
		Stdin:      strings.NewReader(""),
		Stdout:     &c.out,
		Stderr:     &c.err,
		Environ:    []string{beFairlead, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + short.Dir(t)},
		Signals:    func() (<-chan os.Signal, func()) { return c.signals, func() {} },
		Executable: os.Executable,
		Now:        now,
		Version:    "v0.1.0",
	}
	return c
}

func (c *command) setenv(entry string) { c.Environ = append(c.Environ, entry) }

// run runs to the end.
func (c *command) run(args ...string) int { return Run(args, c.Env) }

// start runs in the background.
func (c *command) start(args ...string) { go func() { c.code <- Run(args, c.Env) }() }

// wait returns the exit code of a started command.
func (c *command) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-c.code:
		return code
	case <-time.After(waitTimeout):
		t.Fatalf("the command did not end\nstdout:\n%s\nstderr:\n%s", c.out.String(), c.err.String())
		return -1
	}
}

// waitOutput waits until stdout or stderr contains text.
func (c *command) waitOutput(t *testing.T, text string) {
	t.Helper()
	await.Until(t, func() string {
		if strings.Contains(c.out.String()+c.err.String(), text) {
			return ""
		}
		return "output with " + text + "\nstdout:\n" + c.out.String() + "\nstderr:\n" + c.err.String()
	})
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
