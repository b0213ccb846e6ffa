package pluginhost

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/transcript"
)

// beAgentEnv makes the test binary an agent that runs until it is killed. Its
// value is a job.
const beAgentEnv = "TEST_BE_AGENT"

type job struct {
	Plugins, RunDir, StateDir string
	Serve                     bool
}

// beAgent prints the kind and the pid of its plugin when it is ready.
func beAgent() int {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(beAgentEnv)), &j); err != nil {
		return 1
	}
	cfg := Config{
		Wish: Wish{Names: []string{"good"}, Written: true}, Search: Search{Dirs: []string{j.Plugins}},
		RunDir: j.RunDir, StateDir: j.StateDir, InstanceID: "test", Node: "n1", Environ: os.Environ(), Metrics: prometheus.NewRegistry(),
		Timing: hurry(),
	}
	if j.Serve {
		cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keyOnHostLoss: handshake.HostLossServe}}}
	}
	var h *Host
	ready := make(chan Provider, 1)
	cfg.OnReady = func(p Provider) { ready <- p }
	h, err := New(cfg)
	if err == nil {
		_, err = h.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := <-ready
	fmt.Println(p.Kind, h.Status()[0].PID)
	<-time.After(5 * time.Minute)
	return 0
}

// runAgent starts an agent and returns when its plugin is ready.
func runAgent(t *testing.T, j job) (cmd *exec.Cmd, kind Kind, pid int) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(executable(t))
	cmd.Env = append(os.Environ(), beAgentEnv+"="+string(text))
	var said transcript.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the agent: %v: %s", err, said.String())
	}
	if _, err := fmt.Sscan(line, &kind, &pid); err != nil {
		t.Fatalf("the agent said %q", line)
	}
	return cmd, kind, pid
}

func killAgent(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// A killed agent leaves no plugin for longer than 3 s, with and without the SDK.
func TestKilledAgentLeavesNoPlugin(t *testing.T) {
	for _, mode := range []string{"", "go-plugin"} {
		t.Run("mode "+mode, func(t *testing.T) {
			r := newRig(t)
			r.install("good", behaviour{Mode: mode})
			for range scale.N(100) {
				agent, _, pid := runAgent(t, job{Plugins: r.dir, RunDir: r.cfg.RunDir, StateDir: r.cfg.StateDir})
				began := time.Now()
				killAgent(t, agent)
				await.Until(t, func() string {
					if alive(pid) {
						return fmt.Sprintf("the end of plugin %d", pid)
					}
					return ""
				})
				if d := time.Since(began); d > scale.Bound(3*time.Second, 15*time.Second) {
					t.Errorf("the plugin lived on for %v", d)
				}
			}
		})
	}
}

// alive says whether there is a process that is no zombie: one of an agent that
// was killed is init's to reap.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// One that is to serve on does, also when it logs, and the next agent adopts it.
func TestKilledAgentLeavesServingPlugin(t *testing.T) {
	r := newRig(t)
	r.install("good", behaviour{})
	j := job{Plugins: r.dir, RunDir: r.cfg.RunDir, StateDir: r.cfg.StateDir, Serve: true}
	agent, kind, first := runAgent(t, j)
	if kind != KindChild {
		t.Fatalf("kind is %s", kind)
	}
	for range scale.N(100) {
		killAgent(t, agent)
		var pid int
		agent, kind, pid = runAgent(t, j)
		if kind != KindKept || pid != first {
			t.Fatalf("the next agent has a %s, pid %d, and the plugin of before is %d", kind, pid, first)
		}
	}
	killAgent(t, agent)
	if !alive(first) {
		t.Error("it does not serve on")
	}
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Until(t, func() string {
		if alive(first) {
			return "the end of the plugin"
		}
		return ""
	})
}

// Two agents of one host do not disturb each other, and cannot share a run
// directory.
func TestTwoAgents(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	other := newRig(t, "good")
	other.dir = r.dir
	other.cfg.Search = r.cfg.Search
	h := r.start()
	r.nextReady()
	o := other.start()
	p := other.nextReady()
	_, err := New(r.cfg)
	if err == nil || !strings.Contains(err.Error(), "used by another agent") {
		t.Errorf("error is %v", err)
	}
	h.Stop()
	select {
	case <-p.Lost:
		t.Error("the other one lost its plugin")
	default:
	}
	if s := statusOf(t, o, "good"); s.State != StateReady {
		t.Errorf("the other one is %+v", s)
	}
}
