package api

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// Raft tells what this agent is to the store.
type Raft interface {
	// Raft is called for each request. It may ask the leader, shortly; with peers, an
	// agent that knows no members of its own asks a server for them.
	Raft(ctx context.Context, peers bool) RaftStatus
}

// RaftStatus is what an agent knows of the group of servers.
type RaftStatus struct {
	// NotServer says why this agent is no server; empty if it is one. Then most
	// fields are zero.
	NotServer string

	ClusterID       string // in hexadecimal
	ID              uint64 // of this server
	Role            RaftRole
	Term            uint64
	Leader          uint64 // 0: nobody, as far as is known
	LeaderName      string
	Commit, Applied uint64
	Snapshot        uint64 // index of the newest; 0: none
	LogBytes        uint64 // on disk
	LastFailure     string
	NoSpace         bool     // writes are refused for want of room on disks
	LowSpace        []string // names of servers with little room
	Members         []RaftMember
	Keyspaces       []RaftKeyspace
	Copy            *RaftCopy // nil: there is none

	Awaits     string    // what this node waits for to become a server, or what is wrong with the group
	Lacks      string    // what the servers lack of what is aimed at
	JointSince time.Time // of a change of the servers under way; zero: there is none
	Unasked    string    // why nothing is here that only the leader knows
}

// RaftCopy is what an agent knows of the system keyspace.
type RaftCopy struct {
	ClusterID string // in hexadecimal; empty: nothing is known yet
	Revision  int64
	Keys      int
	// Age is the time since it was known to be the newest there is; AgeKnown is false
	// if it never was.
	Age             time.Duration
	AgeKnown        bool
	Server, Address string // whom it comes from; empty: nobody now
	Problem         string // why
}

// RaftRole is what a server is in its group.
type RaftRole uint8

// The roles.
const (
	RaftNone RaftRole = iota
	RaftLeader
	RaftFollower
	RaftCandidate
	RaftLearner
)

// RaftMember is one server of the group.
type RaftMember struct {
	ID         uint64
	Name       string
	Addr       string // where other agents reach it
	Role       string // leader, voter, learner
	Match      uint64 // known on the leader only, as is Active
	MatchKnown bool
	Active     bool // it was heard of lately
	Leaving    bool // somebody asked for its removal
}

// RaftKeyspace is how full a keyspace is.
type RaftKeyspace struct {
	Name                string // user, system
	Revision, Compacted int64
	Keys                int
	Bytes, QuotaBytes   int64
	Full                bool
}

// Raft implements fairleadv1.AgentServer.
func (s *service) Raft(ctx context.Context, r *fairleadv1.RaftRequest) (*fairleadv1.RaftResponse, error) {
	if s.backend.Raft == nil {
		return nil, status.Error(codes.FailedPrecondition, "this agent has no store")
	}
	st := s.backend.Raft.Raft(ctx, r.GetPeers())
	out := &fairleadv1.RaftResponse{
		Server: st.NotServer == "", NotServerReason: st.NotServer, ClusterId: st.ClusterID, RaftId: st.ID,
		Role: fairleadv1.RaftRole(st.Role), Term: st.Term, LeaderId: st.Leader, LeaderName: st.LeaderName,
		CommitIndex: st.Commit, AppliedIndex: st.Applied, SnapshotIndex: st.Snapshot, LogBytes: st.LogBytes,
		LastFailure: st.LastFailure, NoSpace: st.NoSpace, LowSpace: st.LowSpace,
		Awaits: st.Awaits, Lacks: st.Lacks, Unasked: st.Unasked,
	}
	if !st.JointSince.IsZero() {
		out.JointSince = timestamppb.New(st.JointSince)
	}
	for _, m := range st.Members {
		out.Members = append(out.Members, &fairleadv1.RaftMember{
			Id: m.ID, Name: m.Name, Addr: m.Addr, Role: m.Role, MatchIndex: m.Match, MatchKnown: m.MatchKnown, Active: m.Active, Leaving: m.Leaving,
		})
	}
	for _, k := range st.Keyspaces {
		out.Keyspaces = append(out.Keyspaces, &fairleadv1.RaftKeyspace{
			Name: k.Name, Revision: k.Revision, CompactedRevision: k.Compacted, Keys: uint64(max(k.Keys, 0)),
			Bytes: k.Bytes, QuotaBytes: k.QuotaBytes, Full: k.Full,
		})
	}
	if c := st.Copy; c != nil {
		out.Copy = &fairleadv1.RaftCopy{
			ClusterId: c.ClusterID, Revision: c.Revision, Keys: uint64(max(c.Keys, 0)), Server: c.Server, Address: c.Address, Problem: c.Problem,
		}
		if c.AgeKnown {
			out.Copy.Age = durationpb.New(c.Age)
		}
	}
	return out, nil
}
