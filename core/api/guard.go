package api

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/fairleadv1"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// guard decides what may be called on a listener, and how much of it at a time.
// What etcd bounds, the store does.
type guard struct {
	access  Access
	streams atomic.Int64
}

// allow refuses what an access does not include. Reading is listed, so that a
// method added later is refused until somebody decides.
func (a Access) allow(method string) error {
	if a == AccessAll {
		return nil
	}
	switch method {
	case fairleadv1.Agent_Status_FullMethodName, fairleadv1.Agent_Members_FullMethodName, fairleadv1.Agent_Events_FullMethodName,
		fairleadv1.Agent_Services_FullMethodName, fairleadv1.Agent_Endpoints_FullMethodName, fairleadv1.Agent_Raft_FullMethodName,
		pb.SnapshotSource_Follow_FullMethodName, pb.SnapshotSource_Report_FullMethodName,
		healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName:
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s is answered on the agent's Unix socket only", method)
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if etcd.IsMethod(info.FullMethod) {
		return next(ctx, req)
	}
	if err := g.access.allow(info.FullMethod); err != nil {
		return nil, err
	}
	if err := bounded(req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if etcd.IsMethod(info.FullMethod) {
		return next(srv, stream)
	}
	if err := g.access.allow(info.FullMethod); err != nil {
		return err
	}
	defer g.streams.Add(-1)
	if g.streams.Add(1) > maxOwnStreams {
		return status.Errorf(codes.ResourceExhausted, "%d streams are open here already", maxOwnStreams)
	}
	return next(srv, boundedStream{stream})
}

// bounded refuses a request that is larger than any that makes sense.
func bounded(req any) error {
	m, ok := req.(proto.Message)
	if size := proto.Size(m); ok && size > maxRequestBytes {
		return status.Errorf(codes.ResourceExhausted, "the request has %d bytes, at most %d are taken", size, maxRequestBytes)
	}
	return nil
}

// boundedStream bounds what comes on a stream.
type boundedStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (b boundedStream) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return bounded(m)
}
