package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// serving answers gRPC's own question for health, as etcd does: whoever answers is
// serving. Whether the store has a leader, its own calls say.
type serving struct {
	healthpb.UnimplementedHealthServer
	stopping context.Context
}

// Check implements healthpb.HealthServer.
func (serving) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if r.Service != "" {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// Watch implements healthpb.HealthServer.
func (s serving) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	now := healthpb.HealthCheckResponse_SERVING
	if r.Service != "" {
		now = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
		return err
	}
	select {
	case <-s.stopping.Done():
		return status.Error(codes.Unavailable, "the agent stops")
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}
