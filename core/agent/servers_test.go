package agent

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/test/await"
)

// formed starts agents that form a group of the first few, and join it.
func formed(t *testing.T, n, expect int) []*running {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := identity.CreateFile(secret, rand.Reader); err != nil {
		t.Fatal(err)
	}
	var all []*running
	for i := range n {
		cfg := testConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.Cluster.SecretFile, cfg.RPC.Listen = secret, config.ListenOn(netip.MustParseAddrPort("127.0.0.1:0"))
		cfg.Raft.Heartbeat, cfg.Raft.Election = 20*time.Millisecond, 500*time.Millisecond
		cfg.Cluster.BootstrapExpect = 0
		if i < expect {
			cfg.Cluster.BootstrapExpect = expect
		}
		if i > 0 {
			cfg.Cluster.Join = []string{all[0].members.LocalAddr().String()}
		}
		all = append(all, start(t, Options{Loaded: loaded(cfg)}))
	}
	await.For(t, "a group of them", func() bool {
		st := all[0].group(t)
		roles := map[string]int{}
		for _, m := range st.Members {
			if m.MatchKnown && m.Active {
				roles[m.Role]++
			}
		}
		return roles["leader"] == 1 && roles["voter"] == expect-1 && roles["learner"] == n-expect
	})
	return all
}

func (r *running) group(t *testing.T) client.RaftStatus {
	t.Helper()
	st, err := r.api.Raft(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// byRole returns an agent that leads, and one that does not and has a vote.
func byRole(t *testing.T, all []*running) (leads, votes *running) {
	t.Helper()
	await.For(t, "somebody to lead", func() bool {
		leads, votes = nil, nil
		for _, r := range all {
			switch r.group(t).Role {
			case "leader":
				leads = r
			case "follower":
				votes = r
			}
		}
		return leads != nil && votes != nil
	})
	return leads, votes
}

func wantRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it was not refused, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: want %q", err, w)
		}
	}
}

// removed follows a removal to its end.
func removed(t *testing.T, r *running, name string, force bool) ([]string, error) {
	t.Helper()
	var states []string
	for st, err := range r.api.RaftRemove(t.Context(), name, force, false) {
		if err != nil {
			return states, err
		}
		states = append(states, st.State)
	}
	return states, nil
}

func TestChangeOfServers(t *testing.T) {
	all := formed(t, 4, 3)
	leads, votes := byRole(t, all[:3])

	// Who is no leader tells what the leader knows.
	await.Until(t, func() string { // a leader that is late is not waited for
		st := votes.group(t)
		if st.Unasked != "" || len(st.Members) != 4 || !st.Members[0].MatchKnown || st.Commit == 0 || st.LogBytes == 0 || st.Awaits != "" {
			return fmt.Sprintf("a follower says %+v", st)
		}
		for _, m := range st.Members {
			if m.Name == "" { // it is a member before it says what it is called
				return fmt.Sprintf("the name of %016x", m.ID)
			}
		}
		return ""
	})

	name := func(r *running) string { return r.config().Node.Name }
	_, _, err := votes.api.RaftTransfer(t.Context(), "nobody")
	wantRefused(t, err, `"nobody"`, "n1, n2, n3, n4")
	_, _, err = votes.api.RaftTransfer(t.Context(), "n4")
	wantRefused(t, err, "n4 is a learner")
	await.Until(t, func() string { // it has two election timeouts to take over
		if _, who, err := votes.api.RaftTransfer(t.Context(), name(votes)); (err != nil || who != name(votes)) && votes.group(t).Role != "leader" {
			return fmt.Sprintf("the leadership went to %q, %v", who, err)
		}
		return ""
	})
	await.For(t, "it to lead", func() bool { return votes.group(t).Role == "leader" })

	// The one that led is removed, and the spare takes its place.
	old := leads.group(t).ID
	states, err := removed(t, votes, name(leads), false)
	if err != nil || len(states) == 0 || states[len(states)-1] != "gone" {
		t.Fatalf("the removal went %q, %v", states, err)
	}
	await.For(t, "it to be back as another server", func() bool {
		st := leads.group(t)
		return st.ID != 0 && st.ID != old && st.Role == "learner"
	})
	voters := 0
	for _, m := range votes.group(t).Members {
		if m.Role != "learner" {
			voters++
		}
	}
	if voters != 3 {
		t.Errorf("%d voters are left", voters)
	}

	// It leaves, as a learner of whom nobody depends, and for good.
	if _, server, err := leads.api.Depart(t.Context(), false); err != nil || !strings.Contains(server, "no server of the store any more") {
		t.Fatalf("it left with %q, %v", server, err)
	}
	if err := leads.wait(t); err != nil {
		t.Error(err)
	}

	// There is no spare now: only force removes a voter. The leader may leave, too.
	var rest []*running
	for _, r := range all {
		if r != leads {
			rest = append(rest, r)
		}
	}
	_, err = removed(t, votes, "n4", false)
	wantRefused(t, err, "n4 stays", "3 are aimed at", "--force")
	_, _, err = votes.api.Depart(t.Context(), false)
	wantRefused(t, err, "the node stays", "leave --force")
	if votes.leaver.leaving() {
		t.Error("it leaves though that was refused")
	}
	put(t, votes.storeAt(t), "a", "1")
	if _, server, err := votes.api.Depart(t.Context(), true); err != nil || !strings.Contains(server, "no server of the store any more") {
		t.Fatalf("it left by force with %q, %v", server, err)
	}
	if err := votes.wait(t); err != nil {
		t.Error(err)
	}
	for _, r := range rest {
		if r == votes {
			continue
		}
		await.For(t, "the others to go on as two", func() bool {
			st := r.group(t)
			return len(st.Members) == 2 && st.Leader != 0
		})
		if got := get1(t, r.storeAt(t), "a"); got != "1" {
			t.Errorf("it reads %q", got)
		}
	}
}

func TestServersThatStay(t *testing.T) {
	all := staticSet(t)
	var set []*running
	for i, cfg := range all[:3] {
		if i > 0 {
			cfg.Cluster.Join = []string{set[0].members.LocalAddr().String()}
		}
		set = append(set, start(t, Options{Loaded: loaded(cfg)}))
	}
	_, votes := byRole(t, set)
	_, err := removed(t, votes, "n1", true)
	wantRefused(t, err, "static set", "n1, n2, n3")
	_, err = votes.api.RaftRecover(t.Context(), "")
	wantRefused(t, err, "waits for no cluster")
	_, err = votes.api.RaftRecover(t.Context(), "x")
	wantRefused(t, err, "16 hexadecimal digits")
	if _, server, err := votes.api.Depart(t.Context(), false); err != nil || !strings.Contains(server, "static set") {
		t.Errorf("it left with %q, %v", server, err)
	}

	lone := start(t, Options{Loaded: loaded(testConfig(t, "lone"))})
	put(t, lone.storeAt(t), "a", "1")
	_, err = removed(t, lone, "lone", true)
	wantRefused(t, err, "lone stays", "the last voter")
	if _, server, err := lone.api.Depart(t.Context(), false); err != nil || server != "" {
		t.Errorf("a lone agent left with %q, %v", server, err)
	}
}

// A server that is not needed is in reserve, and nothing is wrong.
func TestServerInReserve(t *testing.T) {
	all := formed(t, 4, 3)
	cfg := testConfig(t, "n5")
	first := all[0].config()
	cfg.Cluster.SecretFile, cfg.RPC.Listen, cfg.Raft = first.Cluster.SecretFile, config.ListenOn(netip.MustParseAddrPort("127.0.0.1:0")), first.Raft
	cfg.Cluster.BootstrapExpect, cfg.Cluster.Join = 0, []string{all[0].members.LocalAddr().String()}
	r := start(t, Options{Loaded: loaded(cfg)})
	await.Until(t, func() string {
		st := r.group(t)
		if st.Server || st.Awaits != "" || !strings.Contains(st.NotServer, "in reserve: group "+all[0].group(t).ClusterID+" has 3 voters and a spare") ||
			st.LeaderName == "" || len(st.Members) != 4 || st.Copy == nil {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	for _, err := range r.api.RaftRemove(t.Context(), "n2", false, false) {
		wantRefused(t, err, "in reserve", "ask one that is: n1")
	}
}

func TestAgentThatIsNoServerYet(t *testing.T) {
	cfg := testConfig(t, "n1")
	cfg.Cluster.SecretFile = filepath.Join(t.TempDir(), "secret")
	if err := identity.CreateFile(cfg.Cluster.SecretFile, rand.Reader); err != nil {
		t.Fatal(err)
	}
	cfg.RPC.Listen, cfg.Cluster.BootstrapExpect = config.ListenOn(netip.MustParseAddrPort("127.0.0.1:0")), 3
	r := start(t, Options{Loaded: loaded(cfg)})
	await.For(t, "it to say what it waits for", func() bool { return strings.Contains(r.group(t).Awaits, "2 more servers") })
	_, _, err := r.api.RaftTransfer(t.Context(), "n1")
	wantRefused(t, err, "no server", "2 more servers", "ask an agent that is one")
	_, err = r.api.RaftRecover(t.Context(), "")
	wantRefused(t, err, "waits for no cluster", "2 more servers")
}

// What was read at a new agent by way of other servers is there when its own server
// begins to answer, which has nothing at first.
func TestServerThatBegins(t *testing.T) {
	all := setOf(t, 5)
	var others []*running
	for _, cfg := range all[:3] {
		others = append(others, start(t, Options{Loaded: loaded(cfg)}))
	}
	put(t, others[0].storeAt(t), "a", "1")
	read := func(kv pb.KVClient) (*pb.RangeResponse, error) {
		return kv.Range(storeCall(t), &pb.RangeRequest{Key: []byte("a"), Serializable: true})
	}
	for _, r := range others {
		kv := r.storeAt(t)
		await.For(t, "each of them to have it", func() bool { found, err := read(kv); return err == nil && found.Count == 1 })
	}

	// The fifth server does not answer whether it knows the fourth, which waits for that.
	fourth := start(t, Options{Loaded: loaded(all[3])})
	kv, seen := fourth.storeAt(t), false
	await.For(t, "its own server to answer", func() bool {
		found, err := read(kv)
		switch {
		case err != nil:
			return false
		case len(found.Kvs) == 0 && seen:
			t.Fatalf("what was read is gone: %v", found)
		}
		seen = seen || len(found.Kvs) > 0
		return seen && found.Header.MemberId == fourth.group(t).ID
	})
}
