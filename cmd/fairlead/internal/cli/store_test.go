package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/server"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/short"
)

// keeper is a server of a store in memory, and an agent's API before it.
type keeper struct {
	t *testing.T
	*server.Server
	fail        atomic.Pointer[error] // what writes and reads are refused with
	raft        api.Raft
	socket, tcp string
	stop        func()
}

// Propose, Read, Header and Status make it an etcd.Store.
func (k *keeper) Propose(ctx context.Context, c store.Command) (store.Result, error) {
	if err := k.fail.Load(); err != nil {
		return store.Result{}, *err
	}
	return k.Server.Propose(ctx, c)
}

func (k *keeper) Read(ctx context.Context) (*store.View, error) {
	if err := k.fail.Load(); err != nil {
		return nil, *err
	}
	return k.Server.Read(ctx)
}

func (k *keeper) Header() etcd.Header {
	return etcd.Header{ClusterID: k.Identity().Cluster, MemberID: k.Identity().Server, Term: k.State().Term, Leader: k.State().Leader}
}

func (k *keeper) Status() etcd.Status { return etcd.Status{} }

// newKeeper opens a store that elected itself and wrote what servers write.
func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{t: t, stop: func() {}}
	k.open()
	t.Cleanup(func() { k.stop(); k.Close(context.Background()) })
	k.socket = filepath.Join(short.Dir(t), "api.sock")
	k.serve()
	return k
}

// open begins a new store.
func (k *keeper) open() {
	k.t.Helper()
	s, err := server.Open(server.Config{
		Cluster: "test", Node: "n1", HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.Server = s
	await.For(k.t, "a leader and the record of this server", func() bool { return s.View().Stats(store.System).Revision >= 3 })
}

// serve answers at the socket, and at a port of TCP.
func (k *keeper) serve() {
	k.t.Helper()
	socket, err := api.ListenUnix(k.socket)
	if err != nil {
		k.t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		k.t.Fatal(err)
	}
	k.tcp = tcp.Addr().String()
	front := etcd.NewFront("it is not open yet")
	served := etcd.New(etcd.Config{Store: k, MinLease: time.Second, Log: slog.New(slog.DiscardHandler)})
	front.Set(served)
	a := fakeAgent{}
	s := api.NewServer(api.Backend{Identity: a, Members: a, Events: a, Settings: a, Raft: k.raft, Store: front}, slog.New(slog.DiscardHandler))
	s.Serve(socket, api.AccessAll)
	s.Serve(tcp, api.AccessRead)
	told := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(told)
		for ctx.Err() == nil {
			changed := k.Changed()
			served.Applied()
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	k.stop = func() {
		cancel()
		<-told
		done, now := context.WithCancel(context.Background())
		now()
		s.Stop(done)
	}
}

// do runs a command at the socket and returns its code and what it printed.
func (k *keeper) do(stdin string, args ...string) (code int, out, err string) {
	k.t.Helper()
	cmd := newCommand(k.t)
	cmd.Stdin = strings.NewReader(stdin)
	code = cmd.run(append([]string{"--api", k.socket}, args...)...)
	return code, cmd.out.String(), cmd.err.String()
}

// must runs a command that succeeds.
func (k *keeper) must(args ...string) string {
	k.t.Helper()
	code, out, err := k.do("", args...)
	if code != 0 {
		k.t.Fatalf("%q: exit code %d: %s", args, code, err)
	}
	return strings.TrimSuffix(out, "\n")
}

// steady replaces what is drawn at random.
func steady(text string) string {
	for pattern, by := range map[string]string{
		`("(?:cluster_id|member_id|raft_term)"):\d+`: `$1:N`,
		`\b[0-9a-f]{14,16}\b`:                        `HEX`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// words splits a line of a test at blanks; "" is an empty word, _ a blank in one.
func words(line string) []string {
	var out []string
	for _, w := range strings.Fields(line) {
		if w == `""` {
			w = ""
		}
		out = append(out, strings.ReplaceAll(w, "_", " "))
	}
	return out
}

// The forms that scripts and people rely on, byte for byte, in one session.
func TestKVSession(t *testing.T) {
	k := newKeeper(t)
	var session strings.Builder
	for _, step := range []struct{ args, stdin string }{
		{args: "kv get a"},
		{args: "kv get a -o json"},
		{args: "kv put a 1"},
		{args: "kv put a 2 --prev-kv"},
		{args: "kv put b two_words -o json"},
		{args: "kv put b 3 --prev-kv -o json"},
		{args: "kv put bb", stdin: "two\nlines"},
		{args: "kv put c -", stdin: "of standard input"},
		{args: "kv put -- dash -5"},
		{args: "kv get a"},
		{args: "kv get a -o json"},
		{args: "kv get a c"},
		{args: "kv get a c -o json"},
		{args: "kv get a --keys-only"},
		{args: "kv get b --prefix"},
		{args: "kv get nothing --prefix"},
		{args: "kv get c --from-key --keys-only"},
		{args: `kv get "" --prefix --count`},
		{args: `kv get "" --prefix --limit 2 --sort-by mod --descending --keys-only`},
		{args: "kv get a --rev 2 --serializable"},
		{args: "kv put a 9 --if-absent"},
		{args: "kv put new 9 --if-absent"},
		{args: "kv put a 9 --if-version 1"},
		{args: "kv put a 9 --if-version 1 -o json"},
		{args: "kv put nothing 9 --if-rev 1"},
		{args: "kv put a 3 --if-version 2 --prev-kv"},
		{args: "kv put a 4 --if-rev 10 -o json"},
		{args: "kv txn", stdin: "version(\"a\") = 4\n\nput a 5 --prev-kv\nget a c\nget \"\" --prefix --count\ndel new --prev-kv\n\ndel a\n"},
		{args: "kv txn -o json", stdin: "version(\"a\") = 4\n\ndel a\n\nput x 1\nget x\ndel y"},
		{args: "kv del b"},
		{args: "kv del b"},
		{args: "kv del c --prev-kv"},
		{args: "kv del d --prefix --prev-kv -o json"},
		{args: `kv watch "" --prefix --rev 2 -n 5`},
		{args: `kv watch a --rev 3 -n 1 --prev-kv`},
		{args: `kv watch a --rev 3 -n 1 --prev-kv -o json`},
		{args: `kv watch b c --rev 12 -n 1 -o json`},
		{args: "kv compact 4"},
		{args: "kv compact 5 -o json"},
		{args: "kv get a --rev 4"},
		{args: "kv watch a --rev 4"},
		{args: "kv alarm list"},
		{args: "kv alarm disarm -o json"},
		{args: "kv lease list"},
		{args: "kv lease list -o json"},
		{args: "kv lease grant 60s"},
		{args: "kv lease grant 60 -o json"},
		{args: "kv get leader --system --keys-only"},
		{args: `kv del "" --from-key`},
		{args: `kv get "" --prefix --count`},
		{args: `kv get "" --prefix --keys-only --system`},
	} {
		code, out, err := k.do(step.stdin, words(step.args)...)
		fmt.Fprintf(&session, "$ fairlead %s\n%s%s[%d]\n", step.args, out, err, code)
	}
	golden(t, "kv.txt", steady(session.String()))
}

// Whatever the bytes are, they come back, and a terminal is not steered by them.
func TestKVIsBinarySafe(t *testing.T) {
	k := newKeeper(t)
	const value = "\x00\xff\x1b[2J\r\n"
	if code, _, err := k.do(value, "kv", "put", "a\x1b\xff"); code != 0 {
		t.Fatal(err)
	}
	for _, c := range []struct {
		terminal bool
		args     string
		want     string
	}{
		{false, "a\x1b\xff", value + "\n"},
		{false, "a --prefix", "a\x1b\xff\n" + value + "\n"},
		{true, "a\x1b\xff", `"\x00\xff\x1b[2J\r\n"` + "\n"},
		{true, "a --prefix", `"a\x1b\xff"` + "\n" + `"\x00\xff\x1b[2J\r\n"` + "\n"},
		{true, "a --prefix -o json", `"value":"AP8bWzJKDQo="`},
	} {
		cmd := newCommand(t)
		cmd.Terminal = c.terminal
		code := cmd.run(append([]string{"kv", "get", "--api", k.socket}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.Contains(cmd.out.String(), c.want) || !strings.Contains(c.args, "json") && cmd.out.String() != c.want {
			t.Errorf("%q on a terminal %v: exit code %d, %q, want %q: %s", c.args, c.terminal, code, cmd.out.String(), c.want, cmd.err.String())
		}
	}
}

// Each refusal is one line that says what is wrong.
func TestKVRefuses(t *testing.T) {
	k := newKeeper(t)
	k.must("kv", "put", "a", "1")
	large := strings.Repeat("x", maxInput+1)
	file := writeFile(t, "version(\"a\") = 1\n\nput b 2\n")
	if got := k.must("kv", "txn", "-f", file); got != "SUCCESS\n\nOK" {
		t.Errorf("txn of a file: %q", got)
	}
	const usage, failed = ExitUsage, ExitFailed
	for _, c := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{"kv gett a", "", usage, `unknown command "gett", did you mean "get"?`},
		{"kv get", "", usage, "get wants KEY [RANGE_END], got 0 words"},
		{"kv get a b c", "", usage, "got 3 words"},
		{`kv get ""`, "", usage, `the key is empty: all keys are "" --prefix`},
		{"kv get b a", "", usage, "the range ends before it begins"},
		{"kv get a b --prefix", "", usage, "give one of --prefix, --from-key and a range end"},
		{"kv get a --limit many", "", usage, `--limit is "many": want a whole number`},
		{"kv get a --limit -1", "", usage, "--limit is -1"},
		{"kv get a --sort-by size", "", usage, `--sort-by is "size": want key, version, create, mod, value`},
		{"kv get a --perfix", "", usage, "did you mean --prefix?"},
		{"kv get a --rev 99", "", failed, "kv get: the revision is still to come"},
		{"kv get nothing", "", failed, "there is no key nothing"},
		{"kv put", "", usage, "fairlead kv put wants KEY"},
		{"kv put a b c", "", usage, `takes no argument after KEY, got "b"`},
		{`kv put "" b`, "", usage, "the key is empty"},
		{"kv put a b --lease xyz", "", usage, `"xyz" is no id of a lease`},
		{"kv put a b --lease 99", "", failed, "kv put: the lease is not there"},
		{"kv put a b --if-version -1", "", usage, "--if-version is -1"},
		{"kv put a b --if-rev -1", "", usage, "--if-rev is -1"},
		{"kv put a b --if-rev 1 --if-absent", "", usage, "give one of --if-absent, --if-version and --if-rev"},
		{"kv put a", large, failed, "standard input has more than 1.5 MiB"},
		{"kv put a", large[:maxInput], failed, "kv put: the request is larger than 1.5 MiB"},
		{"kv del", "", usage, "fairlead kv del wants KEY"},
		{"kv del a b", "", usage, `takes one KEY, got "b", too: a range is --range-end`},
		{"kv del b --range-end a", "", usage, "the range ends before it begins"},
		{"kv watch", "", usage, "watch wants KEY [RANGE_END]"},
		{"kv watch a b c", "", usage, "watch wants KEY [RANGE_END]"},
		{"kv watch a --rev -1", "", usage, "--rev is -1"},
		{"kv txn extra", "", usage, "takes no arguments"},
		{"kv txn", "", failed, "the transaction: the transaction is empty"},
		{"kv txn", "\nput a", failed, "the transaction: line 2: put wants KEY and VALUE"},
		{"kv txn", "\nput a 1\ndel a", failed, "kv txn: the transaction writes a key twice"},
		{"kv txn", "\n" + strings.Repeat("get a\n", 129), failed, "128 operations at most"},
		{"kv txn -f /nonexistent", "", failed, "/nonexistent: no such file"},
		{"kv compact", "", usage, "fairlead kv compact wants REVISION"},
		{"kv compact now", "", usage, `REVISION is "now"`},
		{"kv compact 99", "", failed, "kv compact: the revision is still to come"},
		{"kv alarm", "", ExitOK, ""},
		{"kv lease grant soon", "", usage, `TIME is "soon": want whole seconds`},
		{"kv lease grant 1500ms", "", usage, "want whole seconds"},
		{"kv lease grant 9000000001", "", failed, "kv lease grant: the time of the lease is too long"},
		{"kv lease revoke", "", usage, "fairlead kv lease revoke wants ID"},
		{"kv lease revoke xyz", "", usage, "is no id of a lease"},
		{"kv lease revoke 99", "", failed, "kv lease revoke: the lease is not there"},
		{"kv lease ttl 99", "", failed, "there is no lease 99"},
		{"kv lease keep-alive 99", "", failed, "there is no lease 99"},
		{"kv get a --api 127.0.0.1:1", "", failed, "no agent answers at 127.0.0.1:1"},
		{"kv get a --api /nonexistent/api.sock", "", failed, "no agent answers at /nonexistent/api.sock: is it running?"},
		{"kv watch a --api 127.0.0.1:1", "", failed, "no agent answers at 127.0.0.1:1"},
		{"kv get a --system --api " + k.tcp, "", failed, "kv get: not allowed at " + k.tcp + ": the system's keyspace is reached by the agent's Unix socket only"},
		{"kv put a b --system --api " + k.tcp, "", failed, "not allowed"},
		{"kv watch a --system --api " + k.tcp, "", failed, "not allowed"},
		{`kv del "" --from-key --system --api ` + k.tcp, "", failed, "not allowed"},
	} {
		code, out, err := k.do(c.stdin, words(c.args)...)
		if code != c.code || !strings.Contains(err, c.want) || code != ExitOK && out != "" {
			t.Errorf("%s: exit code %d, want %d; stdout %q; stderr %q, want %q", c.args, code, c.code, out, err, c.want)
		}
		if lines := strings.Count(err, "\n"); code == failed && lines != 1 {
			t.Errorf("%s: %d lines say what is wrong:\n%s", c.args, lines, err)
		}
	}
}

// What the store is refused by others is said with what to do about it.
func TestKVOfAStoreThatRefuses(t *testing.T) {
	k := newKeeper(t)
	for want, fail := range map[string]error{
		"kv put: the servers have no leader now":                   raft.ErrNotLeader,
		"kv put: the store is full, so nothing is written":         store.ErrNoSpace,
		"kv put: the servers gave no answer in time, so it is not": context.DeadlineExceeded,
		"kv put: something else":                                   errors.New("something else"),
	} {
		k.fail.Store(&fail)
		if code, _, err := k.do("", "kv", "put", "a", "1"); code != ExitFailed || !strings.Contains(err, want) {
			t.Errorf("%v: exit code %d, %q, want %q", fail, code, err, want)
		}
	}
	// A read did nothing that could be in doubt.
	late := error(context.DeadlineExceeded)
	k.fail.Store(&late)
	if code, _, err := k.do("", "kv", "get", "a"); code != ExitFailed || !strings.Contains(err, "kv get: the servers gave no answer in time") || strings.Contains(err, "read before") {
		t.Errorf("exit code %d, %q", code, err)
	}
	k.fail.Store(nil)

	// An agent whose store is not there says why.
	socket := serveFake(t)
	cmd := newCommand(t)
	if code := cmd.run("kv", "get", "a", "--api", socket); code != ExitFailed || !strings.Contains(cmd.err.String(), "kv get: no store answers here: this agent has none") {
		t.Errorf("exit code %d: %q", code, cmd.err.String())
	}
}

// A watch goes on where it was over lost connections, and shows nothing twice.
func TestWatchResumes(t *testing.T) {
	k := newKeeper(t)
	k.must("kv", "put", "a", "0")
	cmd := newCommand(t)
	cmd.start("kv", "watch", "a", "--rev", "2", "--api", k.socket)
	cmd.waitOutput(t, "2       PUT     a  0\n")
	for round := range 2 {
		k.stop()
		cmd.waitOutput(t, fmt.Sprintf("the watch was cut off, trying again from revision %d: kv watch: ", 3+round))
		value := fmt.Sprint(1 + round)
		r, err := k.Propose(t.Context(), store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: "a", Value: []byte(value)}}})
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		k.serve()
		cmd.waitOutput(t, fmt.Sprintf("%d       PUT     a  %s\n", 3+round, value))
	}
	cmd.signals <- os.Interrupt
	if code := cmd.wait(t); code != ExitOK {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
	if n := strings.Count(cmd.err.String(), "was cut off"); n != 2 {
		t.Errorf("cut off %d times, and twice by the agent:\n%s", n, cmd.err.String())
	}
	if want := "2       PUT     a  0\n3       PUT     a  1\n4       PUT     a  2\n"; cmd.out.String() != want {
		t.Errorf("shown:\n%swant:\n%s", cmd.out.String(), want)
	}
}

// History that went meanwhile, or is another's, is not passed over.
func TestWatchThatCannotGoOn(t *testing.T) {
	for want, meanwhile := range map[string]func(*testing.T, *keeper){
		"revision 3 is compacted, the history begins at 5": func(t *testing.T, k *keeper) {
			for range 3 {
				put(t, k, "a")
			}
			if r, err := k.Propose(t.Context(), store.Command{Space: store.User, Compact: &store.Compact{Revision: 5}}); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
		},
		"another store answers than the one that was watched up to revision 2": func(t *testing.T, k *keeper) {
			k.Close(t.Context())
			k.open()
		},
	} {
		k := newKeeper(t)
		put(t, k, "a")
		cmd := newCommand(t)
		cmd.start("kv", "watch", "a", "--rev", "2", "--api", k.socket)
		cmd.waitOutput(t, "PUT")
		k.stop()
		meanwhile(t, k)
		k.serve()
		if code := cmd.wait(t); code != ExitFailed || !strings.Contains(cmd.err.String(), want) {
			t.Errorf("exit code %d, want %q:\n%s", code, want, cmd.err.String())
		}
	}
}

func put(t *testing.T, k *keeper, key string) {
	t.Helper()
	r, err := k.Propose(t.Context(), store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: key}}})
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// From now on means from the answer on: what is put after it is seen.
func TestWatchFromNowOn(t *testing.T) {
	k := newKeeper(t)
	put(t, k, "a")
	cmd := newCommand(t)
	cmd.start("kv", "watch", "", "--prefix", "-n", "1", "--api", k.socket)
	// There is no word of a watch that began: put until one is seen.
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case code := <-cmd.code:
			if code != ExitOK || strings.HasPrefix(cmd.out.String(), "2 ") || !strings.Contains(cmd.out.String(), `PUT     b  ""`) {
				t.Errorf("exit code %d: %s%s", code, cmd.out.String(), cmd.err.String())
			}
			return
		case <-ticker.C:
			put(t, k, "b")
		}
	}
}

// A lease holds while it is kept, over a lost connection too, and its keys end with it.
func TestLeaseKeepAlive(t *testing.T) {
	k := newKeeper(t)
	id := k.must("kv", "lease", "grant", "30s") // longer than any pause of this test
	k.must("kv", "put", "a", "1", "--lease", id)
	if got := k.must("kv", "lease", "ttl", id, "--keys"); !strings.HasSuffix(got, "s of 30s are left\na") {
		t.Errorf("ttl: %q", got)
	}
	if got := k.must("kv", "lease", "list"); got != id {
		t.Errorf("list: %q", got)
	}
	if got := k.must("kv", "lease", "keep-alive", "--once", id); got != "renewed "+id+" for 30s" {
		t.Errorf("once: %q", got)
	}
	cmd := newCommand(t)
	cmd.start("kv", "lease", "keep-alive", id, "--api", k.socket)
	cmd.waitOutput(t, "renewed")
	k.stop()
	cmd.waitOutput(t, "trying again")
	k.serve()
	renewed := strings.Count(cmd.out.String(), "renewed")
	await.For(t, "another renewal", func() bool { return strings.Count(cmd.out.String(), "renewed") > renewed })
	cmd.signals <- os.Interrupt
	if code := cmd.wait(t); code != ExitOK {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
	if got := k.must("kv", "lease", "revoke", id); got != "revoked "+id {
		t.Errorf("revoke: %q", got)
	}
	if code, _, _ := k.do("", "kv", "get", "a"); code != ExitFailed {
		t.Error("the key outlived its lease")
	}
}
