package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/server/serverpb"
)

// Peers is who takes part in the store, as a server says.
type Peers struct {
	Group, Leader, Term uint64
	Members             []PeerState
}

// PeerState is one of them, and how it does, if the leader could be asked.
type PeerState struct {
	Member
	Match      uint64
	MatchKnown bool
	Active     bool
}

// AskPeers asks a server, for a node that is none.
func AskPeers(ctx context.Context, conn grpc.ClientConnInterface) (Peers, error) {
	r, err := serverpb.NewServerClient(conn).Peers(ctx, &serverpb.PeersRequest{})
	if err != nil {
		return Peers{}, fmt.Errorf("server: %s", status.Convert(err).Message())
	}
	out := Peers{Group: r.GetGroup(), Leader: r.GetLeader(), Term: r.GetTerm()}
	for _, p := range r.GetPeers() {
		out.Members = append(out.Members, PeerState{
			Member: Member{ID: p.GetId(), Learner: p.GetLearner(), Record: Record{Name: p.GetName(), RPC: p.GetRpc()}},
			Match:  p.GetMatch(), MatchKnown: p.GetMatchKnown(), Active: p.GetActive(),
		})
	}
	return out, nil
}

// Peers implements serverpb.ServerServer.
func (s service) Peers(ctx context.Context, _ *serverpb.PeersRequest) (*serverpb.PeersResponse, error) {
	to := s.part.Server()
	if to == nil || !to.isMember() {
		return nil, status.Error(codes.FailedPrecondition, "server: this node is no server of the store now")
	}
	st := to.Status()
	out := &serverpb.PeersResponse{Group: st.Identity.Cluster, Leader: st.Leader, Term: st.Term}
	known, _ := s.part.Standing(ctx) // without the leader, the rest is told
	for _, m := range st.Members {
		p := &serverpb.Peer{Id: m.ID, Name: m.Name, Rpc: m.RPC, Learner: m.Learner}
		for _, k := range known.Members {
			if k.ID == m.ID {
				p.Match, p.MatchKnown, p.Active = k.Match, true, k.Active
			}
		}
		out.Peers = append(out.Peers, p)
	}
	return out, nil
}
