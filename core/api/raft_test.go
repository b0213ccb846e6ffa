package api_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
)

type raftStatus api.RaftStatus

func (s raftStatus) Raft(context.Context, bool) api.RaftStatus { return api.RaftStatus(s) }

func raftClient(t *testing.T, raft api.Raft, access api.Access) *client.Client {
	t.Helper()
	f := &fake{}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f, Raft: raft}, slog.New(slog.DiscardHandler))
	c, err := client.Dial(t.Context(), listenOn(t, server, access))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); stopNow(server) })
	return c
}

// All that the group is arrives, on TCP as well.
func TestRaftStatusArrivesWhole(t *testing.T) {
	said := raftStatus{
		ClusterID: "abcd", ID: 1 << 63, Role: api.RaftLeader, Term: 7, Leader: 1 << 63, LeaderName: "n1",
		Commit: 31, Applied: 30, Snapshot: 20, LogBytes: 4096, LastFailure: "no snapshot: disk", NoSpace: true, LowSpace: []string{"n2", "n3"},
		Members: []api.RaftMember{
			{ID: 1 << 63, Name: "n1", Addr: "127.0.0.1:7401", Role: "leader", Match: 31, MatchKnown: true, Active: true},
			{ID: 2, Name: "n2", Addr: "127.0.0.2:7401", Role: "voter"},
		},
		Keyspaces: []api.RaftKeyspace{{Name: "user", Revision: 9, Compacted: 4, Keys: 3, Bytes: 100, QuotaBytes: 200, Full: true}, {Name: "system"}},
		Copy:      &api.RaftCopy{ClusterID: "abcd", Revision: 9, Keys: 3, Age: time.Second, AgeKnown: true, Server: "n2", Address: "127.0.0.2:7401", Problem: "none"},
	}
	want := client.RaftStatus{
		Server: true, ClusterID: "abcd", ID: 1 << 63, Role: "leader", Term: 7, Leader: 1 << 63, LeaderName: "n1",
		Commit: 31, Applied: 30, Snapshot: 20, LogBytes: 4096, LastFailure: "no snapshot: disk", NoSpace: true, LowSpace: []string{"n2", "n3"},
		Members: []client.RaftMember{
			{ID: 1 << 63, Name: "n1", Addr: "127.0.0.1:7401", Role: "leader", Match: 31, MatchKnown: true, Active: true},
			{ID: 2, Name: "n2", Addr: "127.0.0.2:7401", Role: "voter"},
		},
		Keyspaces: []client.RaftKeyspace{{Name: "user", Revision: 9, Compacted: 4, Keys: 3, Bytes: 100, QuotaBytes: 200, Full: true}, {Name: "system"}},
		Copy:      &client.RaftCopy{ClusterID: "abcd", Revision: 9, Keys: 3, Age: time.Second, AgeKnown: true, Server: "n2", Address: "127.0.0.2:7401", Problem: "none"},
	}
	got, err := raftClient(t, said, api.AccessRead).Raft(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Raft: %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestCopyThatNeverWasCurrent(t *testing.T) {
	st, err := raftClient(t, raftStatus{NotServer: "x", Copy: &api.RaftCopy{Revision: 1}}, api.AccessRead).Raft(t.Context())
	if err != nil || st.Copy == nil || st.Copy.AgeKnown || st.Copy.Revision != 1 {
		t.Errorf("Raft: %v: %+v", err, st.Copy)
	}
}

func TestNoServerSaysWhy(t *testing.T) {
	st, err := raftClient(t, raftStatus{NotServer: "cluster.server is false"}, api.AccessAll).Raft(t.Context())
	if err != nil || st.Server || st.NotServer != "cluster.server is false" || st.Role != "" {
		t.Errorf("Raft: %v: %+v", err, st)
	}
	if _, err := raftClient(t, nil, api.AccessAll).Raft(t.Context()); err == nil || !strings.Contains(err.Error(), "has no store") {
		t.Errorf("an agent without a store answers %v", err)
	}
}
