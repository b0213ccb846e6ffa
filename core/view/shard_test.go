package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

// serverSeen is a node that says that it is a server, and runs an instance of the
// leader's service, which passes as its node says.
func serverSeen(id model.NodeID, s model.State, part *record.Server) view.Seen {
	d := record.Definition{Advertise: advertise(id), Server: part, Instances: []model.Instance{leaderInstance()}}
	return view.Seen{At: at(10), Member: member(id, s), Record: view.NewRecord(d, []model.InstanceState{model.InstancePassing}, at(10))}
}

// standing says what every node is, in the order of ids.
func standing(v *view.View) string {
	var all []string
	for n := range v.Nodes() {
		all = append(all, n.Role.String())
	}
	return strings.Join(all, " ")
}

// leaders are the nodes that the leader's service leads to.
func leaders(v *view.View) (all []model.NodeID) {
	if s := v.Service(model.LeaderService()); s != nil {
		for _, e := range s.Endpoints {
			all = append(all, e.Node)
		}
	}
	return all
}

func TestRoles(t *testing.T) {
	const alive, suspect, dead, left = model.StateAlive, model.StateSuspect, model.StateDead, model.StateLeft
	v := view.New(self, 1)
	for _, step := range []struct {
		name   string
		e      view.Event
		roles  string
		leader []model.NodeID
	}{
		{"one that is no server", view.Seen{At: at(1), Member: member(1, alive), Record: rec(nil)}, "member", nil},
		{"one that waits for a group", serverSeen(2, alive, server(0, 0, false)), "member member", nil},
		{"a follower", serverSeen(2, alive, server(5, 0, false)), "member follower", nil},
		{"a learner", serverSeen(3, alive, server(5, 0, true)), "member follower learner", nil},
		{"a leader", serverSeen(2, alive, server(5, 3, false)), "member leader learner", []model.NodeID{2}},
		{"the learner gets a vote", serverSeen(3, alive, server(5, 0, false)), "member leader follower", []model.NodeID{2}},
		{"another one leads since", serverSeen(3, alive, server(5, 4, false)), "member follower leader", []model.NodeID{3}},
		{"the first one says so too", serverSeen(2, alive, server(5, 0, false)), "member follower leader", []model.NodeID{3}},
		{"an old word", serverSeen(2, alive, server(5, 3, false)), "member follower leader", []model.NodeID{3}},
		{"one of another group", serverSeen(4, alive, server(6, 1, false)), "member follower leader leader", []model.NodeID{3, 4}},
		{"it is let go", serverSeen(4, alive, nil), "member follower leader member", []model.NodeID{3}},
		{"a suspicion takes no office", serverSeen(3, suspect, server(5, 4, false)), "member follower suspect member", []model.NodeID{3}},
		{"nor does death pass it on", serverSeen(3, dead, server(5, 4, false)), "member follower failed member", nil},
		{"an heir", serverSeen(2, alive, server(5, 5, false)), "member leader failed member", []model.NodeID{2}},
		{"back", serverSeen(3, alive, server(5, 0, false)), "member leader follower member", []model.NodeID{2}},
		{"the leader leaves", serverSeen(2, left, server(5, 5, false)), "member left follower member", nil},
		{"and is forgotten", view.Forgotten{ID: 2}, "member follower member", nil},
		{"an older term counts then", serverSeen(3, alive, server(5, 1, false)), "member leader member", []model.NodeID{3}},
	} {
		was := v
		v = apply(t, v, step.e)
		if v.Epoch != was.Epoch+1 {
			t.Errorf("%s: epoch %d after %d", step.name, v.Epoch, was.Epoch)
		}
		got := leaders(v)
		slices.Sort(got)
		if standing(v) != step.roles || !slices.Equal(got, step.leader) {
			t.Errorf("%s: %s, led by %v; want %s, %v", step.name, standing(v), got, step.roles, step.leader)
		}
	}
}

// Who leads no more is told at once by the word of another one: the services that
// follow from that are named by Diff, and why.
func TestAnotherLeader(t *testing.T) {
	v := apply(t, view.New(self, 1), serverSeen(2, model.StateAlive, server(5, 3, false)), serverSeen(3, model.StateAlive, server(5, 0, false)))
	is := apply(t, v, serverSeen(3, model.StateAlive, server(5, 4, false)))
	changes := view.Diff(v, is)
	if len(changes) != 1 || changes[0].Key != model.LeaderService() || !slices.Equal(leaders(is), []model.NodeID{3}) {
		t.Fatalf("changed %+v, leaders %v", changes, leaders(is))
	}
	if reason, _ := is.Removal(model.LeaderService(), 2, "api"); reason != view.Failing {
		t.Errorf("the old endpoint is removed as %v", reason)
	}
	for _, p := range is.Explain(model.LeaderService()) {
		if want := map[bool]view.Reason{true: view.ReasonReady, false: view.ReasonNotLeader}[p.Node == 3]; p.Reason != want || p.Reason == view.ReasonNotLeader && p.Detail == "" {
			t.Errorf("node %v: %s %q, want %s", p.Node, p.Reason, p.Detail, want)
		}
	}
	if s := is.Shard(5); s == nil || s.Leader != 3 || s.Term != 4 || fmt.Sprint(s.Nodes) != fmt.Sprint([]model.NodeID{2, 3}) {
		t.Errorf("shard %+v", s)
	}
	if s := v.Shard(5); s.Leader != 2 || v.Node(2).Role != view.RoleLeader {
		t.Errorf("the older view says %+v now", s)
	}
}

func TestRoleNames(t *testing.T) {
	var all []string
	for r := range view.Roles() {
		all = append(all, r.String())
	}
	if got := strings.Join(all, " "); got != "member suspect failed left leader follower learner" || view.Role(99).String() != "unknown" {
		t.Errorf("roles %s, %v", got, view.Role(99))
	}
}
