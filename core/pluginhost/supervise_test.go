package pluginhost

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestKilledPluginReturns(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	h := r.start()
	for range 3 { // more than once: nothing of a start can be used for the next
		p := r.nextReady()
		pid := statusOf(t, h, "good").PID
		began := time.Now()
		kill(t, pid, syscall.SIGKILL)
		waitClosed(t, p.Lost, "the loss")
		if d := time.Since(began); d > scale.Bound(time.Second, 10*time.Second) {
			t.Errorf("noticed after %v", d)
		}
	}
	p := r.nextReady()
	if s := statusOf(t, h, "good"); s.Losses != 3 || !strings.Contains(s.Reason, "killed") {
		t.Errorf("status is %+v of %v", s, p.Name)
	}
	r.waitLog("its process ended: signal: killed")
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if pid <= 0 { // that would be all of our own process group
		t.Fatalf("%v is for process %d: it does not run", s, pid)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

func TestCrashLoopIsShownAndLeft(t *testing.T) {
	r := newRig(t, "good")
	path := r.install("good", behaviour{})
	h := r.start()
	r.nextReady()
	good, err := os.ReadFile(behaviourPath(path))
	if err != nil {
		t.Fatal(err)
	}
	r.install("good", behaviour{Mode: "dies"})
	kill(t, statusOf(t, h, "good").PID, syscall.SIGKILL)
	s := waitState(t, h, "good", StateCrashLoop)
	if !strings.Contains(s.Reason, "cannot find my head") {
		t.Errorf("reason is %s", s.Reason)
	}
	if err := os.WriteFile(behaviourPath(path), good, 0o644); err != nil {
		t.Fatal(err)
	}
	waitState(t, h, "good", StateReady)
}

// A process that is there but does not answer is as good as gone, and it ends
// although it takes no signal that it could heed.
func TestStoppedPluginIsReplaced(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.cfg.Timing.Answer = time.Second // more than one that runs may take, whatever the machine does
	h := r.start()
	p := r.nextReady()
	kill(t, statusOf(t, h, "good").PID, syscall.SIGSTOP)
	waitClosed(t, p.Lost, "the loss")
	r.nextReady()
	if s := statusOf(t, h, "good"); !strings.Contains(s.Reason, "does not answer: 3 times") {
		t.Errorf("reason is %s", s.Reason)
	}
}

// The stop is bounded whatever the plugin does.
func TestStopIsBounded(t *testing.T) {
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "good")
		r.cfg.Timing = DefaultTiming()
		r.install("good", behaviour{})
		h := r.start()
		r.nextReady()
		pid := statusOf(t, h, "good").PID
		kill(t, pid, syscall.SIGSTOP)
		stopWithin(t, h, 5*time.Second)
		gone(t, pid)
	})
	t.Run("heeds nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "good")
		r.cfg.Timing = DefaultTiming()
		r.install("good", behaviour{Mode: "raw"})
		h := r.start()
		r.nextReady()
		pid := statusOf(t, h, "good").PID
		stopWithin(t, h, 5*time.Second)
		gone(t, pid)
	})
	t.Run("orderly", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "good")
		r.install("good", behaviour{})
		h := r.start()
		r.nextReady()
		stopWithin(t, h, 2*time.Second)
	})
	t.Run("while it starts", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "good")
		r.install("good", behaviour{})
		h := r.start()
		r.nextReady()
		r.install("good", behaviour{Mode: "silent"})
		kill(t, statusOf(t, h, "good").PID, syscall.SIGKILL)
		waitState(t, h, "good", StateStarting)
		stopWithin(t, h, 5*time.Second)
	})
}

func stopWithin(t *testing.T, h *Host, d time.Duration) {
	t.Helper()
	began := time.Now()
	h.Stop()
	if took := time.Since(began); took > scale.Bound(d, 3*d) {
		t.Errorf("the stop took %v, %v at most", took, d)
	}
}

// gone checks that there is neither a process nor a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v", pid, err)
	}
}

// A grandchild with the pipes hides nothing, and ends with its parent, unless
// it made itself independent.
func TestGrandchildHoldsThePipes(t *testing.T) {
	for _, mode := range []string{"grandchild", "daemon"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, "good")
			out := t.TempDir() + "/pid"
			r.install("good", behaviour{Mode: mode, Out: out})
			h := r.start()
			p := r.nextReady()
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			grandchild, err := strconv.Atoi(string(text))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(grandchild, syscall.SIGKILL) }()
			r.install("good", behaviour{}) // the next one has no children
			began := time.Now()
			kill(t, statusOf(t, h, "good").PID, syscall.SIGKILL)
			waitClosed(t, p.Lost, "the loss")
			if d := time.Since(began); d > scale.Bound(time.Second, 10*time.Second) {
				t.Errorf("noticed after %v", d)
			}
			if mode == "grandchild" {
				await.Until(t, func() string {
					if alive(grandchild) {
						return "the end of the grandchild"
					}
					return ""
				})
			}
			r.nextReady()
		})
	}
}

func TestPanicIsInTheLog(t *testing.T) {
	r := newRig(t, "bad")
	r.install("bad", behaviour{Mode: "call-configure-panic"})
	r.start()
	r.waitLog("level=ERROR")
	r.waitLog("goroutine") // the stack
	r.waitLog("panicked in Configure")
}

func TestFloodIsDroppedNotBlocked(t *testing.T) {
	for _, mode := range []string{"flood", "chatty"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, "good")
			r.install("good", behaviour{Mode: mode})
			h := r.start()
			r.nextReady()
			await.Until(t, func() string {
				if n := counter(t, r, "fairlead_plugin_log_lines_dropped_total"); n < 20000 { // far more than what is on its way
					return fmt.Sprintf("20,000 lines dropped, only %v are", n)
				}
				return ""
			})
			if n := strings.Count(r.log.String(), "\n"); n > 5000 {
				t.Errorf("the log has %d lines", n)
			}
			if s := statusOf(t, h, "good"); s.State != StateReady || s.Losses > 0 {
				t.Errorf("status is %+v", s)
			}
		})
	}
}

// counter adds up the series of a metric.
func counter(t *testing.T, r *rig, name string) (sum float64) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func TestUnhealthyDataPathIsShown(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{Mode: "call-unhealthy"})
	h := r.start()
	r.waitLog("nothing goes through")
	if s := statusOf(t, h, "good"); s.State != StateReady || s.Losses != 0 {
		t.Errorf("status is %+v", s)
	}
}

// Not one of many restarts leaves anything behind.
func TestRestartsLeaveNothing(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{Mode: "go-plugin"}) // it starts sooner than one of the SDK
	h := r.start()
	r.nextReady()
	restart := func(n int) {
		for range n {
			if err := h.Restart("good", "test"); err != nil {
				t.Fatal(err)
			}
			r.nextReady()
		}
	}
	restart(3)
	files, routines, threads := descriptors(t), runtime.NumGoroutine(), entries(t, "/proc/self/task")
	n := scale.N(1000)
	restart(n)
	await.Until(t, func() string {
		if d := descriptors(t); d > files+2 {
			return fmt.Sprintf("descriptors: %d before, %d after %d restarts", files, d, n)
		}
		if g := runtime.NumGoroutine(); g > routines+4 {
			return fmt.Sprintf("goroutines: %d before, %d after %d restarts", routines, g, n)
		}
		if p := entries(t, "/proc/self/task"); p > threads+20 {
			return fmt.Sprintf("threads: %d before, %d after %d restarts", threads, p, n)
		}
		if c := children(t); c != 1 {
			return fmt.Sprintf("one child, there are %d", c)
		}
		return ""
	})
	if s := statusOf(t, h, "good"); s.Losses != 0 || s.Starts != n+4 {
		t.Errorf("status is %+v", s)
	}
	left, err := os.ReadDir(r.cfg.RunDir)
	if err != nil || len(left) != 4 { // .lock, good, good.json, one start
		t.Errorf("in the run directory: %v, %v", left, err)
	}
}

func descriptors(t *testing.T) int { t.Helper(); return entries(t, "/proc/self/fd") }

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// children counts the children of this process, zombies included.
func children(t *testing.T) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // the thread ended
		}
		n += len(strings.Fields(string(text)))
	}
	return n
}

func TestRestartOfNobody(t *testing.T) {
	r := newRig(t)
	if err := r.start().Restart("nobody", ""); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("error is %v", err)
	}
}
