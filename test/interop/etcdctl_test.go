package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
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
put n 4 --ignore-lease
put x 4 --ignore-value
put x 4 --ignore-lease --prev-kv -w json
put y v --lease=1234
del y --prev-kv
del y
put s/1 c
put s/2 b
put s/3 a
put s/2 d
get s/ --prefix --order=ASCEND --sort-by=CREATE
get s/ --prefix --order=DESCEND --sort-by=VERSION
get s/ --prefix --order=ASCEND --sort-by=VALUE
get s/ --prefix --order=DESCEND --sort-by=KEY --limit=2
get s/ --prefix --sort-by=VALUE --limit=1
get s/ --prefix --sort-by=VALUE --order=DESCEND --limit=1 -w json
get s/ --prefix --limit=2 -w json
get s/ --prefix --limit=-1
get s/ --prefix --count-only -w fields
get s/ --prefix --count-only --limit=1 -w json
get s/ --prefix --keys-only -w json
get s/ --prefix --print-value-only
get s/ --prefix --consistency=s
get s/ --prefix --consistency=s --rev=12 -w json
get s/ --prefix --consistency=l
get s/ --prefix -w simple --hex
get s/1 s/3
get s/3 s/1
get s/1 s/1
get s/2 --from-key --keys-only
get s/ --prefix --from-key
get s/ --prefix --order=SIDEWAYS
get s/ --prefix --rev=-1
del s/3 s/1
del s/1 s/1
del s/1 s/3 --prev-kv
del s/ --prefix -w json
txn < mod("x") > "0"\n\nput r yes\nget r\n\nput r no\n\n
txn < value("r") = "no"\n\nput r again\n\ndel r\nget x\n\n
txn < version("new") = "0"\ncreate("new") = "0"\n\nput new 1\nput x 5\n\n\n
txn < ver("x") > "0"\n\nget x --rev=2\nget x --consistency=s\n\n\n
txn < \n\nput d 1\nput d 2\n\n\n
txn < \n\nput d 1\ndel d\n\n\n
txn < \n\ndel d\ndel d --prefix\n\n\n
txn < \n\nget x --rev=999\n\n\n
txn < \n\nput d 1 --lease=77\n\n\n
txn < \n\nput d 1 --prev-kv\nget d\ndel x --prev-kv\n\n\n
txn -w json < value("d") = "1"\n\nput d 2 --prev-kv\nget d\n\n\n
txn -w json < value("d") = "nope"\n\nput d 2 --prev-kv\n\nget d\n\n
txn -i < mod("x") < "0"\n\nput r yes\n\nput r no\n\n
get "" --prefix -w json
compaction 5
get x --rev=4
get x --rev=5
compaction 5
compaction 999
compaction -1
compaction 9 --physical
get x --rev=999
lease grant -1
lease grant 9999999999
lease revoke 1234
lease timetolive 1234
lease keep-alive --once 1234
lease list
alarm list
alarm disarm
del "" --from-key
get "" --from-key
endpoint health
defrag
put "" v
put "" v --prev-kv
get ""
del ""
put big --ignore-value --ignore-lease
put bin < and so on
get bin --print-value-only
get x y z
put
`

// TestEtcdctl runs the same script on Fairlead, of one agent and of several that
// are asked in turn, and on etcd.
func TestEtcdctl(t *testing.T) {
	one, set, theirs := own(t, startOne), own(t, startSet), peer(t)
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		line = strings.TrimSuffix(line, "\n")
		command, typed, _ := strings.Cut(line, " < ")
		args := fields(command)
		typed = strings.ReplaceAll(typed, `\n`, "\n")
		say := func(c *cluster) string {
			endpoint := c.endpoint()
			return alike(etcdctl(t, endpoint, typed, args...), endpoint)
		}
		want := say(theirs)
		for name, ours := range map[string]*cluster{"one agent": one, "several": set} {
			if got := say(ours); got != want {
				t.Errorf("etcdctl %s\nsays of Fairlead, %s,\n%s\nand of etcd\n%s", line, name, got, want)
			}
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
		`"ClusterID" : \d+`: `"ClusterID" : C`, `"MemberID" : \d+`: `"MemberID" : M`, `"RaftTerm" : \d+`: `"RaftTerm" : T`,
		`took = [^\s]+`: "took = T", `"ts":"[^"]*"`: `"ts":T`, `"target":"[^"]*"`: `"target":E`, `endpoint://client-[^/]*/`: "endpoint://client/",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// TestEtcdctlLease follows a lease from its beginning to its end.
func TestEtcdctlLease(t *testing.T) {
	run := func(t *testing.T, endpoints []string) {
		c := &cluster{endpoints: endpoints}
		granted := etcdctl(t, c.endpoint(), "", "lease", "grant", "60")
		m := regexp.MustCompile(`lease ([0-9a-f]+) granted with TTL\(60s\)`).FindStringSubmatch(granted)
		if m == nil {
			t.Fatal(granted)
		}
		id := m[1]
		for _, l := range [][2]string{
			{"put leased v --lease=" + id, "OK\n"},
			{"put leased w --ignore-lease", "OK\n"},
			{"put leased2 v --lease=" + id, "OK\n"},
			{"del leased2", "1\n"},
			{"lease timetolive " + id + " --keys", "attached keys([leased])"},
			{"lease keep-alive --once " + id, "keepalived with TTL(60)"},
			{"lease list", id},
			{"lease revoke " + id, "revoked"},
			{"lease timetolive " + id, "already expired"},
			{"lease keep-alive --once " + id, "requested lease not found"},
			{"get leased", ""},
		} {
			if got := etcdctl(t, c.endpoint(), "", fields(l[0])...); !strings.Contains(got, l[1]) || l[1] == "" && got != "" {
				t.Errorf("etcdctl %s: %s", l[0], got)
			}
		}
	}
	everywhere(t, run)
	t.Run("etcd", func(t *testing.T) { run(t, peer(t).endpoints) })
}

// TestEtcdctlMaintenance looks at what is about the servers themselves.
func TestEtcdctlMaintenance(t *testing.T) {
	set := sharing(t, "set", startSet)
	for i, endpoint := range set.endpoints {
		etcdctl(t, endpoint, "", "put", "x", "1")
		backup := filepath.Join(t.TempDir(), "backup")
		for _, c := range [][2]string{
			{"member list", ", started, n1, https://127.0.0.1:"},
			{"member list", ", started, n3, https://127.0.0.1:"},
			{"member list", ", http://" + set.endpoints[1] + ", false\n"},
			{"endpoint status", endpoint + ", "},
			{"endpoint hashkv", endpoint + ", "},
			{"snapshot save " + backup, "Snapshot saved at " + backup},
			{"defrag", "Finished defragmenting"},
			{"check perf --load=s --prefix=/perf/", "Throughput is"},
		} {
			if fields(c[0])[0] == "check" && (i > 0 || scale.Factor() < 1) {
				continue // it takes a minute
			}
			if got := etcdctl(t, endpoint, "", fields(c[0])...); !strings.Contains(got, c[1]) {
				t.Errorf("%s: etcdctl %s: %s", endpoint, c[0], got)
			}
		}
		// A backup ends in the hash of what is before it, as etcd's does.
		if info, err := os.Stat(backup); err != nil || info.Size()%512 != 32 {
			t.Error(fmt.Sprint(info), err)
		}
	}
	// All have the same at a revision.
	hashes := map[string]bool{}
	for _, endpoint := range set.endpoints {
		_, hash, _ := strings.Cut(etcdctl(t, endpoint, "", "endpoint", "hashkv", "--rev=2"), ", ")
		hashes[hash] = true
	}
	if len(hashes) != 1 {
		t.Errorf("hashes differ: %v", hashes)
	}
}

// TestEtcdctlUnsupported: what there is not is said so at once.
func TestEtcdctlUnsupported(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		for _, line := range []string{
			"member add x --peer-urls=http://127.0.0.1:1", "member remove 1", "member update 1 --peer-urls=http://127.0.0.1:1", "member promote 1",
			"user list", "user get x", "user delete x", "role add x", "role list", "auth enable", "auth disable",
		} {
			began := time.Now()
			got := etcdctl(t, endpoints[0], "y\n", fields(line)...)
			if took := time.Since(began); !strings.Contains(got, "Unimplemented") || took > 20*time.Second {
				t.Errorf("etcdctl %s took %s: %s", line, took, got)
			}
		}
	})
}

// TestEtcdctlMoveLeader moves the leadership around.
func TestEtcdctlMoveLeader(t *testing.T) {
	set := own(t, startSet)
	leader, follower := regexp.MustCompile(`(\S+), ([0-9a-f]+), .*, true, `), regexp.MustCompile(`(\S+), ([0-9a-f]+), .*, false, false, `)
	var from, to []string
	await.Until(t, func() string { // one may be elected just now
		status := etcdctl(t, strings.Join(set.endpoints[:3], ","), "", "endpoint", "status")
		if from, to = leader.FindStringSubmatch(status), follower.FindStringSubmatch(status); from == nil || to == nil {
			return status
		}
		return ""
	})
	if got := etcdctl(t, to[1], "", "move-leader", to[2]); !strings.Contains(got, "no leader endpoint given at") {
		t.Errorf("by a follower: %s", got)
	}
	want := fmt.Sprintf("Leadership transferred from %s to %s\n", from[2], to[2])
	if got := etcdctl(t, from[1], "", "move-leader", to[2]); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	await.Until(t, func() string { // the one before may know it first
		status := etcdctl(t, to[1], "", "endpoint", "status")
		if now := leader.FindStringSubmatch(status); now == nil || now[2] != to[2] {
			return "after that: " + status
		}
		return ""
	})
}

// system is what the system's keyspace holds, as the socket shows it: of the leader's
// key only that it is one, as there may be another leader at any time.
func system(t *testing.T, a *agent) string {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+a.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := pb.NewKVClient(conn).Range(metadata.AppendToOutgoingContext(t.Context(), "fairlead-keyspace", "system"), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range r.Kvs {
		value := string(kv.Value)
		if string(kv.Key) == "leader" && regexp.MustCompile(`^\d+ \d+$`).MatchString(value) {
			value = "ID TERM"
		}
		all = append(all, fmt.Sprintf("%s since %d: %s", kv.Key, kv.CreateRevision, value))
	}
	return strings.Join(all, "\n")
}

// TestSystemKeyspace: what deletes all of the user's keys leaves the system's alone,
// also if it is called on the socket.
func TestSystemKeyspace(t *testing.T) {
	const servers = 3 // of startSet; the fourth is none
	for _, a := range own(t, startSet).agents {
		var before string
		await.Until(t, func() string { // each server writes its own key when it gets to it
			if before = system(t, a); strings.Contains(before, "leader") && strings.Count(before, "servers/") == servers {
				return ""
			}
			return fmt.Sprintf("the system's keyspace of %s: %s", a.dir, before)
		})
		for _, endpoint := range []string{a.api, "unix://" + a.socket()} {
			etcdctl(t, endpoint, "", "put", "x", "1")
			for _, line := range []string{`get "" --from-key --keys-only`, `del "" --from-key`, `get "" --from-key`, `del leader`, `del servers/ --prefix`, `put leader me`} {
				want := map[byte]string{'g': "x\n\n", 'd': "1\n", 'p': "OK\n"}[line[0]]
				if strings.HasPrefix(line, `get`) && !strings.Contains(line, "only") {
					want = ""
				}
				if strings.HasPrefix(line, "del leader") || strings.HasPrefix(line, "del servers") {
					want = "0\n"
				}
				if got := etcdctl(t, endpoint, "", fields(line)...); got != want {
					t.Errorf("%s: etcdctl %s: %q, want %q", endpoint, line, got, want)
				}
			}
			etcdctl(t, endpoint, "", "del", "leader")
			if after := system(t, a); after != before {
				t.Errorf("the system's keyspace was\n%s\nand is\n%s", before, after)
			}
		}
	}
}

// running is an etcdctl that goes on.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, stdin, endpoint string, args ...string) *running {
	t.Helper()
	cmd := etcdctlCommand(t.Context(), t, append([]string{"--endpoints", endpoint}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if stdin != "" {
		in, err := cmd.StdinPipe() // open, as a terminal is
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = in.Write([]byte(stdin)) }()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: cmd, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return r
}

// want reads lines; the test's own deadline is the limit.
func (r *running) want(lines ...string) {
	r.t.Helper()
	patience := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer patience.Stop()
	for _, line := range lines {
		if !r.lines.Scan() || r.lines.Text() != line {
			r.t.Fatalf("etcdctl %s: %q, want %q", r.cmd.Args[3:], r.lines.Text(), line)
		}
	}
}

// TestEtcdctlWatch reads what a watch prints of the past and of what comes.
func TestEtcdctlWatch(t *testing.T) {
	run := func(t *testing.T, endpoints []string) {
		c := &cluster{endpoints: endpoints}
		etcdctl(t, c.endpoint(), "", "del", "w/", "--prefix") // what another test left
		m := regexp.MustCompile(`"revision":(\d+)`).FindStringSubmatch(etcdctl(t, c.endpoint(), "", "put", "w/x", "1", "-w", "json"))
		if m == nil {
			t.Fatal("a put has no revision")
		}
		one := start(t, "", c.endpoint(), "watch", "w/x", "--rev="+m[1], "--prev-kv")
		one.want("PUT", "w/x", "1")
		all := start(t, "", c.endpoint(), "watch", "w/", "--prefix", "--rev="+m[1])
		all.want("PUT", "w/x", "1")
		part := start(t, "", c.endpoint(), "watch", "w/x", "w/y", "--rev="+m[1])
		part.want("PUT", "w/x", "1")
		typed := start(t, "watch w/x --rev="+m[1]+"\nwatch w/y --prev-kv --rev="+m[1]+"\n", c.endpoint(), "watch", "-i")
		typed.want("PUT", "w/x", "1")
		command := start(t, "", c.endpoint(), "watch", "w/y", "--rev="+m[1], "--", "sh", "-c", "echo $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY is $ETCD_WATCH_VALUE")
		etcdctl(t, c.endpoint(), "", "put", "w/x", "2")
		typed.want("PUT", "w/x", "2")
		etcdctl(t, c.endpoint(), "", "put", "w/y", "3")
		typed.want("PUT", "w/y", "3")
		etcdctl(t, c.endpoint(), "", "del", "w/x")
		typed.want("DELETE", "w/x", "")
		one.want("PUT", "w/x", "1", "w/x", "2", "DELETE", "w/x", "2", "w/x", "")
		all.want("PUT", "w/x", "2", "PUT", "w/y", "3", "DELETE", "w/x", "")
		part.want("PUT", "w/x", "2", "DELETE", "w/x", "")
		command.want("PUT", "w/y", "3", `"PUT" "w/y" is "3"`)
		etcdctl(t, c.endpoint(), "", "del", "w/", "--prefix")
	}
	everywhere(t, run)
	t.Run("etcd", func(t *testing.T) { run(t, peer(t).endpoints) })
}

// TestEtcdctlConcurrency: locks and elections of etcdctl are its own library's, on
// keys and leases. The services of that name are not there, and not needed.
func TestEtcdctlConcurrency(t *testing.T) {
	run := func(t *testing.T, endpoints []string) {
		c := &cluster{endpoints: endpoints}
		l, e := "lock/"+t.Name(), "elect/"+t.Name()
		if got := etcdctl(t, c.endpoint(), "", "lock", l, "echo", "held"); got != "held\n" {
			t.Errorf("etcdctl lock: %q", got)
		}
		holder := start(t, "", c.endpoint(), "lock", l)
		if !holder.lines.Scan() || !strings.HasPrefix(holder.lines.Text(), l+"/") {
			t.Fatalf("etcdctl lock: %q", holder.lines.Text())
		}
		next := start(t, "", c.endpoint(), "lock", l, "echo", "next")
		_ = holder.cmd.Process.Signal(syscall.SIGINT)
		next.want("next")

		first := start(t, "", c.endpoint(), "elect", e, "one")
		if !first.lines.Scan() || !strings.HasPrefix(first.lines.Text(), e+"/") {
			t.Fatalf("etcdctl elect: %q", first.lines.Text())
		}
		key := first.lines.Text()
		first.want("one")
		listener := start(t, "", c.endpoint(), "elect", "-l", e)
		listener.want(key, "one")
		second := start(t, "", c.endpoint(), "elect", e, "two")
		_ = first.cmd.Process.Signal(syscall.SIGINT)
		if !second.lines.Scan() {
			t.Fatal("nobody is elected")
		}
		key = second.lines.Text()
		second.want("two")
		listener.want(key, "two")
	}
	everywhere(t, run)
	t.Run("etcd", func(t *testing.T) { run(t, peer(t).endpoints) })
}
