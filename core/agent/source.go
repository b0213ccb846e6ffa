package agent

import (
	"context"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/reconcile"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// source serves providers that pull from the session in force. When that ends
// their streams do, and they come again.
type source struct {
	pb.UnimplementedSnapshotSourceServer
	planes *planes
}

// follow is a stream that ends with a session, too.
type follow struct {
	grpc.ServerStreamingServer[pb.FollowResponse]
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (f follow) Context() context.Context { return f.ctx }

// Follow implements pb.SnapshotSourceServer.
func (s source) Follow(r *pb.FollowRequest, stream grpc.ServerStreamingServer[pb.FollowResponse]) error {
	now, session := s.planes.followed()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(session, cancel)()
	return now.Follow(r, follow{ServerStreamingServer: stream, ctx: ctx})
}

// Report implements pb.SnapshotSourceServer.
func (s source) Report(ctx context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	now, _ := s.planes.followed()
	return now.Report(ctx, r)
}

// followed returns the source of the session in force, and how long that lasts.
func (p *planes) followed() (*reconcile.Source, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source, p.inForce
}
