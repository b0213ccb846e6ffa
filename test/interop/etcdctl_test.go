package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// lines are commands of etcdctl, one after the other, that are answered alike.
// "<" begins what is typed into the command.
const lines = `
put x 1
get x
put y hello
put x 2
get x -w json
get --prefix ""
get x --rev=2
get x y --order=DESCEND --sort-by=MODIFY
get "" --from-key --keys-only
get a --limit=1 --from-key
get nothing
put x 3 --prev-kv
put x --ignore-value
put z --ignore-value
put x 4 --ignore-lease
put y v --lease=1234
del y --prev-kv
del y
txn < mod("x") > "0"\n\nput r yes\nget r\n\nput r no\n\n
txn < value("r") = "no"\n\nput r again\n\ndel r\nget x\n\n
txn < version("new") = "0"\ncreate("new") = "0"\n\nput new 1\nput x 5\n\n\n
txn < \n\nput d 1\nput d 2\n\n\n
get "" --prefix -w json
compaction 5
get x --rev=4
compaction 5
compaction 999
get x --rev=999
lease revoke 1234
lease timetolive 1234
lease keep-alive --once 1234
alarm list
del "" --from-key
get "" --from-key
endpoint health
put "" v
get ""
`

// TestEtcdctl runs the same script on Fairlead and on etcd.
func TestEtcdctl(t *testing.T) {
	ours, theirs := fairlead(t), peer(t)
	ready(t, theirs)
	ready(t, ours)
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		line = strings.TrimSuffix(line, "\n")
		command, typed, _ := strings.Cut(line, " < ")
		args := fields(command)
		typed = strings.ReplaceAll(typed, `\n`, "\n")
		a, b := alike(etcdctl(t, ours, typed, args...), ours), alike(etcdctl(t, theirs, typed, args...), theirs)
		if a != b {
			t.Errorf("etcdctl %s\nsays of Fairlead\n%s\nand of etcd\n%s", line, a, b)
		}
	}
}

// ready waits until an endpoint answers.
func ready(t *testing.T, endpoint string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(etcdctl(t, endpoint, "", "endpoint", "health"), "is healthy") {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer", endpoint)
		}
	}
}

// fields splits a line at spaces; "" is an empty argument.
func fields(line string) []string {
	out := strings.Fields(line)
	for i := range out {
		if out[i] == `""` {
			out[i] = ""
		}
	}
	return out
}

// alike replaces what differs between any two clusters.
func alike(text, endpoint string) string {
	text = strings.ReplaceAll(text, endpoint, "ENDPOINT")
	for pattern, by := range map[string]string{
		`"cluster_id":\d+`: `"cluster_id":C`, `"member_id":\d+`: `"member_id":M`, `"raft_term":\d+`: `"raft_term":T`,
		`took = [^\s]+`: "took = T", `"ts":"[^"]*"`: `"ts":T`, `"target":"[^"]*"`: `"target":E`, `endpoint://client-[^/]*/`: "endpoint://client/",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// TestEtcdctlLease follows a lease from its beginning to its end.
func TestEtcdctlLease(t *testing.T) {
	for name, endpoint := range map[string]string{"fairlead": fairlead(t), "etcd": peer(t)} {
		t.Run(name, func(t *testing.T) {
			ready(t, endpoint)
			granted := etcdctl(t, endpoint, "", "lease", "grant", "5")
			m := regexp.MustCompile(`lease ([0-9a-f]+) granted with TTL\(5s\)`).FindStringSubmatch(granted)
			if m == nil {
				t.Fatal(granted)
			}
			for _, c := range [][2]string{
				{"put leased v --lease=" + m[1], "OK\n"},
				{"lease timetolive " + m[1] + " --keys", "attached keys([leased])"},
				{"lease keep-alive --once " + m[1], "keepalived with TTL(5)"},
				{"lease list", m[1]},
				{"lease revoke " + m[1], "revoked"},
				{"lease timetolive " + m[1], "already expired"},
				{"get leased", ""},
			} {
				if got := etcdctl(t, endpoint, "", fields(c[0])...); !strings.Contains(got, c[1]) || c[1] == "" && got != "" {
					t.Errorf("etcdctl %s: %s", c[0], got)
				}
			}
		})
	}
}

// TestEtcdctlMaintenance looks at what is about the server itself.
func TestEtcdctlMaintenance(t *testing.T) {
	endpoint := fairlead(t)
	ready(t, endpoint)
	etcdctl(t, endpoint, "", "put", "x", "1")
	backup := filepath.Join(t.TempDir(), "backup")
	for _, c := range [][2]string{
		{"member list", "1, started, n1, http://127.0.0.1:7401, http://" + endpoint},
		{"endpoint status", endpoint + ", 1, "},
		{"endpoint hashkv", endpoint + ", "},
		{"snapshot save " + backup, "Snapshot saved at " + backup},
		{"move-leader 7", "etcdserver: bad leader transferee"},
		{"defrag", "Finished defragmenting"},
		{"member add x --peer-urls=http://127.0.0.1:1", "Unimplemented"},
		{"user list", "Unimplemented"},
	} {
		if got := etcdctl(t, endpoint, "", fields(c[0])...); !strings.Contains(got, c[1]) {
			t.Errorf("etcdctl %s: %s", c[0], got)
		}
	}
	if info, err := os.Stat(backup); err != nil || info.Size()%512 != 32 {
		t.Error(fmt.Sprint(info), err)
	}
}

// TestEtcdctlWatch reads what a watch prints of the past and of what comes.
func TestEtcdctlWatch(t *testing.T) {
	endpoint := fairlead(t)
	ready(t, endpoint)
	etcdctl(t, endpoint, "", "put", "x", "1")
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("etcdctl is not installed: Debian package etcd-client")
	}
	cmd := exec.CommandContext(t.Context(), path, "--endpoints", endpoint, "watch", "x", "--rev=2", "--prev-kv")
	cmd.Env = []string{"ETCDCTL_API=3"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	printed := bufio.NewScanner(out)
	want := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !printed.Scan() || printed.Text() != line {
				t.Fatalf("%q, want %q", printed.Text(), line)
			}
		}
	}
	want("PUT", "x", "1")
	etcdctl(t, endpoint, "", "put", "x", "2")
	want("PUT", "x", "1", "x", "2")
	etcdctl(t, endpoint, "", "del", "x")
	want("DELETE", "x", "2", "x", "")
}
