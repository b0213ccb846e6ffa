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
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/short"
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

// planesDir builds data planes and returns the directory with them.
func planesDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		file := filepath.Join(dir, handshake.FilePrefix+name)
		build := exec.Command("go", "build", "-o", file, "github.com/fairlead/fairlead/cmd/"+handshake.FilePrefix+name)
		if name == "nftables" { // a module of its own
			build = exec.Command("go", "build", "-C", "../../../../contrib/plugins/nftables", "-o", file, ".")
		}
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
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
	t.Cleanup(func() {
		endAll(t, ready)
		if t.Failed() {
			t.Logf("dev said: %s", errs.String())
		}
	})
	return dev, ready
}

// answerAt asks a VIP until each of these instances has answered; it is never without
// an answer. Where the host stood still, checks of all instances may have run out of
// time, and then it is asked again.
func answerAt(t *testing.T, ask func() (string, error), instances ...string) {
	t.Helper()
	await.Steadily(t, func() error {
		missing := map[string]bool{}
		for _, id := range instances {
			missing[id] = true
		}
		for limit := time.Now().Add(waitTimeout); len(missing) > 0; {
			late := time.Now().After(limit)
			out, err := ask()
			if err != nil {
				return fmt.Errorf("a VIP did not answer: %w: %s", err, out)
			}
			id, _, _ := strings.Cut(out, " ")
			if delete(missing, id); late && len(missing) > 0 {
				return fmt.Errorf("no answers of %v", missing)
			}
		}
		return nil
	})
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
	c := newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + planesDir(t, ebpfName) + ":" + builtDir(t))
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
		var all []string
		for _, i := range ready.Instances {
			if i.Service == service {
				all = append(all, i.ID)
			}
		}
		answerAt(t, func() (string, error) { return inside(getVariable+"=http://"+vip+"/", exe) }, all...)
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

// On each data plane in the kernel, named or chosen by auto, a VIP of dev answers from
// all instances, and a demo of a node that is killed shows how it is left out; nothing
// of both is left.
func TestEachPlane(t *testing.T) {
	netns.Require(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := planesDir(t, ebpfName, "iptables", "nftables")
	for wish, want := range map[string]string{"ebpf": ebpfName, "iptables": "iptables", "nftables": "nftables", "auto": ebpfName} {
		t.Run(wish, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t)
			c.setenv("FAIRLEAD_PLUGIN_DIRS=" + all + ":" + builtDir(t))
			c.setenv(dataplaneVariable + "=" + wish + ",l7")
			dir := short.Dir(t)
			c.setenv("TMPDIR=" + dir)
			dev, ready := kernelDev(t, c)
			if ready.Plane != want {
				t.Errorf("the plane is %q", ready.Plane)
			}
			answerAt(t, func() (string, error) {
				inside := exec.Command(exe, "dev", "exec", exe)
				inside.Env = append(c.Environ, getVariable+"=http://"+ready.VIPs["web"]+"/")
				out, err := inside.CombinedOutput()
				return string(out), err
			}, "web-1", "web-2", "web-3")
			if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := dev.Wait(); err != nil {
				t.Errorf("dev ended with %v", err)
			}
			awaitEnd(t, ready.pids())

			if wish == "auto" {
				return // what it chose has a demo of its own
			}
			// A rate that is reached also on a host that is busy with the other planes.
			await.Steadily(t, func() error {
				demo := exec.Command(filepath.Join(builtDir(t), "fairlead"), "demo", "--duration", "5s", "--rate", "40", "-o", "json")
				var errs strings.Builder
				demo.Env, demo.Stderr = c.Environ, &errs
				out, err := demo.Output()
				if err != nil {
					return fmt.Errorf("%w: %s\n%s", err, errs.String(), out[max(0, len(out)-2000):])
				}
				var d demoJSON
				if err := json.Unmarshal(out, &d); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				awaitEnd(t, d.Cluster.pids())
				v := d.VIP
				if d.Errors != 0 || v == nil || v.Plane != want || v.Connects < 190 || v.Errors == v.Connects {
					return fmt.Errorf("%d errors, the VIP: %+v", d.Errors, v)
				}
				for _, id := range []string{"web-1", "web-2", "web-3"} {
					if v.Answers[id] == 0 {
						return fmt.Errorf("%s answered nobody at the VIP: %v", id, v.Answers)
					}
				}
				return nil
			})
			if err := netns.RootIsFree(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("%v left in the temporary directory, %v", left, err)
			}
		})
	}
}

// What clients of a VIP noticed is wrong only if the data plane led them to the failed
// node for too long, or it was not the failure.
func TestWrongAtVIP(t *testing.T) {
	at := func(s float64) *float64 { return &s }
	for _, test := range []struct {
		v    *demoVIP
		want string
	}{
		{nil, ""},
		{&demoVIP{Connects: 10}, ""},
		{&demoVIP{Errors: 3, FirstError: at(0.1), LastError: at(2.9), AfterGone: at(0.9)}, ""},
		{&demoVIP{Errors: 3, FirstError: at(0.1), LastError: at(0.9), AfterGone: at(-1)}, ""},
		{&demoVIP{Errors: 3, FirstError: at(0.1), LastError: at(3.1), AfterGone: at(1.1)}, "begun 3.100 s after the failure"},
		{&demoVIP{Errors: 3, FirstError: at(0.1), LastError: at(3.1)}, "begun 3.100 s after the failure"},
		{&demoVIP{Errors: 3, FirstError: at(-0.1), LastError: at(0.1), AfterGone: at(-1)}, ""},
		{&demoVIP{Errors: 3, FirstError: at(-1.1), LastError: at(0.1), AfterGone: at(-1)}, "before the node did"},
	} {
		if got := test.v.wrong(); got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
			t.Errorf("%+v: %q, want %q", test.v, got, test.want)
		}
	}
}
