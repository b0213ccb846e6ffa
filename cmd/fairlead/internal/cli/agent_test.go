package cli

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/short"
)

// agentArgs are flags for an agent on loopback with its files in dir.
func agentArgs(dir, name string) []string {
	return []string{
		"agent", "--node.name", name, "--node.data_dir", filepath.Join(dir, "data"), "--gossip.bind", "127.0.0.1:0",
		"--gossip.profile", "local", "--api.socket", filepath.Join(dir, "api.sock"), "--api.listen", "off", "--http.listen", "off", "--dataplane", "off",
	}
}

func TestAgentLifeByCommands(t *testing.T) {
	dir := short.Dir(t)
	socket := filepath.Join(dir, "api.sock")
	agent := newCommand(t)
	agent.setenv("FAIRLEAD_LOG_FORMAT=json")
	agent.start(agentArgs(dir, "n1")...)
	agent.waitOutput(t, `"msg":"ready"`)

	members := newCommand(t)
	if code := members.run("members", "-o", "json", "--api", socket); code != 0 {
		t.Fatal(members.err.String())
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(members.out.String()), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %s", err, members.out.String())
	}
	if len(list[0]) != 7 || list[0]["name"] != "n1" || list[0]["state"] != "alive" || list[0]["role"] != "member" || list[0]["epoch"] != 1.0 {
		t.Errorf("members: %s", members.out.String())
	}

	show := newCommand(t)
	if code := show.run("config", "show", "--origin", "--api", socket); code != 0 {
		t.Fatal(show.err.String())
	}
	for _, want := range []string{"env FAIRLEAD_LOG_FORMAT", "flag --node.name", "default"} {
		if !strings.Contains(show.out.String(), want) {
			t.Errorf("config show lacks %q:\n%s", want, show.out.String())
		}
	}

	second := newCommand(t)
	if code := second.run(agentArgs(dir, "n2")...); code != 1 {
		t.Errorf("a second agent on one socket: exit code %d", code)
	}
	if got := second.err.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "another agent answers on the socket "+socket) {
		t.Errorf("a second agent on one socket: %q, want one clear line", got)
	}

	leave := newCommand(t)
	if code := leave.run("leave", "--api", socket); code != 0 || leave.out.String() != "n1 left its cluster and its agent stopped\n" {
		t.Errorf("leave: %d: %s%s", code, leave.out.String(), leave.err.String())
	}
	if code := agent.wait(t); code != 0 {
		t.Errorf("the agent that left: exit code %d\n%s", code, agent.err.String())
	}
	if code := leave.run("leave", "--api", socket); code != 1 {
		t.Errorf("leave without an agent: exit code %d", code)
	}
}

// Who asks an agent that is about to close its socket hears what became of it.
func TestLeaveOfAnAgentThatStops(t *testing.T) {
	socket := filepath.Join(short.Dir(t), "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		_ = l.Close()
		if err == nil {
			_ = conn.Close()
		}
	}()
	leave := newCommand(t)
	if code := leave.run("leave", "--restart", "--api", socket); code != 1 || !strings.Contains(leave.err.String(), "was stopping already, by another's word") {
		t.Errorf("exit code %d: %s", code, leave.err.String())
	}
}

// A node that restarts says when to have it back; one that would come back as
// another node goes on.
func TestLeaveForARestart(t *testing.T) {
	dir := short.Dir(t)
	agent := newCommand(t)
	agent.start(agentArgs(dir, "n1")...)
	agent.waitOutput(t, "msg=ready")
	leave := newCommand(t)
	socket := filepath.Join(dir, "api.sock")
	if code := leave.run("leave", "--restart", "--hold", "20s", "--api", socket); code != 0 ||
		leave.out.String() != "n1 announced a restart and its agent stopped: start it again within 20s\n" {
		t.Errorf("leave: %d: %s%s", code, leave.out.String(), leave.err.String())
	}
	if code := agent.wait(t); code != 0 || strings.Contains(agent.err.String(), "kind=left") {
		t.Errorf("the agent: exit code %d\n%s", code, agent.err.String())
	}

	agent = newCommand(t)
	agent.start(append(agentArgs(dir, "n1"), "--node.in_memory")...)
	agent.waitOutput(t, "msg=ready")
	leave = newCommand(t)
	if code := leave.run("leave", "--restart", "--api", socket); code != 1 || !strings.Contains(leave.err.String(), "let it leave") {
		t.Errorf("in memory: %d: %s%s", code, leave.out.String(), leave.err.String())
	}
	leave = newCommand(t)
	if code := leave.run("leave", "-o", "json", "--api", socket); code != 0 || !strings.Contains(leave.out.String(), `"state":"left"`) || strings.Contains(leave.out.String(), "hold") {
		t.Errorf("after it: %d: %s%s", code, leave.out.String(), leave.err.String())
	}
	if code := agent.wait(t); code != 0 {
		t.Errorf("the agent in memory: exit code %d", code)
	}
}

func TestAgentStopsBySignal(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		agent := newCommand(t)
		agent.start(agentArgs(short.Dir(t), "n1")...)
		agent.waitOutput(t, "msg=ready")
		agent.signals <- s
		if code := agent.wait(t); code != 0 {
			t.Errorf("%v: exit code %d\n%s", s, code, agent.err.String())
		}
	}
}

// The reader of the log may end, as in `fairlead agent 2>&1 | head`.
func TestAgentOutlivesTheReaderOfItsLog(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := short.Dir(t)
	cmd := exec.Command(exe, agentArgs(dir, "n1")...)
	cmd.Env = newCommand(t).Environ
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), "msg=ready"); {
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	leave := newCommand(t)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // one more line to write
		t.Fatal(err)
	}
	if code := leave.run("leave", "--api", filepath.Join(dir, "api.sock")); code != 0 {
		t.Errorf("leave: %d: %s", code, leave.err.String())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}

// SIGHUP reads file, variables and flags again, with the flags as they were.
func TestAgentReloadsItsFile(t *testing.T) {
	dir := short.Dir(t)
	file := filepath.Join(dir, "fairlead.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	agent := newCommand(t)
	agent.start(append(agentArgs(dir, "n1"), "--config", file)...)
	agent.waitOutput(t, "msg=ready")

	write("log: {level: debug}\nraft: {voters: 5}\n")
	agent.signals <- syscall.SIGHUP
	agent.waitOutput(t, "applied=log.level")
	if !strings.Contains(agent.err.String(), "key=raft.voters") {
		t.Errorf("the key that needs a restart is not named:\n%s", agent.err.String())
	}
	write("log: {level: loud}\n")
	agent.signals <- syscall.SIGHUP
	agent.waitOutput(t, "reload failed")
	agent.signals <- syscall.SIGTERM
	if code := agent.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Signals are taken before the configuration is read: who changed that and says so
// ends no agent that is about to start.
func TestAgentTakesSignalsFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	agent := newCommand(t)
	taken := make(chan struct{})
	agent.Signals = func() (<-chan os.Signal, func()) { close(taken); return agent.signals, func() {} }
	agent.start("agent", "--config", file) // waits for somebody who writes
	select {
	case <-taken:
	case <-time.After(waitTimeout):
		t.Error("it reads its configuration, and takes no signals yet")
	}
	if err := os.WriteFile(file, []byte("nonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := agent.wait(t); code != ExitFailed {
		t.Errorf("exit code %d", code)
	}
}

func TestLeaveJSON(t *testing.T) {
	dir := short.Dir(t)
	agent := newCommand(t)
	agent.start(agentArgs(dir, "n1")...)
	agent.waitOutput(t, "msg=ready")
	leave := newCommand(t)
	code := leave.run("leave", "-o", "json", "--api", filepath.Join(dir, "api.sock"))
	if code != 0 || leave.out.String() != `{"name":"n1","state":"left"}`+"\n" {
		t.Errorf("%d: %s%s", code, leave.out.String(), leave.err.String())
	}
	agent.wait(t)
}

func TestValidateJSON(t *testing.T) {
	var got validationJSON
	validate := func(text string) int {
		t.Helper()
		cmd := newCommand(t)
		code := cmd.run("config", "validate", "-o", "json", writeFile(t, text))
		if err := json.Unmarshal([]byte(cmd.out.String()), &got); err != nil {
			t.Fatalf("%v: %s", err, cmd.out.String())
		}
		return code
	}
	if code := validate("node: {nmae: x}\ngossip: {profile: moon}\n"); code != 1 || got.OK || len(got.Errors) != 2 {
		t.Errorf("%d: %+v", code, got)
	}
	if code := validate("dns: {zone: a.internal}\n"); code != 0 || !got.OK || len(got.Errors) != 0 || len(got.Warnings) != 1 {
		t.Errorf("%d: %+v", code, got)
	}
}

// A wrong value is wrong usage where it is a flag's, and a failure elsewhere.
func TestAgentWithAWrongValue(t *testing.T) {
	for _, test := range []struct {
		env  string
		args []string
		code int
	}{
		{"", []string{"--gossip.profile", "moon"}, ExitUsage},
		{"", []string{"--gossip.profile", "moon", "--node.name", "?"}, ExitUsage},
		{"FAIRLEAD_GOSSIP_PROFILE=moon", nil, ExitFailed},
		{"FAIRLEAD_GOSSIP_PROFILE=moon", []string{"--node.name", "?"}, ExitFailed},
	} {
		c := newCommand(t)
		if test.env != "" {
			c.setenv(test.env)
		}
		code := c.run(append(agentArgs(short.Dir(t), "n1"), test.args...)...)
		if code != test.code || strings.Contains(c.err.String(), "--help") != (test.code == ExitUsage) {
			t.Errorf("%s %v: code %d: %s", test.env, test.args, code, c.err.String())
		}
	}
}
