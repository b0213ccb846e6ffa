package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/short"
	"github.com/fairlead/fairlead/test/transcript"
)

// built is the directory with the program and the plugin, which are built once if
// FAIRLEAD_BIN does not name them. TestMain removes what was built.
var built struct {
	once sync.Once
	dir  string
	err  error
	own  string
}

func builtDir(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if bin := os.Getenv("FAIRLEAD_BIN"); bin != "" {
			built.dir = filepath.Dir(bin)
			return
		}
		if built.own, built.err = os.MkdirTemp("", "fl-bin-"); built.err != nil {
			return
		}
		built.dir = built.own
		const commands = "github.com/fairlead/fairlead/cmd/"
		out, err := exec.Command("go", "build", "-o", built.own, commands+"fairlead", commands+handshake.FilePrefix+l7Name).CombinedOutput()
		if err != nil {
			built.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// newLocal returns a command that finds the plugin and shows the real time.
func newLocal(t *testing.T) *command {
	t.Helper()
	c := newCommand(t)
	c.Now = time.Now
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + builtDir(t))
	return c
}

// newDemo is the same with the processes of the program as it is shipped: those
// of the test binary may be slowed down by the race detector.
func newDemo(t *testing.T) *command {
	t.Helper()
	c := newLocal(t)
	c.Executable = func() (string, error) { return filepath.Join(builtDir(t), "fairlead"), nil }
	return c
}

// awaitEnd waits until none of the processes exists.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	await.Until(t, func() string {
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

// awaitNoDir waits until a directory is gone.
func awaitNoDir(t *testing.T, dir string) {
	t.Helper()
	await.Until(t, func() string {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return ""
		}
		return "the end of " + dir
	})
}

// curl asks a proxy for a service until all of the instances have answered.
func curl(t *testing.T, url, service string, instances ...string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	seen := map[string]bool{}
	await.Until(t, func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = service
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		id, rest, _ := strings.Cut(string(body), " ")
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(rest, "(service "+service+", pid ") {
			return answer.Status + " " + string(body)
		}
		seen[id] = true
		for _, i := range instances {
			if !seen[i] {
				return "an answer of " + i + " at " + url
			}
		}
		return ""
	})
}

// pids are all processes of a cluster.
func (c localJSON) pids() []int {
	var out []int
	for _, n := range c.Nodes {
		out = append(out, n.PID, n.ProxyPID)
	}
	for _, i := range c.Instances {
		out = append(out, i.PID)
	}
	return out
}

// shown reads the tables that dev prints.
func shown(t *testing.T, text string) localJSON {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		return n
	}
	var out localJSON
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 6 && (f[0] == "n1" || f[0] == "n2" || f[0] == "n3"):
			out.Nodes = append(out.Nodes, localNodeJSON{Name: f[0], Gossip: f[1], PID: number(f[2]), Proxy: f[3], ProxyPID: number(f[4]), Socket: f[5]})
		case len(f) == 5 && (f[0] == "web" || f[0] == "api"):
			out.Instances = append(out.Instances, localInstanceJSON{f[0], f[1], f[2], f[3], number(f[4])})
		}
	}
	if len(out.Nodes) != localNodes || len(out.Instances) != 5 {
		t.Fatalf("%d nodes and %d instances in:\n%s", len(out.Nodes), len(out.Instances), text)
	}
	return out
}

func TestDev(t *testing.T) {
	dev := newLocal(t)
	dir := devDir(dev.Env)
	// What a killed dev left is no obstacle.
	if err := os.MkdirAll(filepath.Join(dir, "n1", "data", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	dev.start("dev")
	dev.waitOutput(t, "Ctrl-C stops all")
	c := shown(t, dev.out.String())
	t.Cleanup(func() { endAll(t, c) })
	for _, n := range c.Nodes {
		curl(t, n.Proxy, "web", "web-1", "web-2", "web-3")
		curl(t, n.Proxy, "api", "api-1", "api-2")
	}

	other := func(args ...string) string {
		cmd := newCommand(t)
		cmd.Environ = dev.Environ
		if code := cmd.run(args...); code != 0 {
			t.Fatalf("%q: %d: %s", args, code, cmd.err.String())
		}
		return cmd.out.String()
	}
	await.Until(t, func() string { // a check that was late takes an instance out for a moment
		if out := other("services"); !strings.Contains(out, "3/3") || !strings.Contains(out, "2/2") {
			return "services:\n" + out
		}
		if out := other("endpoints", "web"); strings.Count(out, " in  ready ") != 3 {
			return "endpoints web:\n" + out
		}
		return ""
	})

	again := newCommand(t)
	again.Environ = dev.Environ
	if code := again.run("dev"); code != 1 || !strings.Contains(again.err.String(), "already runs in "+dir) {
		t.Errorf("a second dev: %d: %s", code, again.err.String())
	}

	if err := syscall.Kill(c.Instances[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	dev.waitOutput(t, "instance web-1 (pid "+strconv.Itoa(c.Instances[0].PID)+") ended: signal: killed")
	await.Until(t, func() string {
		if out := other("endpoints", "web"); !strings.Contains(out, " out  failing ") {
			return "web-1 to be out:\n" + out
		}
		return ""
	})
	if err := syscall.Kill(c.Nodes[2].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	dev.waitOutput(t, "agent n3 (pid "+strconv.Itoa(c.Nodes[2].PID)+") ended: signal: killed")
	dev.waitOutput(t, "died")
	curl(t, c.Nodes[0].Proxy, "web", "web-2")

	dev.signals <- syscall.SIGINT
	if code := dev.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, dev.err.String())
	}
	awaitEnd(t, c.pids())
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stayed: %v", dir, err)
	}
}

// endAll is for a test that failed half-way.
func endAll(t *testing.T, c localJSON) {
	if t.Failed() {
		for _, pid := range c.pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// kill -9 of dev, of an ordinary user, leaves no process and no directory; and
// the next one can begin at once.
func TestDevKilled(t *testing.T) {
	dir := short.Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "fairlead")
	for _, name := range []string{"fairlead", handshake.FilePrefix + l7Name} { // where that user may go
		if err := runnable.Copy(filepath.Join(builtDir(t), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(home, "fairlead-dev")
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	start := func() (*exec.Cmd, localJSON) {
		t.Helper()
		var out, errs transcript.Buffer
		dev := exec.Command(exe, "dev", "-o", "json")
		dev.Dir = "/"
		dev.Env = []string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + home}
		dev.Stdout, dev.Stderr, dev.SysProcAttr = &out, &errs, attr
		if err := dev.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // of a test that failed half-way; the others end with it
			_ = dev.Process.Kill()
			_ = dev.Wait()
		})
		await.Until(t, func() string {
			if strings.Contains(out.String(), "\n") {
				return ""
			}
			return "the first line:\n" + out.String() + errs.String()
		})
		var c localJSON
		if err := json.NewDecoder(strings.NewReader(out.String())).Decode(&c); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		t.Cleanup(func() { endAll(t, c) })
		return dev, c
	}
	dev, c := start()
	curl(t, c.Nodes[1].Proxy, "web", "web-1", "web-2", "web-3")
	if c.FirstSec <= 0 || c.ReadySec < c.FirstSec {
		t.Errorf("the first answer after %g s, all ready after %g s", c.FirstSec, c.ReadySec)
	}
	if err := dev.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dev.Wait() // it was killed: an error is what we expect
	next, after := start()
	awaitEnd(t, c.pids())
	curl(t, after.Nodes[2].Proxy, "api", "api-1", "api-2")
	// The terminal goes away.
	if err := next.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := next.Wait(); err != nil {
		t.Errorf("it ended by SIGHUP with %v", err)
	}
	awaitEnd(t, after.pids())
	awaitNoDir(t, run)

	last, c := start()
	if err := last.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = last.Wait()
	awaitEnd(t, c.pids())
	awaitNoDir(t, run)
}

// Without the data plane l7 there is a cluster, and no proxy.
func TestDevWithoutProxy(t *testing.T) {
	dev := newCommand(t)
	dev.Now = time.Now
	dev.setenv("FAIRLEAD_DATAPLANE=off")
	dev.start("dev", "-o", "json")
	dev.waitOutput(t, "]}\n")
	dev.signals <- syscall.SIGTERM
	if code := dev.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, dev.err.String())
	}
	var c localJSON
	if err := json.NewDecoder(strings.NewReader(dev.out.String())).Decode(&c); err != nil {
		t.Fatalf("%v: %s", err, dev.out.String())
	}
	if len(c.Nodes) != 3 || c.Nodes[0].Proxy != "" || c.FirstSec != 0 || len(c.Instances) != 5 {
		t.Errorf("%+v", c)
	}
	demo := newCommand(t)
	demo.setenv("FAIRLEAD_DATAPLANE=off")
	if code := demo.run("demo"); code != ExitUsage || !strings.Contains(demo.err.String(), "the demo needs l7") {
		t.Errorf("demo: %d: %s", code, demo.err.String())
	}
}

func TestDevSaysWhyItDoesNotStart(t *testing.T) {
	fails := func(c *command, name, want string) {
		t.Helper()
		if code := c.run(name); code != 1 || !strings.Contains(c.err.String(), want) {
			t.Errorf("%s: %d: %s, want %q", name, code, c.err.String(), want)
		}
	}
	dev := newCommand(t)
	fails(dev, "dev", "build it with `make build`")
	dev = newLocal(t)
	dev.Executable = func() (string, error) { return exec.LookPath("false") }
	fails(dev, "dev", "instance web-1 ended while starting")
	dev.Executable = func() (string, error) { return "/nonexistent", nil }
	fails(dev, "dev", "start /nonexistent")
	dev.Executable = func() (string, error) { return "", errors.New("no idea") }
	fails(dev, "demo", "no idea")
	if err := os.MkdirAll(devDir(dev.Env), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(devDir(dev.Env), 0o777); err != nil {
		t.Fatal(err)
	}
	fails(dev, "dev", "only this user may write")
}

// demoTime is how long a demo of the tests sends: as long as the real one in
// full, and never too short for what is to be seen.
func demoTime() string { return strconv.Itoa(max(5, scale.N(30))) + "s" }

// runDemo runs a demo, and holds it to what it promises.
func runDemo(t *testing.T, failure string, args ...string) {
	t.Helper()
	await.Steadily(t, func() error {
		demo, dir := newDemo(t), short.Dir(t)
		t.Setenv("TMPDIR", dir)
		demo.setenv("TMPDIR=" + dir)
		code := demo.run(append([]string{"demo", "--duration", demoTime(), "-o", "json"}, args...)...)
		if strings.Contains(demo.err.String(), "the kernel gives none to user") {
			t.Skip(demo.err.String())
		}
		if code != 0 {
			return fmt.Errorf("exit code %d: %s\n%s", code, demo.err.String(), demo.out.String())
		}
		var d demoJSON
		if err := json.Unmarshal([]byte(demo.out.String()), &d); err != nil {
			return fmt.Errorf("%w: %s", err, demo.out.String())
		}
		awaitEnd(t, d.Cluster.pids())
		leavesNothing(t)
		if err := d.keeps(failure); err != nil {
			return fmt.Errorf("%w: %s", err, demo.out.String())
		}
		return nil
	})
}

// keeps is nil if the demo kept what it promises.
func (d *demoJSON) keeps(failure string) (err error) {
	wrong := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	at := map[string]float64{}
	for _, s := range d.TimeLine {
		at[s.Transition+s.Observer] = s.Seconds
	}
	for _, want := range []string{failure, "diedn1", "diedn2", "endpoint gonen1"} {
		if _, ok := at[want]; !ok {
			wrong("the time line lacks %q", want)
		}
	}
	if d.Errors != 0 || d.Rate < 200 || d.Requests < 1000 {
		wrong("%d errors of %d requests, %g a second", d.Errors, d.Requests, d.Rate)
	}
	var answers, again uint64
	for _, a := range d.Answers {
		answers += a.Answers
		if a.Counted != nil {
			again += *a.Counted - a.Answers
		}
		if a.Answers == 0 || (a.Counted == nil) != (a.Node == "n3") {
			wrong("%+v", a)
		}
	}
	if answers != uint64(d.Requests) {
		wrong("%d answers to %d requests", answers, d.Requests)
	}
	// A try that a busy survivor let wait counts as one at the victim.
	if d.LastSent != nil && again == 0 {
		if limit := map[string]float64{"killed": 0.1, "cut off": at["diedn1"]}[failure]; *d.LastSent > limit+d.Resolution {
			wrong("the last request was sent to it %g s after the failure, want %g at most, read %g s late or less", *d.LastSent, limit, d.Resolution)
		}
	}
	return err
}

func TestDemo(t *testing.T) { runDemo(t, "killed") }

func TestDemoCut(t *testing.T) { runDemo(t, "cut off", "--mode", "cut") }

func leavesNothing(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("%d things left in the temporary directory, %v", len(left), err)
	}
}

// As text it is a time line and figures; an error is exit code 1.
func TestDemoReport(t *testing.T) {
	c := newCommand(t)
	a := &app{env: c.Env, output: "text"}
	at, counted := 0.0421, uint64(7)
	r := &demoJSON{
		Requests: 12, Errors: 2, Causes: map[string]int{"answer 503": 2}, Rate: 210, FirstError: &at, P99: 0.0032, LastSent: &at, Resolution: 0.01,
		Answers: []demoAnswer{{"web-1", "n1", 8, &counted}, {"web-3", "n3", 2, nil}},
	}
	d := &demo{app: a, result: r}
	d.step(demoStep{Node: "n3", Transition: "killed", PIDs: []int{11, 12}})
	d.step(demoStep{Seconds: 0.7, Observer: "n1", Node: "n3", Transition: "suspected", From: "n2"})
	if err := a.printDemo(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"t+0.000s  killed n3: its agent, proxy and instances (kill -9 11 12)", "t+0.700s  n1 suspects n3, told by n2",
		"12, 210.0 a second", "p99 3.2 ms", "42.1 ms after the failure, or up to 10.0 ms before that", "none tried after the failure", "web-3     n3    2        -",
		"error, 2 times: answer 503", "the first of them was sent at t+0.042s",
	} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, c.out.String())
		}
	}
	if wrong := r.wrong(211); !strings.Contains(wrong, "2 of 12 requests failed") || !strings.Contains(wrong, "only 210.0") ||
		!strings.Contains(wrong, "web-1 counted 7 requests and gave 8 answers") {
		t.Errorf("wrong: %s", wrong)
	}
	if wrong := (&demoJSON{Rate: 210}).wrong(210); wrong != "" {
		t.Errorf("wrong: %s", wrong)
	}
}

func TestDemoBadFlags(t *testing.T) {
	for flag, want := range map[string]string{"--mode=burn": "want refuse or cut", "--rate=0": "want 1 to 10000", "--rate=NaN": "want 1 to", "--duration=1ms": "want 1s to 1h"} {
		demo := newCommand(t)
		if code := demo.run("demo", flag); code != ExitUsage || !strings.Contains(demo.err.String(), want) {
			t.Errorf("%s: %d: %s", flag, code, demo.err.String())
		}
	}
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	demo := newDemo(t)
	t.Setenv("TMPDIR", short.Dir(t))
	demo.start("demo")
	demo.signals <- syscall.SIGINT
	if code := demo.wait(t); code != 1 || demo.err.String() != "fairlead: demo: interrupted\n" {
		t.Errorf("exit code %d: %s", code, demo.err.String())
	}
	leavesNothing(t)
}

// The sweeper waits for processes to end, ends those that do not, and knows a
// process by more than its pid.
func TestSweep(t *testing.T) {
	dir := filepath.Join(short.Dir(t), "dev")
	if err := os.MkdirAll(filepath.Join(dir, "n2", "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	sleeper := func() (*exec.Cmd, string) {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		began, err := beganAt(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return cmd, began
	}
	ours, began := sleeper()
	other, _ := sleeper()
	ended := make(chan error, 1)
	go func() { ended <- ours.Wait() }()
	endProcess(ours.Process.Pid, began, 0)
	endProcess(other.Process.Pid, "1", 0)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a process that did not end: %v", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that only has the pid: %v", err)
	}
	if err := sweep(strings.NewReader("nonsense\n999999999 1\n"), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stayed: %v", dir, err)
	}
	// What is not ours stays.
	if err := os.MkdirAll(filepath.Join(dir, "precious"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sweep(strings.NewReader(""), dir); err == nil {
		t.Error("a directory with something else was removed, or nobody complained")
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}

func TestPorts(t *testing.T) {
	var a, b ports
	defer b.close()
	first, err := a.take(loopback(), 20081)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.take(loopback(), first)
	if err != nil || second == first {
		t.Errorf("%d is given twice, %v", second, err)
	}
	a.close()
	if again, err := b.take(loopback(), first); err != nil || again != first {
		t.Errorf("%d after %d became free, %v", again, first, err)
	}
	if port, err := b.take(loopback(), 65536); err == nil {
		t.Errorf("port %d", port)
	}
}

// The thread of a spawner that could not be prepared starts nothing.
func TestSpawner(t *testing.T) {
	if _, err := newSpawner(func() error { return errors.New("no") }); err == nil {
		t.Error("it starts without being prepared")
	}
	// More than there are threads: one of them may be the first.
	for range 20 {
		s, err := newSpawner(func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.Background(), "sleep", "600")
		if err := s.start(cmd); err != nil {
			t.Fatal(err)
		}
		s.close()
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the child of a spawner that is closed: %v", err)
		}
	}
}

// What dev tells to type works also where PATH does not lead to this program.
func TestTypedName(t *testing.T) {
	own, others := t.TempDir(), t.TempDir()
	for _, dir := range []string{own, others} {
		if err := os.WriteFile(filepath.Join(dir, "fairlead"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(own, "fairlead")
	for path, want := range map[string]string{
		"": self, "/nowhere": self, own: "fairlead", "/nowhere:" + own + ":" + others: "fairlead", others + ":" + own: self,
	} {
		env := Env{Environ: []string{"PATH=" + path}, Executable: func() (string, error) { return self, nil }}
		if got := typedName(env); got != want {
			t.Errorf("PATH=%s: %s, want %s", path, got, want)
		}
	}
}
