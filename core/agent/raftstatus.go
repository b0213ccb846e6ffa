package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	etcdraft "go.etcd.io/raft/v3"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/forward"
	"github.com/fairlead/fairlead/core/control"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/server"
	"github.com/fairlead/fairlead/core/store"
)

// raftStatus tells what this agent is to the store.
type raftStatus struct {
	storage *storage
	others  func() []forward.Server // of the group, as gossip has them
	target  func() int              // how many voters there shall be
}

var _ api.Raft = raftStatus{}

// Raft implements api.Raft.
func (r raftStatus) Raft(ctx context.Context, peers bool) api.RaftStatus {
	out := r.own(ctx)
	waits := out.ID != 0 && out.LastFailure == "" && r.storage.served.Load() == nil
	if len(out.Members) > 0 || !peers && !waits {
		return out
	}
	out.Members = r.ask(ctx)
	if waits {
		r.reserve(&out)
	}
	return out
}

// reserve says of a server that no group took in, yet, whether it is needed: it is not
// while there are as many voters as there shall be, and a spare.
func (r raftStatus) reserve(out *api.RaftStatus) {
	out.Copy = r.storage.follower.copied()
	voters, spares := 0, 0
	for _, m := range out.Members {
		switch m.Role {
		case "leader":
			out.Leader, out.LeaderName = m.ID, m.Name
			voters++
		case "voter":
			voters++
		default:
			spares++
		}
	}
	if out.Leader != 0 && voters >= r.target() && spares > 0 {
		out.Awaits = ""
		out.NotServer = fmt.Sprintf("it is in reserve: group %s has %d voters and a spare, and takes it in when it needs one", out.ClusterID, voters)
	}
}

// askTimeout bounds the question who the servers are, to each of them.
const askTimeout = 2 * time.Second

// ask has a server say who they are; nil if none does.
func (r raftStatus) ask(ctx context.Context) []api.RaftMember {
	if r.storage.keeper == nil {
		return nil
	}
	for _, s := range r.others() {
		peers, err := r.askOne(ctx, s)
		if err != nil || len(peers.Members) == 0 {
			continue
		}
		var out []api.RaftMember
		for _, p := range peers.Members {
			m := api.RaftMember{ID: p.ID, Name: p.Name, Addr: p.RPC, Role: roleIn(p.Member, peers.Leader), Match: p.Match, MatchKnown: p.MatchKnown, Active: p.Active}
			out = append(out, m)
		}
		return out
	}
	return nil
}

func (r raftStatus) askOne(ctx context.Context, s forward.Server) (server.Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := transport.Dial(r.storage.keeper, s.Address, s.Node)
	if err != nil {
		return server.Peers{}, err
	}
	defer conn.Close() //nolint:errcheck // it is closed in any case
	return server.AskPeers(ctx, conn)
}

// own is what this agent knows by itself, and by the leader if it is a server.
func (r raftStatus) own(ctx context.Context) api.RaftStatus {
	s := r.storage.server()
	if s == nil {
		return api.RaftStatus{NotServer: cmp.Or(r.storage.awaits(), "it is none now"), Awaits: r.storage.waits(), Copy: r.storage.follower.copied()}
	}
	st := s.Status()
	applied, _ := st.View.Applied()
	out := api.RaftStatus{
		ClusterID: fmt.Sprintf("%016x", st.Identity.Cluster), ID: st.Identity.Server, Role: raftRole(st),
		Term: st.Term, Leader: st.Leader, LeaderName: st.LeaderName, Applied: applied,
	}
	if st.Failure != nil {
		out.NotServer, out.LastFailure = "the server failed: "+st.Failure.Error(), st.Failure.Error()
	}
	for _, m := range st.Members {
		out.Members = append(out.Members, api.RaftMember{ID: m.ID, Name: m.Name, Addr: m.RPC, Role: roleIn(m, st.Leader)})
	}
	r.add(ctx, &out, st)
	for _, k := range []store.Keyspace{store.User, store.System} {
		stats := st.View.Stats(k)
		out.Keyspaces = append(out.Keyspaces, api.RaftKeyspace{
			Name: k.String(), Revision: stats.Revision, Compacted: stats.Compacted, Keys: stats.Keys,
			Bytes: stats.Bytes, QuotaBytes: stats.QuotaBytes, Full: stats.Full,
		})
	}
	return out
}

// add tells how the group stands, as far as this server and the leader know.
func (r raftStatus) add(ctx context.Context, out *api.RaftStatus, st server.Status) {
	known, err := r.storage.part.Standing(ctx)
	out.Applied = max(known.Applied, out.Applied)
	out.Commit, out.Snapshot, out.LogBytes = max(known.Commit, out.Applied), known.Snapshot, known.LogBytes
	out.JointSince, out.NoSpace, out.Lacks = known.Joint, known.NoSpace, known.Lacks
	if out.Awaits = r.storage.waits(); out.Awaits == "" && len(st.Members) == 0 && st.Failure == nil {
		out.Awaits = "waiting to be added by the leader of group " + out.ClusterID
	}
	if err != nil && st.Failure == nil && st.Leader != 0 {
		out.Unasked = strings.TrimPrefix(err.Error(), "server: ")
	}
	leaving := control.Leaving(st.View)
	for i := range out.Members {
		m := &out.Members[i]
		m.Leaving = slices.Contains(leaving, m.ID)
		if slices.Contains(known.Low, m.ID) {
			out.LowSpace = append(out.LowSpace, cmp.Or(m.Name, fmt.Sprintf("%016x", m.ID)))
		}
		for _, p := range known.Members {
			if p.ID == m.ID {
				m.Match, m.MatchKnown, m.Active = p.Match, true, p.Active
			}
		}
	}
}

// roleIn is what a member is in a group of which somebody leads.
func roleIn(m server.Member, leader uint64) string {
	switch {
	case m.ID == leader:
		return "leader"
	case m.Learner:
		return "learner"
	}
	return "voter"
}

func raftRole(st server.Status) api.RaftRole {
	for _, m := range st.Members {
		if m.ID == st.Identity.Server && m.Learner {
			return api.RaftLearner
		}
	}
	switch st.Role {
	case etcdraft.StateLeader:
		return api.RaftLeader
	case etcdraft.StateFollower:
		return api.RaftFollower
	default:
		return api.RaftCandidate
	}
}
