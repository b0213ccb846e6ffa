package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/transcript"
)

// getVariable makes the test binary ask a URL once.
const getVariable = "TEST_GET"

// printURL prints the answer of a URL and returns an exit code.
func printURL(url string) int {
	answer, err := http.Get(url)
	if err == nil {
		defer answer.Body.Close()
		_, err = io.Copy(os.Stdout, answer.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// kernelDev starts dev with the data plane in the kernel, as a process that can be
// killed, and returns when it is ready.
func kernelDev(t *testing.T, c *command) (*exec.Cmd, localJSON) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs transcript.Buffer
	dev := exec.Command(exe, "dev", "-o", "json")
	dev.Env, dev.Stdout, dev.Stderr = c.Environ, &out, &errs
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that failed half-way; the others end with it
		_ = dev.Process.Kill()
		_ = dev.Wait()
	})
	var ready localJSON
	await.Until(t, func() string {
		if line, _, whole := strings.Cut(out.String(), "\n"); whole {
			if err := json.Unmarshal([]byte(line), &ready); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			return ""
		}
		return "the first line:\n" + out.String() + errs.String()
	})
	t.Cleanup(func() { endAll(t, ready) })
	return dev, ready
}

// With the plane in the kernel, dev has a network and a cgroup for itself: a VIP
// answers from all instances in there, nothing is attached elsewhere, and all is
// gone in the end, also after kill -9.
func TestDevInKernel(t *testing.T) {
	netns.Require(t)
	root, err := cgroup2Root()
	if err != nil {
		t.Skip(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), handshake.FilePrefix+ebpfName)
	if out, err := exec.Command("go", "build", "-o", plugin, "github.com/fairlead/fairlead/cmd/fairlead-dataplane-ebpf").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + filepath.Dir(plugin) + ":" + builtDir(t))
	c.setenv(dataplaneVariable + "=ebpf,l7")
	inside := func(env string, args ...string) (string, error) {
		cmd := exec.Command(exe, append([]string{"dev", "exec"}, args...)...)
		cmd.Env = append(c.Environ, env)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := inside("", "true"); err == nil || !strings.Contains(out, "no `fairlead dev` of this user runs") {
		t.Errorf("exec without dev: %v: %s", err, out)
	}

	dev, ready := kernelDev(t, c)
	if filepath.Dir(ready.Cgroup) != root || ready.VIPs["web"] != "10.200.0.10" {
		t.Errorf("the cgroup is %q, the VIPs are %v", ready.Cgroup, ready.VIPs)
	}
	for service, vip := range ready.VIPs {
		missing := map[string]bool{}
		for _, i := range ready.Instances {
			if i.Service == service {
				missing[i.ID] = true
			}
		}
		await.Until(t, func() string {
			out, err := inside(getVariable+"=http://"+vip+"/", exe)
			if err != nil {
				t.Fatalf("a VIP did not answer: %v: %s", err, out)
			}
			id, _, _ := strings.Cut(out, " ")
			if delete(missing, id); len(missing) > 0 {
				return fmt.Sprintf("answers of %v", missing)
			}
			return ""
		})
	}
	var exit *exec.ExitError
	if _, err := inside("", "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the exit code of a command: %v", err)
	}
	if err := netns.RootIsFree(); err != nil {
		t.Error(err)
	}

	if err := dev.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dev.Wait() // it was killed: an error is what we expect
	next, after := kernelDev(t, c)
	awaitEnd(t, ready.pids())
	if _, err := os.Stat(ready.Cgroup); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s of the killed dev stayed: %v", ready.Cgroup, err)
	}
	if err := next.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := next.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	awaitEnd(t, after.pids())
	for _, left := range []string{after.Cgroup, devDir(c.Env)} {
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stayed: %v", left, err)
		}
	}
}

// Who cannot alter the kernel is told so, and a dev without VIPs has nothing to
// enter.
func TestDevWithoutKernel(t *testing.T) {
	dev := newLocal(t)
	dev.start("dev")
	dev.waitOutput(t, "Ctrl-C stops all")
	c := shown(t, dev.out.String())
	t.Cleanup(func() { endAll(t, c) })
	inside := newCommand(t)
	inside.Environ = dev.Environ
	if code := inside.run("dev", "exec", "true"); code != ExitFailed || !strings.Contains(inside.err.String(), "no network namespace for itself") {
		t.Errorf("exec: %d: %s", code, inside.err.String())
	}
	dev.signals <- syscall.SIGTERM
	if code := dev.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, dev.err.String())
	}
	if code := inside.run("dev", "exec"); code != ExitUsage {
		t.Errorf("exec of nothing: %d", code)
	}
}
