package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/server/serverpb"
)

// service is what other nodes ask.
type service struct {
	serverpb.UnimplementedServerServer
	part *Part
}

var _ serverpb.ServerServer = service{}

// Form implements serverpb.ServerServer.
func (s service) Form(ctx context.Context, r *serverpb.FormRequest) (*serverpb.FormResponse, error) {
	m, err := formation.DecodeMessage(r.GetMessage())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	node, ok := transport.PeerNode(ctx)
	switch {
	case !ok || node.ID != m.From.String():
		return nil, status.Errorf(codes.PermissionDenied, "server: a word of node %s, brought by node %s", m.From, node.ID)
	case m.To != s.part.cfg.NodeID:
		return nil, status.Errorf(codes.FailedPrecondition, "server: a word for node %s, this is %s: it was started anew", m.To, s.part.cfg.NodeID)
	}
	select {
	case s.part.messages <- m:
		return &serverpb.FormResponse{}, nil
	default:
		return nil, status.Error(codes.ResourceExhausted, "server: too many words wait")
	}
}

// of returns the server of a group that this node is.
func (s service) of(group uint64) (*Server, error) {
	if to := s.part.Server(); to != nil && to.identity.Cluster == group {
		return to, nil
	}
	return nil, status.Error(codes.FailedPrecondition, "server: this node is no server of that group")
}

// Retired implements serverpb.ServerServer.
func (s service) Retired(ctx context.Context, r *serverpb.RetiredRequest) (*serverpb.RetiredResponse, error) {
	to, err := s.of(r.GetGroup())
	if err != nil {
		return nil, err
	}
	v, err := to.Read(ctx) // what is old here may be too little
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	_, unneeded := raft.RetiredIn(v, r.GetId())
	return &serverpb.RetiredResponse{Unneeded: unneeded}, nil
}

// Known implements serverpb.ServerServer. What is said here may be old: it is asked
// also by those who are needed for anything newer.
func (s service) Known(_ context.Context, r *serverpb.KnownRequest) (*serverpb.KnownResponse, error) {
	to := s.part.Server()
	if to == nil || len(to.identity.Set) == 0 {
		return &serverpb.KnownResponse{}, nil
	}
	rec, published := publishedBy(to.View())[r.GetId()]
	return &serverpb.KnownResponse{Known: published && rec.Name == r.GetName()}, nil
}

// Transfer implements serverpb.ServerServer.
func (s service) Transfer(ctx context.Context, r *serverpb.TransferRequest) (*serverpb.TransferResponse, error) {
	to, err := s.of(r.GetGroup())
	if err != nil {
		return nil, err
	}
	if err := to.Host.Transfer(ctx, r.GetTo()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &serverpb.TransferResponse{}, nil
}

// Standing implements serverpb.ServerServer.
func (s service) Standing(_ context.Context, r *serverpb.StandingRequest) (*serverpb.StandingResponse, error) {
	to, err := s.of(r.GetGroup())
	if err != nil {
		return nil, err
	}
	st, err := s.part.standing(to)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if st.Members == nil {
		return nil, status.Error(codes.FailedPrecondition, "server: this one does not lead")
	}
	return st.encode(), nil
}
