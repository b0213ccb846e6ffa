package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/scale"
)

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %v to %d: %v", s, pid, err)
	}
}

// installKernel puts the reference provider there with a directory that plays
// the kernel: what it programs outlives its process.
func (a *agent) installKernel(kernel string) {
	a.t.Helper()
	path := a.install("fake", "fake")
	program := filepath.Join(a.pluginDir(), "program")
	script := fmt.Sprintf("#!/bin/sh\nFAKE_KERNEL=%s exec %s\n", kernel, program)
	if err := os.Rename(path, program); err != nil {
		a.t.Fatal(err)
	}
	if err := runnable.Write(path, []byte(script)); err != nil {
		a.t.Fatal(err)
	}
	if err := os.MkdirAll(kernel, 0o700); err != nil {
		a.t.Fatal(err)
	}
}

// TestPluginKilled: after kill -9 the plugin is back within 1.5 s with what it
// had: at the same generation if the kernel kept it, else with the same
// content.
func TestPluginKilled(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		t.Run(map[bool]string{true: "kernel keeps", false: "nothing is kept"}[keeps], func(t *testing.T) {
			t.Parallel()
			a := newHost(t, "fake")
			if keeps {
				a.installKernel(a.dir + ".kernel")
			} else {
				a.install("fake", "fake")
			}
			a.start()
			life := a.ready("fake", 1)
			was := a.served(a.socketOf(life))
			for nth := 2; nth <= 4; nth++ { // the fifth loss would be a crash loop
				begun := time.Now()
				kill(t, life.PID, syscall.SIGKILL)
				life = a.ready("fake", nth)
				is := a.served(a.socketOf(life))
				if took := time.Since(begun); took > scale.Bound(1500*time.Millisecond, 15*time.Second) {
					t.Errorf("it took %v, 1.5 s at most", took)
				}
				if keeps && is.Generation != was.Generation || is.Session != was.Session || !bytes.Equal(is.Digest, was.Digest) {
					t.Errorf("it has %+v, and before %+v", is, was)
				}
			}
		})
	}
}

// TestPluginRestartsLeaveNothing: lives of plugins leave no process, no
// descriptor and no socket of theirs. That a thousand restarts leave nothing
// else is a test of core/pluginhost, which can ask for them.
func TestPluginRestartsLeaveNothing(t *testing.T) {
	t.Parallel()
	a := newHost(t)
	a.install("flawed", "ebpf")
	a.install("flawed", "l7", "children")
	a.start()
	first := a.ready("ebpf", 1)
	a.served(a.socketOf(first))
	a.served(a.socketOf(a.ready("l7", 1)))
	before := descriptors(t, a.proc.Pid())
	for nth := 2; nth <= 4; nth++ {
		for _, name := range []string{"ebpf", "l7"} {
			kill(t, a.ready(name, nth-1).PID, syscall.SIGKILL)
			a.served(a.socketOf(a.ready(name, nth)))
		}
	}
	a.eventually(5*time.Second, "nothing is left of former lives", func() error {
		if is := descriptors(t, a.proc.Pid()); is > before+1 {
			return fmt.Errorf("the agent has %d descriptors, before %d", is, before)
		}
		if n := len(a.pluginProcesses()); n != 2 {
			return fmt.Errorf("%d processes of plugins, want 2", n)
		}
		if sleepers := childrenNamed(t, "sleep", a); sleepers != 1 {
			return fmt.Errorf("%d children of the plugin l7, want 1: those of former lives end with them", sleepers)
		}
		if z := zombies(t, a.proc.Pid()); z > 0 {
			return fmt.Errorf("%d zombies", z)
		}
		starts, err := filepath.Glob(filepath.Join(a.runDir(), ".s-*"))
		if err != nil || len(starts) != 2 {
			return fmt.Errorf("directories of starts: %v, want 2", starts)
		}
		return nil
	})
	if took := a.terminate(); took > scale.Bound(5*time.Second, 20*time.Second) {
		t.Errorf("the stop took %v", took)
	}
	if err := a.noProcess(); err != nil {
		t.Error(err)
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// statusOf reads a key of /proc/PID/status, "" if the process is gone.
func statusOf(pid, key string) string {
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	_, rest, _ := strings.Cut(string(text), "\n"+key+":\t")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// zombies counts the children of a process that nobody reaped.
func zombies(t *testing.T, parent int) (n int) {
	t.Helper()
	for _, pid := range numbers(t) {
		if statusOf(pid, "PPid") == fmt.Sprint(parent) && strings.HasPrefix(statusOf(pid, "State"), "Z") {
			n++
		}
	}
	return n
}

// childrenNamed counts the live processes of a name in the agent's network
// namespace.
func childrenNamed(t *testing.T, name string, a *agent) (n int) {
	t.Helper()
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", a.proc.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range numbers(t) {
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		if at, _ := os.Readlink("/proc/" + pid + "/ns/net"); at == space && strings.TrimSpace(string(comm)) == name {
			n++
		}
	}
	return n
}

// numbers lists the processes of this host.
func numbers(t *testing.T) (pids []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		pids = append(pids, filepath.Base(p))
	}
	return pids
}

// TestPluginStopped: a plugin that stands still keeps nobody from stopping, and
// one that stood still too long is replaced.
func TestPluginStopped(t *testing.T) {
	t.Run("the agent stops", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		a.start()
		life := a.ready("fake", 1)
		a.served(a.socketOf(life))
		kill(t, life.PID, syscall.SIGSTOP)
		if took := a.terminate(); took > scale.Bound(5*time.Second, 20*time.Second) {
			t.Errorf("the stop took %v, 5 s at most", took)
		} else {
			t.Logf("the stop took %v", took)
		}
		if err := a.noProcess(); err != nil {
			t.Error(err)
		}
	})
	t.Run("the plugin is replaced", func(t *testing.T) {
		t.Parallel()
		a := newHost(t, "fake")
		a.install("fake", "fake")
		a.start()
		life := a.ready("fake", 1)
		a.served(a.socketOf(life))
		kill(t, life.PID, syscall.SIGSTOP)
		next := a.ready("fake", 2)
		a.served(a.socketOf(next))
		if got := a.pluginProcesses(); len(got) != 1 || got[0] != next.PID {
			t.Errorf("processes are %v, want %d alone", got, next.PID)
		}
	})
}
