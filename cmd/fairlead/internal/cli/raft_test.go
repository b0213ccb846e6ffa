package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/test/short"
)

// fakeRaft is what an agent says of its store.
type fakeRaft api.RaftStatus

func (f *fakeRaft) Raft(context.Context, bool) api.RaftStatus { return api.RaftStatus(*f) }

// fakeLeader leads three, all well.
func fakeLeader() api.RaftStatus {
	return api.RaftStatus{
		ClusterID: "c0ffee0000000001", ID: 1, Role: api.RaftLeader, Term: 7, Leader: 1, LeaderName: "n1", Commit: 1234, Applied: 1233,
		Snapshot: 1000, LogBytes: 5 << 20,
		Members: []api.RaftMember{
			{ID: 1, Name: "n1", Addr: "10.9.0.1:7401", Role: "leader", Match: 1234, MatchKnown: true, Active: true},
			{ID: 2, Name: "n2", Addr: "10.9.0.2:7401", Role: "voter", Match: 1230, MatchKnown: true, Active: true},
			{ID: 0xfedcba9876543210, Role: "learner", MatchKnown: true, Active: true},
		},
		Keyspaces: []api.RaftKeyspace{
			{Name: "user", Revision: 900, Compacted: 100, Keys: 12, Bytes: 3 << 30, QuotaBytes: 8 << 30},
			{Name: "system", Revision: 30, Keys: 4, Bytes: 700, QuotaBytes: 1 << 30},
		},
	}
}

// askRaft runs a command before an agent that says this.
func askRaft(t *testing.T, st api.RaftStatus, args string) *command {
	t.Helper()
	cmd := newCommand(t)
	cmd.code <- cmd.run(append(strings.Fields(args), "--api", serveRaft(t, st))...)
	return cmd
}

// serveRaft says this on a socket until the test ends.
func serveRaft(t *testing.T, st api.RaftStatus) (socket string) {
	t.Helper()
	socket = filepath.Join(short.Dir(t), "api.sock")
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	a, raft := fakeAgent{}, fakeRaft(st)
	server := api.NewServer(api.Backend{Identity: a, Members: a, Events: a, Settings: a, Raft: &raft}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() { server.Stop(t.Context()) })
	return socket
}

func TestRaft(t *testing.T) {
	follower := fakeLeader()
	follower.ID, follower.Role = 2, api.RaftFollower
	for i := range follower.Members {
		follower.Members[i].Match, follower.Members[i].MatchKnown, follower.Members[i].Active = 0, false, false
	}
	none := api.RaftStatus{NotServer: "cluster.server is false"}
	copied, empty := none, none
	copied.Copy = &api.RaftCopy{ClusterID: "c0ffee0000000001", Revision: 30, Keys: 4, Age: 1234 * time.Millisecond, AgeKnown: true, Server: "n2", Address: "10.9.0.2:7401"}
	empty.Copy = &api.RaftCopy{}
	for _, c := range []struct {
		file, args string
		st         api.RaftStatus
	}{
		{"raft-leader.txt", "raft status", fakeLeader()},
		{"raft-leader.json", "raft status -o json", fakeLeader()},
		{"raft-follower.txt", "raft status", follower},
		{"raft-none.txt", "raft status", none},
		{"raft-none.json", "raft status -o json", none},
		{"raft-copy.txt", "raft status", copied},
		{"raft-copy.json", "raft status -o json", copied},
		{"raft-copy-none.txt", "raft status", empty},
		{"raft-copy-none.json", "raft status -o json", empty},
		{"raft-peers.txt", "raft list-peers", fakeLeader()},
		{"raft-peers.json", "raft list-peers -o json", fakeLeader()},
		{"raft-peers-follower.json", "raft list-peers -o json", follower},
	} {
		cmd := askRaft(t, c.st, c.args)
		if code := <-cmd.code; code != ExitOK || cmd.err.String() != "" {
			t.Errorf("%s: exit code %d: %s", c.file, code, cmd.err.String())
		}
		golden(t, c.file, cmd.out.String())
	}
	cmd := askRaft(t, none, "raft list-peers")
	if code := <-cmd.code; code != ExitOK || !strings.Contains(cmd.err.String(), "this agent is no server, and no server answers it: cluster.server is false") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

// What is wrong is exit code 3, and named.
func TestRaftDegraded(t *testing.T) {
	for want, spoil := range map[string]func(*api.RaftStatus){
		"nobody leads": func(st *api.RaftStatus) { st.Leader, st.LeaderName, st.Role = 0, "", api.RaftCandidate },
		"this server failed: fsync: input/output error": func(st *api.RaftStatus) {
			*st = api.RaftStatus{NotServer: "it failed", LastFailure: "fsync: input/output error"}
		},
		"the server n2 is not heard of":                                    func(st *api.RaftStatus) { st.Members[1].Active = false },
		"the server fedcba9876543210 is not heard of":                      func(st *api.RaftStatus) { st.Members[2].Active = false },
		"nothing is written for want of room on the disks of n1, n3":       func(st *api.RaftStatus) { st.NoSpace, st.LowSpace = true, []string{"n1", "n3"} },
		"nothing is written for want of room on the disks of most servers": func(st *api.RaftStatus) { st.NoSpace = true },
		"the disks are nearly full of n2":                                  func(st *api.RaftStatus) { st.LowSpace = []string{"n2"} },
		"no server is followed: all are gone": func(st *api.RaftStatus) {
			*st = api.RaftStatus{NotServer: "cluster.server is false", Copy: &api.RaftCopy{ClusterID: "abcd", Revision: 7, Age: time.Hour, AgeKnown: true, Problem: "all are gone"}}
		},
		"n3 is gone and nobody is there to take its place": func(st *api.RaftStatus) { st.Lacks = "n3 is gone and nobody is there to take its place" },
		"waiting for 2 more servers": func(st *api.RaftStatus) {
			*st = api.RaftStatus{NotServer: "waiting for 2 more servers", Awaits: "waiting for 2 more servers"}
		},
		"a change of the servers takes": func(st *api.RaftStatus) { st.JointSince = time.Now().Add(-time.Minute) },
		"the user keys are full":        func(st *api.RaftStatus) { st.Keyspaces[0].Full = true },
	} {
		st := fakeLeader()
		spoil(&st)
		for _, output := range []string{"text", "json"} {
			cmd := askRaft(t, st, "raft status -o "+output)
			if code := <-cmd.code; code != ExitDegraded || !strings.HasPrefix(cmd.err.String(), "fairlead: degraded: "+want) || strings.Count(cmd.err.String(), "\n") != 1 {
				t.Errorf("exit code %d, %q, want %q", code, cmd.err.String(), want)
			}
			if output == "json" && !strings.Contains(cmd.out.String(), `{"state":"degraded","problems":["`+want) {
				t.Errorf("%s, want %q", cmd.out.String(), want)
			}
		}
	}
	st := fakeLeader()
	st.Leader, st.Keyspaces[1].Full = 0, true
	cmd := askRaft(t, st, "raft status")
	if code := <-cmd.code; code != ExitDegraded || !strings.Contains(cmd.err.String(), "; the system keys are full") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

func TestRaftRefuses(t *testing.T) {
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"raft statsu":                           {ExitUsage, `unknown command "statsu", did you mean "status"?`},
		"raft status now":                       {ExitUsage, "takes no arguments"},
		"raft list-peers extra":                 {ExitUsage, "takes no arguments"},
		"raft status --nope":                    {ExitUsage, "unknown flag"},
		"raft status --api 127.0.0.1:1":         {ExitFailed, "no agent answers at 127.0.0.1:1"},
		"raft status --api " + serveFake(t):     {ExitFailed, "this agent has no store"},
		"snapshot save x --api 127.0.0.1:1":     {ExitFailed, "no agent answers at 127.0.0.1:1"},
		"snapshot save x --api " + serveFake(t): {ExitFailed, "snapshot save: no store answers here: this agent has none"},
		"snapshot save":                         {ExitUsage, "fairlead snapshot save wants FILE"},
		"snapshot inspect":                      {ExitUsage, "fairlead snapshot inspect wants FILE"},
		"snapshot inspect /nonexistent":         {ExitFailed, "/nonexistent: no such file"},
		"snapshot inspect /nonexistent -o yaml": {ExitUsage, "want text or json"},
	} {
		cmd := newCommand(t)
		if code := cmd.run(strings.Fields(args)...); code != c.code || !strings.Contains(cmd.err.String(), c.want) || cmd.out.String() != "" {
			t.Errorf("%s: exit code %d, want %d: %q, want %q", args, code, c.code, cmd.err.String(), c.want)
		}
	}
}
