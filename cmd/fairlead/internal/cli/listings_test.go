package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/short"
	"github.com/fairlead/fairlead/test/transcript"
)

// The forms that scripts and people rely on, byte for byte.
func TestListings(t *testing.T) {
	socket := serveFake(t)
	for file, args := range map[string]string{
		"members.json":  "members -o json",
		"members.txt":   "members",
		"events.json":   "events -o json",
		"events.txt":    "events",
		"since.txt":     "events --since 5m",
		"settings.txt":  "config show",
		"origins.txt":   "config show --origin",
		"settings.json": "config show -o json",
	} {
		t.Run(args, func(t *testing.T) {
			cmd := newCommand(t)
			if code := cmd.run(append(strings.Fields(args), "--api", socket)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, cmd.err.String())
			}
			golden(t, file, cmd.out.String())
		})
	}
}

// Each line of events -o json is one object, also the note of missed events.
func TestEventsJSONIsOneObjectPerLine(t *testing.T) {
	cmd := newCommand(t)
	cmd.run("events", "-o", "json", "--api", serveFake(t))
	lines := strings.Split(strings.TrimSpace(cmd.out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4:\n%s", len(lines), cmd.out.String())
	}
	for _, line := range lines {
		var e struct {
			Seq        uint64
			Transition string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq == 0 || e.Transition == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// An agent that fell silent has an old table, which nothing in it shows.
func TestMembersOfAnUnreadyAgentComeWithTheReason(t *testing.T) {
	socket := serve(t, fakeAgent{members: fakeMembers(), notReady: "its data directory is a copy"}, filepath.Join(short.Dir(t), "api.sock"))
	cmd := newCommand(t)
	if code := cmd.run("members", "-o", "json", "--api", socket); code != 0 {
		t.Fatalf("exit code %d: %s", code, cmd.err.String())
	}
	golden(t, "members.json", cmd.out.String())
	if want := "fairlead: n1 is not ready: its data directory is a copy\n"; cmd.err.String() != want {
		t.Errorf("stderr %q, want %q", cmd.err.String(), want)
	}
}

// Who announced a restart is alive, and shows until when it may take.
func TestMembersAndEventsOfARestart(t *testing.T) {
	members := fakeMembers()
	members[0].HeldUntil = now().Add(20 * time.Second)
	socket := serve(t, fakeAgent{members: members}, filepath.Join(short.Dir(t), "api.sock"))
	by := "back by " + now().Add(20*time.Second).Format(time.TimeOnly)
	for args, want := range map[string]string{"members": "alive, " + by, "events": by, "members -o json": `"state":"alive"`} {
		cmd := newCommand(t)
		if code := cmd.run(append(strings.Fields(args), "--api", socket)...); code != 0 || !strings.Contains(cmd.out.String(), want) {
			t.Errorf("%s: exit code %d, want %q:\n%s%s", args, code, want, cmd.out.String(), cmd.err.String())
		}
	}
}

func TestSinceADate(t *testing.T) {
	cmd := newCommand(t)
	if code := cmd.run("events", "--since", "2026-05-01T11:59:30Z", "--api", serveFake(t)); code != 0 {
		t.Fatalf("exit code %d: %s", code, cmd.err.String())
	}
	if out := cmd.out.String(); strings.Contains(out, "suspected") || !strings.Contains(out, "address-conflict") {
		t.Errorf("got\n%s", out)
	}
}

func TestColourOnTerminalsOnly(t *testing.T) {
	socket := serveFake(t)
	coloured := func(change func(*command)) bool {
		cmd := newCommand(t)
		change(cmd)
		for _, args := range []string{"members", "events"} {
			if code := cmd.run(args, "--api", socket); code != 0 {
				t.Fatal(cmd.err.String())
			}
		}
		return strings.Contains(cmd.out.String(), "\x1b[31mdead\x1b[0m") && strings.Contains(cmd.out.String(), "\x1b[33msuspected")
	}
	plain := func(change func(*command)) bool {
		cmd := newCommand(t)
		change(cmd)
		cmd.run("members", "--api", socket)
		return !strings.Contains(cmd.out.String(), "\x1b")
	}
	if !coloured(func(c *command) { c.Terminal = true }) {
		t.Error("no colour on a terminal")
	}
	if !plain(func(*command) {}) {
		t.Error("colour, or another node's escape, into a pipe")
	}
	if !plain(func(c *command) { c.Terminal = true; c.setenv("NO_COLOR=1") }) {
		t.Error("NO_COLOR is not respected")
	}
	if !plain(func(c *command) { c.Terminal = true; c.setenv("TERM=dumb") }) {
		t.Error("colour on a dumb terminal")
	}
}

func TestFollowEndsWithASignal(t *testing.T) {
	socket := serveFake(t)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := newCommand(t)
		cmd.start("events", "--follow", "--api", socket)
		cmd.waitOutput(t, "address-conflict")
		cmd.signals <- syscall.SIGHUP // is for agents
		cmd.signals <- s
		if code := cmd.wait(t); code != 0 || cmd.err.String() != "" {
			t.Errorf("%v: exit code %d: %s", s, code, cmd.err.String())
		}
	}
}

// --api counts over FAIRLEAD_API, which counts over what is found.
func TestWhichAgentIsAsked(t *testing.T) {
	socket := serveFake(t)
	cmd := newCommand(t)
	cmd.setenv("FAIRLEAD_API=" + socket)
	if code := cmd.run("members"); code != 0 || !strings.Contains(cmd.out.String(), "n1") || cmd.err.String() != "" {
		t.Errorf("by variable: %d: %s", code, cmd.err.String())
	}
	cmd = newCommand(t)
	cmd.setenv("FAIRLEAD_API=/nonexistent")
	if code := cmd.run("members", "--api", socket); code != 0 {
		t.Errorf("by flag: %d: %s", code, cmd.err.String())
	}
}

func TestDevIsFoundAndNamed(t *testing.T) {
	if _, err := os.Lstat(defaultSocket); err == nil {
		t.Skipf("an agent of this host is at %s", defaultSocket)
	}
	cmd := newCommand(t)
	if code := cmd.run("members"); code != 1 || !strings.Contains(cmd.err.String(), "no agent answers at "+defaultSocket) {
		t.Errorf("without any agent: %d: %s", code, cmd.err.String())
	}
	cmd = newCommand(t)
	dir := devDir(cmd.Env)
	if err := os.MkdirAll(filepath.Join(dir, "n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code := cmd.run("members"); code != 1 || !strings.Contains(cmd.err.String(), defaultSocket) {
		t.Errorf("with what dev left: %d: %s", code, cmd.err.String())
	}
	socket := serveFakeAt(t, devSocket(dir))
	cmd.err = transcript.Buffer{}
	if code := cmd.run("members"); code != 0 || !strings.Contains(cmd.err.String(), socket) || !strings.Contains(cmd.err.String(), "fairlead dev") {
		t.Errorf("with dev: %d: %s", code, cmd.err.String())
	}

	// In a directory that others may write, the socket may be anybody's.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if code := cmd.run("members"); code != 1 {
		t.Errorf("a directory open to all was trusted: exit code %d", code)
	}
}

func TestDevDirWithoutXDG(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp")
	for _, value := range []string{"", "relative"} {
		dir := devDir(Env{Environ: []string{"XDG_RUNTIME_DIR=/x", "XDG_RUNTIME_DIR=" + value}})
		if filepath.Dir(dir) != "/var/tmp" || !strings.Contains(filepath.Base(dir), "fairlead-dev-") {
			t.Errorf("XDG_RUNTIME_DIR=%q: %s", value, dir)
		}
	}
	t.Setenv("TMPDIR", "/var/tmp/of-which-the-name-is-long/of-which-the-name-is-long")
	if dir := devDir(Env{}); filepath.Dir(dir) != "/tmp" {
		t.Errorf("below a long TMPDIR: %s", dir)
	}
}
