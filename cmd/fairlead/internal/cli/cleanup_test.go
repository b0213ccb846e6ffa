package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/short"
)

// wreck is a host on which an agent and its data planes left something.
type wreck struct {
	t   *testing.T
	dir string // of plugins, with what they program, and of the agent's files
	own string // instance id of the agent
}

// newWreck installs plugins of which each has one service of the agent's, and one of
// another. Their names are these tests' alone: whatever runs on the host under one of
// them may use what it has.
func newWreck(t *testing.T, own string, names ...string) *wreck {
	t.Helper()
	w := &wreck{t: t, dir: short.Dir(t), own: own}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := runnable.Copy(exe, w.path(handshake.FilePrefix+name)); err != nil {
			t.Fatal(err)
		}
		for _, instance := range []string{own, "other"} {
			w.object(name, instance)
		}
	}
	w.write("data/node.json", fmt.Sprintf(`{"id": %q, "epoch": 3}`, own), 0o600)
	w.write("data/plugins/dataplane-choice.json", "{}", 0o600)
	w.write("data/plugins/owned.json", fmt.Sprintf(`[{"name": "neat", "instance": %q}]`, own), 0o600)
	w.write("data/plugins/neat/cache", "x", 0o600)
	w.write("api.plugins/.lock", "", 0o600)
	w.write("api.plugins/neat.sock", "", 0o600)
	w.write("api.plugins/neat.log", "", 0o600)
	w.write("api.plugins/.s-0badcafe/plugin1", "", 0o600)
	w.write("api.plugins/mine.txt", "not Fairlead's", 0o600)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: w.path("api.sock")}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wreck) path(name string) string { return filepath.Join(w.dir, name) }

func (w *wreck) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
}

// object puts one service of an instance into what a plugin programs.
func (w *wreck) object(plugin, instance string) {
	w.t.Helper()
	w.write("kernel-"+plugin+"/"+instance+"/service.default%2Fweb", "x", 0o600)
}

// left lists what is there, relative to the directory, but for the plugins.
func (w *wreck) left() []string {
	w.t.Helper()
	var out []string
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), handshake.FilePrefix) {
			rel, _ := filepath.Rel(w.dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// cleanup runs the command and returns its exit code and what it found, as
// "PLUGIN RESULT MESSAGE" of objects of plugins and "- RESULT BASENAME" of others.
func (w *wreck) cleanup(args ...string) (code int, found []string, said string) {
	w.t.Helper()
	c := newCommand(w.t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + w.dir)
	c.setenv("FAIRLEAD_NODE_DATA_DIR=" + w.path("data"))
	c.setenv("FAIRLEAD_API_SOCKET=" + w.path("api.sock"))
	code = c.run(append([]string{"cleanup", "-o", "json"}, args...)...)
	var out cleanupJSON
	if err := json.Unmarshal([]byte(c.out.String()), &out); err != nil && code != ExitUsage {
		w.t.Fatalf("%v: %s%s", err, c.out.String(), c.err.String())
	}
	for _, i := range out.Items {
		if i.Plugin == "" {
			found = append(found, "- "+i.Result+" "+filepath.Base(i.Object))
			continue
		}
		found = append(found, strings.TrimSpace(i.Plugin+" "+i.Result+" "+i.Message))
	}
	slices.Sort(found)
	return code, found, c.err.String()
}

func (w *wreck) want(got []string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// After a crash all goes that the agent and each plugin left, chosen or not, and
// nothing else does.
func TestCleanup(t *testing.T) {
	w := newWreck(t, "00000000000000a1", "neat", "tidy")
	before := w.left()
	host := []string{"dataplane-choice.json", "owned.json", "neat", "neat.sock", "neat.log", ".s-0badcafe", "api.sock"}
	of := func(result string) (out []string) {
		for _, name := range host {
			out = append(out, "- "+result+" "+name)
		}
		return out
	}
	code, found, said := w.cleanup("--dry-run")
	if code != ExitOK {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, append(of("would-remove"), "neat would-remove", "tidy would-remove", "neat kept of instance other", "tidy kept of instance other")...)
	if after := w.left(); !slices.Equal(before, after) {
		t.Errorf("a dry run left %v of %v", after, before)
	}

	code, found, said = w.cleanup()
	if code != ExitOK {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, append(of("removed"), "neat removed", "tidy removed", "neat kept of instance other", "tidy kept of instance other")...)
	wantLeft := []string{"api.plugins/.lock", "api.plugins/mine.txt", "data/node.json", "kernel-neat/other/service.default%2Fweb", "kernel-tidy/other/service.default%2Fweb"}
	if left := w.left(); !slices.Equal(left, wantLeft) {
		t.Errorf("left are %v", left)
	}

	if err := os.Remove(w.path("api.plugins/mine.txt")); err != nil {
		t.Fatal(err)
	}
	code, found, said = w.cleanup("--all")
	if code != ExitOK {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, "neat removed", "tidy removed")
	if left := w.left(); !slices.Equal(left, []string{"data/node.json"}) {
		t.Errorf("left are %v", left)
	}
	if code, found, said = w.cleanup(); code != ExitOK || len(found) != 0 {
		t.Errorf("with nothing left: code %d, %v: %s", code, found, said)
	}
}

// Without any state it is all that anybody left.
func TestCleanupWithoutState(t *testing.T) {
	w := newWreck(t, "00000000000000a2", "neat")
	if err := os.RemoveAll(w.path("data")); err != nil {
		t.Fatal(err)
	}
	code, _, said := w.cleanup()
	if left := w.left(); code != ExitOK || !slices.Equal(left, []string{"api.plugins/.lock", "api.plugins/mine.txt"}) {
		t.Errorf("code %d, left are %v: %s", code, left, said)
	}
}

// What an agent uses stays, unless it is asked for.
func TestCleanupBesideAnAgent(t *testing.T) {
	w := newWreck(t, "00000000000000a3", "neat")
	lock, err := os.OpenFile(w.path("api.plugins/.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { // as an agent holds it
		t.Fatal(err)
	}
	before := w.left()
	inUse := "neat kept in use by the agent of " + w.path("api.plugins")
	code, found, said := w.cleanup()
	if code != ExitFailed || !strings.Contains(said, "1 objects are in use and stay") || !strings.Contains(said, "--force") {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, inUse, "neat kept of instance other")
	if left := w.left(); !slices.Equal(left, before) {
		t.Errorf("left are %v of %v", left, before)
	}
	code, found, said = w.cleanup("--all")
	if code != ExitFailed {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, inUse, "neat removed")
	code, found, said = w.cleanup("--force")
	if code != ExitOK {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, "neat removed")
	if left := w.left(); !slices.Contains(left, "api.plugins/neat.sock") || !slices.Contains(left, "data/plugins/owned.json") {
		t.Errorf("the agent's own files are gone: %v", left)
	}
}

// A data plane that runs by itself protects what it has in the system; one that
// serves on for an agent that is gone ends.
func TestCleanupBesideADataPlane(t *testing.T) {
	w := newWreck(t, "00000000000000a4", "neat")
	alone := w.serve("alone.sock", "other")
	code, found, said := w.cleanup("--instance", "other")
	if code != ExitFailed {
		t.Errorf("code %d: %s", code, said)
	}
	w.want(found, fmt.Sprintf("neat kept in use by fairlead-dataplane-neat, pid %d", alone), "neat kept of instance "+w.own)

	orphan := w.serve("api.plugins/neat.sock", w.own)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	w.write("api.plugins/neat.json", fmt.Sprintf(`{"name": "neat", "pid": %d, "began": %s, "boot": %q, "socket": %q, "serve": true}`,
		orphan, strings.Fields(rest)[19], strings.TrimSpace(string(boot)), w.path("api.plugins/neat.sock")), 0o600)
	serves := "neat would-remove it serves on for an agent that is gone"
	if _, found, _ = w.cleanup("--dry-run"); !slices.Contains(found, serves) || !slices.Contains(found, "neat would-remove") {
		t.Errorf("a dry run found %v", found)
	}
	if err := syscall.Kill(orphan, 0); err != nil {
		t.Fatalf("a dry run ended it: %v", err)
	}
	if code, found, said = w.cleanup(); code != ExitOK || !slices.Contains(found, "neat removed it serves on for an agent that is gone") || !slices.Contains(found, "neat removed") {
		t.Errorf("code %d, %v: %s", code, found, said)
	}
	await.Until(t, func() string {
		if alive(orphan) {
			return "the end of the process that served on"
		}
		return ""
	})
	if err := syscall.Kill(alone, 0); err != nil {
		t.Errorf("the one that runs by itself was ended: %v", err)
	}
}

// serve runs the plugin neat by itself, configured for an instance, and returns its pid.
func (w *wreck) serve(socket, instance string) int {
	w.t.Helper()
	_ = os.Remove(w.path(socket))
	cmd := exec.Command(w.path(handshake.FilePrefix+"neat"), "--listen", "unix:"+w.path(socket))
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	conn, err := grpc.NewClient("unix:"+w.path(socket), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	_, err = pb.NewDataPlaneProviderClient(conn).Configure(ctx, &pb.ConfigureRequest{InstanceId: instance, RunDir: w.dir, StateDir: w.dir}, grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatal(err)
	}
	return cmd.Process.Pid
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// What cannot clean is said, and keeps the exit code from being 0.
func TestCleanupThatCannot(t *testing.T) {
	w := newWreck(t, "00000000000000a5", "neat")
	w.write(handshake.FilePrefix+"text", "hello", 0o755)
	code, found, said := w.cleanup()
	if code != ExitFailed || !strings.Contains(said, "1 objects are left") {
		t.Errorf("code %d: %s", code, said)
	}
	if !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, "text failed it may not be run, so it cannot clean") }) || !slices.Contains(found, "neat removed") {
		t.Errorf("found %v", found)
	}
	if _, err := os.Stat(w.path("data/plugins/owned.json")); err != nil {
		t.Errorf("what may be left is forgotten: %v", err)
	}
	if code, _, said := w.cleanup("--all", "--instance", "x"); code != ExitUsage {
		t.Errorf("code %d: %s", code, said)
	}
	w.write("data/node.json", "{", 0o600)
	c := newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + w.dir)
	c.setenv("FAIRLEAD_NODE_DATA_DIR=" + w.path("data"))
	if code := c.run("cleanup"); code != ExitFailed || !strings.Contains(c.err.String(), "--instance") {
		t.Errorf("code %d: %s", code, c.err.String())
	}
	if _, err := os.Stat(w.path("kernel-neat/other")); errors.Is(err, os.ErrNotExist) {
		t.Error("it removed what is another's")
	}
}

func TestCleanupForPeople(t *testing.T) {
	w := newWreck(t, "00000000000000a6", "neat")
	c := newCommand(t)
	c.setenv("FAIRLEAD_PLUGIN_DIRS=" + w.dir)
	c.setenv("FAIRLEAD_NODE_DATA_DIR=" + w.path("data"))
	c.setenv("FAIRLEAD_API_SOCKET=" + w.path("api.sock"))
	if code := c.run("cleanup"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	for _, want := range []string{"PLUGIN  OBJECT", "neat    " + w.path("kernel-neat/"+w.own) + "/service.default%2Fweb ", "kept     of instance other", "-       " + w.path("api.sock")} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, c.out.String())
		}
	}
}
