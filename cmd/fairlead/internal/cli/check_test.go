package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/hostcheck"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/short"
)

// checkHost runs check with a configuration of its own ports, and returns what it
// found by GROUP CHECK.
func checkHost(t *testing.T, c *command, lines ...string) (code int, found map[string]findingJSON) {
	t.Helper()
	text := append([]string{
		"gossip: {bind: " + port.Free(t) + "}", "http: {listen: off}", "node: {data_dir: " + filepath.Join(t.TempDir(), "data") + "}",
		"api: {listen: off, socket: " + filepath.Join(short.Dir(t), "api.sock") + "}",
	}, lines...)
	file := writeFile(t, strings.Join(text, "\n"))
	var out hostCheckJSON
	await.Until(t, func() string {
		var stdout bytes.Buffer
		c.Stdout = &stdout
		code = c.run("check", "-o", "json", "--config", file)
		if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
			t.Fatalf("code %d, %v: %s%s", code, err, stdout.String(), c.err.String())
		}
		found = make(map[string]findingJSON)
		for _, f := range out.Findings {
			found[f.Group+" "+f.Check] = f
		}
		if text := stdout.String(); strings.Contains(text, "did not answer within") || strings.Contains(text, "was not asked") {
			return "an answer of each plane, on a busy machine: " + stdout.String()
		}
		return ""
	})
	want := map[string]int{"ok": ExitOK, "warning": ExitDegraded, "failed": ExitFailed}
	if exit, known := want[out.State]; !known || code != exit {
		t.Errorf("state %q with code %d", out.State, code)
	}
	return code, found
}

func TestCheckAsksPlanes(t *testing.T) {
	for _, c := range []struct {
		wish, plane, state, seen, fix string
	}{
		{"good", "good", "ok", "SUPPORTED", ""},
		{"so", "so", "warning", "DEGRADED: moon: it is DEGRADED", "wait"},
		{"good", "no", "warning", "UNSUPPORTED: moon: it is UNSUPPORTED", "wait"}, // nobody asks for it
		{"no", "no", "failed", "UNSUPPORTED", "wait"},
		{"who", "who", "failed", "INCONCLUSIVE", "wait"},
		{"nobody", "nobody", "failed", "not installed", "fairlead-dataplane-nobody"},
	} {
		cmd := newCommand(t)
		there := slices.Compact([]string{c.wish, c.plane}) // and no others: all of them have one time together
		if c.plane == "nobody" {
			there = []string{"good"}
		}
		dir := cmd.installPlugins(t, there...)
		cmd.setenv("FAIRLEAD_NODE_DATA_DIR=" + filepath.Join(dir, "data"))
		code, found := checkHost(t, cmd, "dataplane: ["+c.wish+"]")
		got := found["planes "+c.plane]
		if got.State != c.state || !strings.Contains(got.Seen, c.seen) || !strings.Contains(got.Fix, c.fix) {
			t.Errorf("with %s: %+v, want %s with %q and %q", c.wish, got, c.state, c.seen, c.fix)
		}
		if c.state == "failed" && code != ExitFailed {
			t.Errorf("with %s: code %d", c.wish, code)
		}
		if got := found["storage data-dir"]; got.State != "ok" || !strings.Contains(got.Seen, "will be made") {
			t.Errorf("data directory: %+v", got)
		}
	}
}

// One that hangs takes the time of those after it. It is not said of them that they
// did not answer.
func TestCheckNamesThePlaneThatHangs(t *testing.T) {
	c := newCommand(t)
	dir := c.installPlugins(t, "good")
	if err := runnable.Write(filepath.Join(dir, "fairlead-dataplane-hangs"), []byte("#!/bin/sh\nexec sleep 60\n")); err != nil {
		t.Fatal(err)
	}
	c.setenv("FAIRLEAD_NODE_DATA_DIR=" + filepath.Join(dir, "data"))
	c.run("check", "--config", writeFile(t, "dataplane: [hangs, good]\ngossip: {bind: "+port.Free(t)+"}"))
	for plane, want := range map[string]string{"hangs": "did not answer within", "good": "was not asked"} {
		if !regexp.MustCompile(plane + ` +` + want).MatchString(c.out.String()) {
			t.Errorf("of %s it is not said that it %s: %s", plane, want, c.out.String())
		}
	}
}

// A plane whose file may not be run is told with its reason.
func TestCheckShowsRefusedPlanes(t *testing.T) {
	c := newCommand(t)
	dir := c.installPlugins(t)
	if err := runnable.Write(filepath.Join(dir, "fairlead-dataplane-text"), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	_, found := checkHost(t, c, "dataplane: [text]")
	if got := found["planes text"]; got.State != "failed" || !strings.Contains(got.Seen, "neither an ELF program") {
		t.Errorf("a refused plane: %+v", got)
	}
}

func TestCheckExitCodes(t *testing.T) {
	for state, want := range map[hostcheck.State]int{hostcheck.OK: ExitOK, hostcheck.Skipped: ExitOK, hostcheck.Warning: ExitDegraded, hostcheck.Failed: ExitFailed} {
		c := newCommand(t)
		a := &app{env: c.Env, output: "text"}
		err := a.printCheck([]hostcheck.Finding{{Group: "kernel", Check: "btf", State: state, Seen: "this", Fix: "do that"}})
		code := ExitOK
		if exit, is := err.(*exitError); is {
			code = exit.code
		} else if err != nil {
			t.Fatal(err)
		}
		if code != want {
			t.Errorf("%s: code %d, want %d", state, code, want)
		}
		for _, part := range []string{"kernel\n", string(state), "btf", "this", "→ do that"} {
			if !strings.Contains(c.out.String(), part) {
				t.Errorf("%q is not in\n%s", part, c.out.String())
			}
		}
	}
}

func TestCheckUsage(t *testing.T) {
	c := newCommand(t)
	if code := c.run("check", "here"); code != ExitUsage {
		t.Errorf("code %d: %s", code, c.err.String())
	}
	c = newCommand(t)
	if code := c.run("check", "--config", writeFile(t, "nonsense: 1\n")); code != ExitFailed || !strings.Contains(c.err.String(), "nonsense") {
		t.Errorf("code %d: %s", code, c.err.String())
	}
}

// TestCheckForOrdinaryUsers: it works without root, and says what needs it.
func TestCheckForOrdinaryUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("all tests run as an ordinary user already")
	}
	const nobody = 65534
	dir := short.Dir(t)
	program := filepath.Join(dir, "program")
	err := runnable.Copy("/proc/self/exe", program)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "fairlead.yaml")
	if err := os.WriteFile(config, []byte("gossip: {bind: 127.0.0.1:80}\nhttp: {listen: off}\napi: {listen: off}\nnode: {data_dir: /root/fairlead}\ndataplane: off\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "check", "-o", "json", "--config", config)
	cmd.Dir = "/"
	cmd.Env = []string{beFairlead, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	var got hostCheckJSON
	if bad := json.Unmarshal(out, &got); bad != nil {
		t.Fatalf("%v, %v: %s", err, bad, out)
	}
	found := make(map[string]findingJSON)
	for _, f := range got.Findings {
		found[f.Group+" "+f.Check] = f
	}
	for _, check := range []string{"kernel capabilities", "storage data-dir", "leftovers rules"} {
		if f := found[check]; f.State != "skipped" || f.Fix == "" {
			t.Errorf("%s: %+v, want it skipped with what to do", check, f)
		}
	}
	for _, check := range []string{"kernel release", "network mtu", "network advertise", "process files"} {
		if f := found[check]; f.State != "ok" {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if f := found["network port gossip.bind/tcp"]; f.State == "failed" {
		t.Errorf("a port below 1024: %+v", f)
	}
	if len(got.Findings) < 20 {
		t.Errorf("only %d findings", len(got.Findings))
	}
}
