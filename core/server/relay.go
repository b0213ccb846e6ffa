package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
)

// relay stands at the agents' port for the transport of whatever server this node
// is: a port takes services before it serves, and servers come and go.
type relay struct {
	transportpb.UnimplementedTransportServer
	to atomic.Pointer[transportpb.TransportServer]
}

var _ grpc.ServiceRegistrar = (*relay)(nil)

var errNoServer = status.Error(codes.Unavailable, "server: this node is no server of the store now")

// newRelay registers one at a port.
func newRelay(port grpc.ServiceRegistrar) *relay {
	r := &relay{}
	transportpb.RegisterTransportServer(port, r)
	return r
}

// RegisterService implements grpc.ServiceRegistrar, for a transport.
func (r *relay) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if t, ok := impl.(transportpb.TransportServer); ok {
		r.to.Store(&t)
	}
}

// Messages implements transportpb.TransportServer.
func (r *relay) Messages(s grpc.ClientStreamingServer[transportpb.MessagesRequest, transportpb.MessagesResponse]) error {
	if to := r.to.Load(); to != nil {
		return (*to).Messages(s)
	}
	return errNoServer
}

// Snapshot implements transportpb.TransportServer.
func (r *relay) Snapshot(s grpc.ClientStreamingServer[transportpb.SnapshotRequest, transportpb.SnapshotResponse]) error {
	if to := r.to.Load(); to != nil {
		return (*to).Snapshot(s)
	}
	return errNoServer
}

// Ask implements transportpb.TransportServer.
func (r *relay) Ask(ctx context.Context, q *transportpb.AskRequest) (*transportpb.AskResponse, error) {
	if to := r.to.Load(); to != nil {
		return (*to).Ask(ctx, q)
	}
	return nil, errNoServer
}
