package api

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

var _ fairleadv1.AgentServer = (*service)(nil)

// service answers fairlead.v1. Access is decided before a call gets here.
type service struct {
	fairleadv1.UnimplementedAgentServer
	backend Backend
	// stopping ends streams that follow, so that a graceful stop need not wait
	// for their readers.
	stopping context.Context
}

// Status implements fairleadv1.AgentServer.
func (s *service) Status(context.Context, *fairleadv1.StatusRequest) (*fairleadv1.StatusResponse, error) {
	st := s.backend.Identity.Status()
	resp := &fairleadv1.StatusResponse{
		Id:             uint64(st.ID),
		Name:           st.Name,
		Cluster:        st.Cluster,
		Addr:           addrText(st.Addr),
		Version:        st.Version,
		GoVersion:      runtime.Version(),
		Pid:            int64(os.Getpid()),
		Started:        timestamppb.New(st.Started),
		Ready:          st.NotReady == "",
		NotReadyReason: st.NotReady,
	}
	for _, l := range st.Listeners {
		resp.Listeners = append(resp.Listeners, &fairleadv1.Listener{Name: l.Name, Address: l.Address})
	}
	return resp, nil
}

// Members implements fairleadv1.AgentServer.
func (s *service) Members(context.Context, *fairleadv1.MembersRequest) (*fairleadv1.MembersResponse, error) {
	version, members := s.backend.Members.Members()
	return &fairleadv1.MembersResponse{Version: version, Members: membersToProto(members)}, nil
}

// Events implements fairleadv1.AgentServer.
func (s *service) Events(req *fairleadv1.EventsRequest, stream fairleadv1.Agent_EventsServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()

	for event, err := range s.backend.Events.Events(ctx, req.GetAfterSeq(), req.GetFollow()) {
		if err != nil {
			return s.streamError(ctx, err)
		}
		if err := stream.Send(eventToProto(event)); err != nil {
			return err
		}
	}
	if s.stopping.Err() != nil && req.GetFollow() {
		return errStopping
	}
	return nil
}

func (s *service) streamError(ctx context.Context, err error) error {
	switch {
	case s.stopping.Err() != nil:
		return errStopping
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	default:
		return status.Error(codes.Internal, err.Error())
	}
}

// Leave implements fairleadv1.AgentServer.
func (s *service) Leave(ctx context.Context, req *fairleadv1.LeaveRequest) (*fairleadv1.LeaveResponse, error) {
	st := s.backend.Identity.Status()
	leave := s.backend.Leaver.Leave
	if hold := time.Duration(req.GetHoldMs()) * time.Millisecond; hold > 0 {
		leave = func(ctx context.Context) error { return s.backend.Leaver.Restart(ctx, hold) }
	}
	var server string
	err := error(nil)
	if s.backend.Servers != nil && req.GetHoldMs() == 0 {
		server, err = s.backend.Servers.Depart(ctx, req.GetForce())
	}
	if err == nil {
		err = leave(ctx)
	}
	if err != nil {
		switch {
		case errors.Is(err, ctx.Err()) && ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		case errors.Is(err, ErrNoRestart):
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		return nil, refusal(err)
	}
	return &fairleadv1.LeaveResponse{Id: uint64(st.ID), Name: st.Name, Server: server}, nil
}

// Config implements fairleadv1.AgentServer.
func (s *service) Config(context.Context, *fairleadv1.ConfigRequest) (*fairleadv1.ConfigResponse, error) {
	resp := &fairleadv1.ConfigResponse{}
	for _, e := range s.backend.Settings.Settings() {
		resp.Entries = append(resp.Entries, &fairleadv1.ConfigEntry{Key: e.Key, Value: e.Value, Origin: e.Origin})
	}
	return resp, nil
}

// errStopping tells a follower that the agent stops, not that it failed.
var errStopping = status.Error(codes.Unavailable, "the agent stops")
