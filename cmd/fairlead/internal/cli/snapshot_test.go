package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/server"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/short"
)

// filled is a store with keys, history and a lease in both sets of keys.
func filled(t *testing.T) *keeper {
	t.Helper()
	k := newKeeper(t)
	for i := range 5 {
		k.must("kv", "put", fmt.Sprintf("key/%d", i), "a value")
	}
	id := k.must("kv", "lease", "grant", "10m")
	k.must("kv", "put", "key/0", "another", "--lease", id)
	k.must("kv", "del", "key/4")
	k.must("kv", "compact", "4")
	k.must("kv", "put", "extra", "1", "--system")
	return k
}

// steadySnapshot replaces what differs from one backup to the next.
func steadySnapshot(text, dir string) string {
	return regexp.MustCompile(`/\S*/api\.sock|127\.0\.0\.1:\d+`).ReplaceAllString(strings.NewReplacer(dir, "DIR").Replace(steady(text)), "API")
}

func TestSnapshot(t *testing.T) {
	k := filled(t)
	dir := t.TempDir()
	file, data := filepath.Join(dir, "all.snap"), filepath.Join(dir, "data")
	var session strings.Builder
	run := func(args ...string) {
		code, out, err := k.do("", args...)
		fmt.Fprintf(&session, "$ fairlead %s\n%s%s[%d]\n", strings.Join(args, " "), out, err, code)
	}
	run("snapshot", "save", file)
	run("snapshot", "inspect", file)
	run("snapshot", "inspect", file, "-o", "json")
	run("snapshot", "save", filepath.Join(dir, "user.snap"), "--api", k.tcp)
	run("snapshot", "inspect", filepath.Join(dir, "user.snap"))
	run("snapshot", "restore", file, "--node.data_dir", data, "--node.name", "n1")
	k.stop()
	k.stop = func() {}
	run("snapshot", "restore", file, "--node.data_dir", data, "--node.name", "n1")
	run("snapshot", "restore", file, "--node.data_dir", data, "--node.name", "n1")
	golden(t, "snapshot.txt", sizes(steadySnapshot(session.String(), dir)))

	if mode := must(os.Stat(file)).Mode(); mode.Perm() != 0o600 {
		t.Errorf("mode %v: a backup may hold secrets", mode)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	// The server that was restored has it, and is another group.
	s, err := server.Open(server.Config{
		Cluster: "fairlead", Node: "n1", Dir: data, HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	v, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: "key/0"}})
	if err != nil || len(found.KVs) != 1 || string(found.KVs[0].Value) != "another" || found.KVs[0].Lease == 0 {
		t.Errorf("%v, %v", found, err)
	}
	if s.Identity().Cluster == k.Identity().Cluster {
		t.Error("the restored group has the id of the old one")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// sizes replaces what differs from one run to the next: hashes of files, how far the
// log was, and the system's keys, which an election more writes another version of.
func sizes(text string) string {
	for pattern, by := range map[string]string{
		`(sha256(?:  |":"))[0-9a-f]{64}`: `${1}HASH`,
		`entry   \d+ of term \d+`:        `entry   N of term N`,
		`"index":\d+,"term":\d+`:         `"index":N,"term":N`,
		`(?m)^(saved .*), [0-9.]+ \w+$`:  `${1}, SIZE`,
		`(?m)^size .*`:                   `size    SIZE`,
		`"bytes":\d+,"sha256"`:           `"bytes":N,"sha256"`,
		`(?m)^system .*`:                 `system  …`,
		`\{"name":"system",[^}]*\}`:      `{"name":"system",…}`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// A backup that is not whole is said to be so, wherever it is cut or altered.
func TestSnapshotInspectTellsDamage(t *testing.T) {
	k := filled(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "all.snap")
	k.must("snapshot", "save", file)
	whole := must(os.ReadFile(file))
	altered := func(at int) []byte {
		out := bytes.Clone(whole)
		out[at] ^= 1
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":       {nil, "this is no backup: it has 0 bytes"},
		"text":        {[]byte(strings.Repeat("no backup at all ", 100)), "does not begin with FLBACKUP"},
		"cut":         {whole[:len(whole)-1], "the backup's hash does not fit: it is cut off or altered"},
		"cut short":   {whole[:100], "cut off or altered"},
		"longer":      {append(bytes.Clone(whole), 0), "cut off or altered"},
		"head":        {altered(9), "cut off or altered"},
		"middle":      {altered(len(whole) / 2), "cut off or altered"},
		"hash":        {altered(len(whole) - 1), "cut off or altered"},
		"another one": {altered(0), "does not begin with FLBACKUP"},
	} {
		damaged := filepath.Join(dir, "damaged.snap")
		if err := os.WriteFile(damaged, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"snapshot", "inspect", damaged}, {"snapshot", "restore", damaged, "--node.data_dir", filepath.Join(dir, "data"), "--api.socket", "off"}} {
			code, out, err := k.do("", args...)
			if code != ExitFailed || out != "" || !strings.Contains(err, damaged+": ") || !strings.Contains(err, c.want) {
				t.Errorf("%s of %s: exit code %d, %q, %q, want %q", args[1], name, code, out, err, c.want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !os.IsNotExist(err) {
		t.Errorf("a damaged backup began a data directory: %v", err)
	}
}

// A backup that cannot be had leaves what was there, and nothing else.
func TestSnapshotSaveIsAllOrNothing(t *testing.T) {
	k := newKeeper(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "all.snap")
	if err := os.WriteFile(file, []byte("the one before"), 0o600); err != nil {
		t.Fatal(err)
	}
	fail := error(store.ErrNoSpace)
	k.fail.Store(&fail)
	if code, _, err := k.do("", "snapshot", "save", file); code != ExitFailed || !strings.Contains(err, "snapshot save: the store is full") {
		t.Errorf("exit code %d: %s", code, err)
	}
	k.fail.Store(nil)
	for _, c := range []struct{ file, want string }{
		{filepath.Join(dir, "nowhere", "all.snap"), "no such file or directory"},
		{dir, "file exists"},
	} {
		if code, _, err := k.do("", "snapshot", "save", c.file); code != ExitFailed || !strings.Contains(err, c.want) {
			t.Errorf("%s: exit code %d: %s, want %s", c.file, code, err, c.want)
		}
	}
	entries := must(os.ReadDir(dir))
	if got := string(must(os.ReadFile(file))); got != "the one before" || len(entries) != 1 {
		t.Errorf("%q, %v", got, entries)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// One that can be had takes its place.
	k.must("snapshot", "save", file)
	k.must("snapshot", "inspect", file)
}

func TestSnapshotProgressIsForTerminals(t *testing.T) {
	k := newKeeper(t)
	for _, c := range []struct {
		terminal bool
		output   string
		shown    bool
	}{{true, "text", true}, {false, "text", false}, {true, "json", false}} {
		cmd := newCommand(t)
		cmd.Terminal = c.terminal
		code := cmd.run("snapshot", "save", filepath.Join(t.TempDir(), "x"), "--api", k.socket, "-o", c.output)
		if code != 0 || strings.Contains(cmd.err.String(), "100 % of ") != c.shown || strings.Contains(cmd.out.String(), "%") {
			t.Errorf("%+v: exit code %d, %q, %q", c, code, cmd.out.String(), cmd.err.String())
		}
	}
}

// What restore may not harm.
func TestSnapshotRestoreRefuses(t *testing.T) {
	k := filled(t)
	file := filepath.Join(t.TempDir(), "all.snap")
	k.must("snapshot", "save", file)
	data := t.TempDir()
	used := t.TempDir()
	secret := newSecret(t)
	release, err := membership.LockDataDir(used)
	if err != nil {
		t.Fatal(err)
	}
	defer release() //nolint:errcheck // it ends with the test
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"":                                     {ExitUsage, "fairlead snapshot restore wants FILE"},
		file + " two":                          {ExitUsage, `takes no argument after FILE, got "two"`},
		"/nonexistent --node.data_dir " + data: {ExitFailed, "/nonexistent: no such file"},
		file + " --node.data_dir " + data + " --raft.heartbeat soon":    {ExitUsage, "raft.heartbeat"},
		file + " --node.in_memory":                                      {ExitFailed, "node.in_memory is set"},
		file + " --node.data_dir " + data + " --api.socket " + k.socket: {ExitFailed, "an agent answers at " + k.socket + ": stop it first"},
		file + " --api " + k.tcp + " --node.data_dir " + data:           {ExitFailed, "an agent answers at " + k.tcp + ": stop it first"},
		file + " --node.data_dir " + used + " --api.socket off":         {ExitFailed, "is in use by pid"},
		file + " --node.data_dir " + data + " --api.socket off --node.name n9 --raft.peers " + `[{"name":"n1","addr":"127.0.0.1:7401"}]` +
			" --rpc.listen 127.0.0.1:0 --cluster.secret_file " + secret: {ExitFailed, "node.name is n9, which raft.peers does not name: it has n1"},
		file + " --config /nonexistent.yaml": {ExitFailed, "/nonexistent.yaml: cannot read"},
	} {
		cmd := newCommand(t)
		if code := cmd.run(append([]string{"snapshot", "restore"}, strings.Fields(args)...)...); code != c.code || !strings.Contains(cmd.err.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d: %q, want %q", args, code, c.code, cmd.err.String(), c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "raft.json")); !os.IsNotExist(err) {
		t.Errorf("a refused restore began a server: %v", err)
	}
}

// Restored on each of a set, the same file makes one group.
func TestSnapshotRestoreOfASet(t *testing.T) {
	k := filled(t)
	file := filepath.Join(t.TempDir(), "all.snap")
	k.must("snapshot", "save", file)
	secret := newSecret(t)
	groups := map[string]bool{}
	for i, name := range []string{"n1", "n2"} {
		cmd := newCommand(t)
		args := []string{
			"snapshot", "restore", file, "--node.data_dir", t.TempDir(), "--node.name", name, "--api.socket", "off", "--cluster.secret_file", secret,
			"--rpc.listen", "127.0.0.1:0", "--raft.peers", `[{"name": "n1", "addr": "127.0.0.1:7401"}, {"name": "n2", "addr": "127.0.0.2:7401"}]`,
		}
		if code := cmd.run(append(args, "-o", "json")...); code != 0 {
			t.Fatalf("exit code %d: %s", code, cmd.err.String())
		}
		var r restoredJSON
		if err := json.Unmarshal([]byte(cmd.out.String()), &r); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%016x", i+1); r.ID != want || strings.Join(r.Servers, " ") != "n1 n2" || r.Keyspaces[0].Keys != 4 {
			t.Errorf("%+v, want server %s", r, want)
		}
		groups[r.Cluster] = true
		// The text says what is left to do.
		args[4] = t.TempDir()
		text := newCommand(t)
		if code := text.run(args...); code != 0 || !strings.Contains(text.out.String(), "restore the same file on "+[]string{"n2", "n1"}[i]+", then start all") {
			t.Errorf("exit code %d: %s%s", code, text.out.String(), text.err.String())
		}
	}
	if len(groups) != 1 {
		t.Errorf("groups %v", groups)
	}
}

// Ctrl-C ends a save, and leaves nothing.
func TestSnapshotSaveInterrupted(t *testing.T) {
	// An agent that does not answer: the call waits.
	stuck := filepath.Join(short.Dir(t), "api.sock")
	defer must(net.Listen("unix", stuck)).Close()
	dir := t.TempDir()
	cmd := newCommand(t)
	cmd.start("snapshot", "save", filepath.Join(dir, "x"), "--api", stuck)
	await.For(t, "a file that is written", func() bool { return len(must(os.ReadDir(dir))) == 1 })
	cmd.signals <- syscall.SIGINT
	if code := cmd.wait(t); code != ExitFailed || !strings.Contains(cmd.err.String(), "snapshot save: interrupted, nothing was saved") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
	if entries := must(os.ReadDir(dir)); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func newSecret(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	cmd := newCommand(t)
	if code := cmd.run("keygen", "--out", file); code != 0 {
		t.Fatal(cmd.err.String())
	}
	return file
}
