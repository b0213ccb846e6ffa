package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// Servers changes who keeps the store. A server is named by its name or its raft id.
// Errors are Refusals where somebody may do something about it.
type Servers interface {
	// Transfer hands the leadership to a voter, and returns who leads then.
	Transfer(ctx context.Context, server string) (RaftMember, error)
	// Remove asks for a removal, or takes that back, and tells how it goes until it is
	// over. The wish stands if ctx ends before.
	Remove(ctx context.Context, r RaftRemove, tell func(RaftRemoved) error) error
	// Recover gives a cluster up that this node waits for, "" for the one that it does,
	// and returns which.
	Recover(ctx context.Context, cluster string) (string, error)
	// Follow has this agent follow servers of a cluster that it refuses, and returns what
	// it has then.
	Follow(ctx context.Context, cluster string) (RaftFollowed, error)
	// Depart removes this node from the servers, before it leaves, and says what became
	// of its part; nothing if it has none. If ctx ends before that is over, nothing
	// happened, or the error says what.
	Depart(ctx context.Context, force bool) (string, error)
}

// RaftFollowed is what came of following servers that were refused.
type RaftFollowed struct {
	Revision    int64
	Keys        int
	WasCluster  string // of the copy before, in hexadecimal; empty: there was none
	WasRevision int64
	KeptAs      string // the file that has the copy before; empty: none
}

// RaftRemove says which server is to be removed.
type RaftRemove struct {
	Server string
	Force  bool // also if nobody takes its place
	Cancel bool // take the wish back instead
}

// RaftRemoved is how far a removal is.
type RaftRemoved struct {
	ID    uint64
	Name  string
	State RaftRemoval
	Why   string // what is waited for
}

// RaftRemoval is a step of a removal.
type RaftRemoval uint8

// The steps.
const (
	_                RaftRemoval = iota
	RemovalAsked                 // the wish is written
	RemovalLeft                  // it is no member any more, and still needed
	RemovalGone                  // it is not needed any more
	RemovalCancelled             // the wish was taken back
)

// servers returns the backend's.
func (s *service) servers() (Servers, error) {
	if s.backend.Servers == nil {
		return nil, status.Error(codes.FailedPrecondition, "this agent has no store")
	}
	return s.backend.Servers, nil
}

// serversError gives an error of Servers its code.
func serversError(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended).Err()
	}
	return refusal(err)
}

// RaftTransfer implements fairleadv1.AgentServer.
func (s *service) RaftTransfer(ctx context.Context, r *fairleadv1.RaftTransferRequest) (*fairleadv1.RaftTransferResponse, error) {
	servers, err := s.servers()
	if err != nil {
		return nil, err
	}
	leads, err := servers.Transfer(ctx, r.GetServer())
	if err != nil {
		return nil, serversError(ctx, err)
	}
	return &fairleadv1.RaftTransferResponse{LeaderId: leads.ID, LeaderName: leads.Name}, nil
}

// RaftRemove implements fairleadv1.AgentServer.
func (s *service) RaftRemove(r *fairleadv1.RaftRemoveRequest, stream fairleadv1.Agent_RaftRemoveServer) error {
	servers, err := s.servers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	err = servers.Remove(ctx, RaftRemove{Server: r.GetServer(), Force: r.GetForce(), Cancel: r.GetCancel()}, func(st RaftRemoved) error {
		return stream.Send(&fairleadv1.RaftRemoveResponse{Id: st.ID, Name: st.Name, State: fairleadv1.RaftRemoval(st.State), Why: st.Why})
	})
	switch {
	case err == nil:
		return nil
	case s.stopping.Err() != nil:
		return errStopping
	}
	return serversError(ctx, err)
}

// RaftRecover implements fairleadv1.AgentServer.
func (s *service) RaftRecover(ctx context.Context, r *fairleadv1.RaftRecoverRequest) (*fairleadv1.RaftRecoverResponse, error) {
	servers, err := s.servers()
	if err != nil {
		return nil, err
	}
	cluster, err := servers.Recover(ctx, r.GetCluster())
	if err != nil {
		return nil, serversError(ctx, err)
	}
	return &fairleadv1.RaftRecoverResponse{Cluster: cluster}, nil
}

// RaftFollow implements fairleadv1.AgentServer.
func (s *service) RaftFollow(ctx context.Context, r *fairleadv1.RaftFollowRequest) (*fairleadv1.RaftFollowResponse, error) {
	servers, err := s.servers()
	if err != nil {
		return nil, err
	}
	got, err := servers.Follow(ctx, r.GetCluster())
	if err != nil {
		return nil, serversError(ctx, err)
	}
	return &fairleadv1.RaftFollowResponse{
		Revision: got.Revision, Keys: uint64(max(got.Keys, 0)), WasCluster: got.WasCluster, WasRevision: got.WasRevision, KeptAs: got.KeptAs,
	}, nil
}
