package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agentPIDs reads from their lock files which agents dev started.
func agentPIDs(t *testing.T, dir string) []int {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(dir, "n*", "data", "lock"))
	if err != nil || len(locks) != localNodes {
		t.Fatalf("%d agents in %s, %v", len(locks), dir, err)
	}
	var pids []int
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// awaitEnd waits until none of the processes exists.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	waitFor(t, func() string {
		for _, pid := range pids {
			// A child that nobody has waited for yet still has a pid.
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return "the end of process " + strconv.Itoa(pid)
			}
		}
		return ""
	})
}

func TestDev(t *testing.T) {
	dev := newCommand(t)
	dev.Now = time.Now
	dir := devDir(dev.Env)
	// What a killed dev left is no obstacle.
	if err := os.MkdirAll(filepath.Join(dir, "n1", "data", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	dev.start("dev")
	dev.waitOutput(t, "Ctrl-C stops all")
	for _, want := range []string{"NAME", "n1 ", "n2 ", "n3 ", "alive"} {
		if !strings.Contains(dev.out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, dev.out.String())
		}
	}
	pids := agentPIDs(t, dir)

	again := newCommand(t)
	again.Environ = dev.Environ
	if code := again.run("dev"); code != 1 || !strings.Contains(again.err.String(), "already runs in "+dir) {
		t.Errorf("a second dev: %d: %s", code, again.err.String())
	}

	if err := syscall.Kill(pids[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	dev.waitOutput(t, "agent n3 (pid "+strconv.Itoa(pids[2])+") ended: signal: killed")
	dev.waitOutput(t, "died")

	dev.signals <- syscall.SIGINT
	if code := dev.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, dev.err.String())
	}
	awaitEnd(t, pids)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stayed: %v", dir, err)
	}
}

// kill -9 of dev ends its agents.
func TestDevTakesItsAgentsAlong(t *testing.T) {
	env := newCommand(t).Env
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	dev := exec.Command(exe, "dev", "-o", "json")
	dev.Env = env.Environ
	dev.Stdout, dev.Stderr = &out, &out
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that failed half-way; the agents end with it
		_ = dev.Process.Kill()
		_ = dev.Wait()
	})
	waitFor(t, func() string {
		if strings.Contains(out.String(), `"}]`) {
			return ""
		}
		return "the members:\n" + out.String()
	})
	pids := agentPIDs(t, devDir(env))
	t.Cleanup(func() {
		for _, pid := range pids {
			if t.Failed() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	if err := dev.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dev.Wait() // it was killed: an error is what we expect
	awaitEnd(t, pids)
}

func TestDevSaysWhyAnAgentDoesNotStart(t *testing.T) {
	dev := newCommand(t)
	dev.Executable = func() (string, error) { return exec.LookPath("false") }
	if code := dev.run("dev"); code != 1 || !strings.Contains(dev.err.String(), "agent n1 ended while starting (exit status 1)") {
		t.Errorf("%d: %s", code, dev.err.String())
	}
	dev.Executable = func() (string, error) { return "/nonexistent", nil }
	if code := dev.run("dev"); code != 1 || !strings.Contains(dev.err.String(), "start n1") {
		t.Errorf("%d: %s", code, dev.err.String())
	}
	dev.Executable = func() (string, error) { return "", errors.New("no idea") }
	if code := dev.run("demo"); code != 1 || !strings.Contains(dev.err.String(), "no idea") {
		t.Errorf("%d: %s", code, dev.err.String())
	}
	if err := os.MkdirAll(devDir(dev.Env), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(devDir(dev.Env), 0o777); err != nil {
		t.Fatal(err)
	}
	if code := dev.run("dev"); code != 1 || !strings.Contains(dev.err.String(), "only this user may write") {
		t.Errorf("%d: %s", code, dev.err.String())
	}
}

func TestDemo(t *testing.T) {
	demo := newCommand(t)
	t.Setenv("TMPDIR", shortDir(t))
	demo.Now = time.Now
	if code := demo.run("demo"); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, demo.err.String(), demo.out.String())
	}
	for _, want := range []string{"t+0.00s  killed n3 (kill -9 ", "n1 holds n3 for dead", "n2 holds n3 for dead", "s later all others knew that it is dead"} {
		if !strings.Contains(demo.out.String(), want) {
			t.Errorf("the time line lacks %q:\n%s", want, demo.out.String())
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("%d things left in the temporary directory, %v", len(left), err)
	}
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	demo := newCommand(t)
	t.Setenv("TMPDIR", shortDir(t))
	demo.Now = time.Now
	demo.start("demo")
	demo.signals <- syscall.SIGINT
	if code := demo.wait(t); code != 1 || demo.err.String() != "fairlead: demo: interrupted\n" {
		t.Errorf("exit code %d: %s", code, demo.err.String())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("%d things left in the temporary directory, %v", len(left), err)
	}
}

func TestDemoJSON(t *testing.T) {
	demo := newCommand(t)
	demo.Now = time.Now
	if code := demo.run("demo", "-o", "json"); code != 0 {
		t.Fatalf("exit code %d: %s", code, demo.err.String())
	}
	died := 0
	for line := range strings.Lines(demo.out.String()) {
		var step demoStep
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if step.Transition == "died" && step.Node == "n3" && step.Seconds > 0 {
			died++
		}
	}
	if died != 2 {
		t.Errorf("%d observers saw n3 dead, want 2:\n%s", died, demo.out.String())
	}
}
