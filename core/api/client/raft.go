package client

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// RaftStatus is what the agent knows of the group of servers.
type RaftStatus struct {
	Server    bool
	NotServer string // why it is none
	ClusterID string // in hexadecimal
	ID        uint64 // of this server

	Role       string // leader, follower, candidate, learner; empty: no server
	Term       uint64
	Leader     uint64 // 0: nobody, as far as the agent knows
	LeaderName string

	Commit, Applied uint64
	Snapshot        uint64 // index of the newest; 0: none
	LogBytes        uint64 // on disk
	LastFailure     string
	NoSpace         bool     // writes are refused for want of room on disks
	LowSpace        []string // names of servers with little room
	Members         []RaftMember
	Keyspaces       []RaftKeyspace
	Copy            *RaftCopy // nil: the agent has none

	Awaits     string    // what the node waits for to become a server, or what is wrong with the group
	Lacks      string    // what the servers lack of what is aimed at
	JointSince time.Time // of a change of the servers under way; zero: there is none
	Unasked    string    // why nothing is here that only the leader knows
}

// RaftCopy is what the agent knows of the system keyspace.
type RaftCopy struct {
	ClusterID string // in hexadecimal; empty: nothing is known yet
	Revision  int64
	Keys      uint64
	// Age is the time since it was known to be the newest there is; AgeKnown is false
	// if it never was.
	Age             time.Duration
	AgeKnown        bool
	Server, Address string // whom it comes from; empty: nobody now
	Problem         string // why
}

// RaftMember is one server of the group.
type RaftMember struct {
	ID         uint64
	Name       string
	Addr       string // where other agents reach it
	Role       string // leader, voter, learner
	Match      uint64 // up to where its log is the leader's
	MatchKnown bool   // the agent leads; else neither Match nor Active is known
	Active     bool   // the leader heard of it lately
	Leaving    bool   // somebody asked for its removal
}

// RaftKeyspace is how full a keyspace is.
type RaftKeyspace struct {
	Name                string // user, system
	Revision, Compacted int64
	Keys                uint64 // with a history, deleted ones included
	Bytes, QuotaBytes   int64
	Full                bool // writes are refused until the alarm is taken back
}

// Raft asks what the agent is to the store.
func (c *Client) Raft(ctx context.Context) (RaftStatus, error) { return c.raft(ctx, false) }

// RaftPeers is Raft, where an agent that is no server asks one for the members.
func (c *Client) RaftPeers(ctx context.Context) (RaftStatus, error) { return c.raft(ctx, true) }

func (c *Client) raft(ctx context.Context, peers bool) (RaftStatus, error) {
	r, err := c.agent.Raft(ctx, &fairleadv1.RaftRequest{Peers: peers})
	if err != nil {
		return RaftStatus{}, c.callError("raft", err)
	}
	st := RaftStatus{
		Server: r.GetServer(), NotServer: r.GetNotServerReason(), ClusterID: r.GetClusterId(), ID: r.GetRaftId(),
		Role: raftRole(r.GetRole()), Term: r.GetTerm(), Leader: r.GetLeaderId(), LeaderName: r.GetLeaderName(),
		Commit: r.GetCommitIndex(), Applied: r.GetAppliedIndex(), Snapshot: r.GetSnapshotIndex(), LogBytes: r.GetLogBytes(),
		LastFailure: r.GetLastFailure(), NoSpace: r.GetNoSpace(), LowSpace: r.GetLowSpace(),
		Awaits: r.GetAwaits(), Lacks: r.GetLacks(), Unasked: r.GetUnasked(),
	}
	if at := r.GetJointSince(); at != nil {
		st.JointSince = at.AsTime()
	}
	for _, m := range r.GetMembers() {
		st.Members = append(st.Members, RaftMember{
			ID: m.GetId(), Name: m.GetName(), Addr: m.GetAddr(), Role: m.GetRole(),
			Match: m.GetMatchIndex(), MatchKnown: m.GetMatchKnown(), Active: m.GetActive(), Leaving: m.GetLeaving(),
		})
	}
	for _, k := range r.GetKeyspaces() {
		st.Keyspaces = append(st.Keyspaces, RaftKeyspace{
			Name: k.GetName(), Revision: k.GetRevision(), Compacted: k.GetCompactedRevision(), Keys: k.GetKeys(),
			Bytes: k.GetBytes(), QuotaBytes: k.GetQuotaBytes(), Full: k.GetFull(),
		})
	}
	if c := r.GetCopy(); c != nil {
		st.Copy = &RaftCopy{
			ClusterID: c.GetClusterId(), Revision: c.GetRevision(), Keys: c.GetKeys(), Age: c.GetAge().AsDuration(), AgeKnown: c.GetAge() != nil,
			Server: c.GetServer(), Address: c.GetAddress(), Problem: c.GetProblem(),
		}
	}
	return st, nil
}

// raftRole names a role; one of a newer agent, unknown here, shows its number.
func raftRole(r fairleadv1.RaftRole) string {
	switch r {
	case fairleadv1.RaftRole_RAFT_ROLE_UNSPECIFIED:
		return ""
	case fairleadv1.RaftRole_RAFT_ROLE_LEADER:
		return "leader"
	case fairleadv1.RaftRole_RAFT_ROLE_FOLLOWER:
		return "follower"
	case fairleadv1.RaftRole_RAFT_ROLE_CANDIDATE:
		return "candidate"
	case fairleadv1.RaftRole_RAFT_ROLE_LEARNER:
		return "learner"
	}
	return r.String()
}
