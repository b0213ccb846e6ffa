package etcd

import (
	"context"
	"errors"
	"io"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/store"
)

// Services are those of etcd v3 that are served.
type Services interface {
	pb.KVServer
	pb.WatchServer
	pb.LeaseServer
	pb.MaintenanceServer
	pb.ClusterServer
}

// descriptions are of the Services.
func descriptions() []grpc.ServiceDesc {
	return []grpc.ServiceDesc{
		pb.KV_ServiceDesc, pb.Watch_ServiceDesc, pb.Lease_ServiceDesc, pb.Maintenance_ServiceDesc, pb.Cluster_ServiceDesc,
	}
}

// IsMethod reports whether a method, as gRPC names it, is one of the Services.
func IsMethod(full string) bool { return strings.HasPrefix(full, "/etcdserverpb.") }

// Reach says which keyspaces a face gives access to.
type Reach uint8

// What may be reached.
const (
	// UserOnly is the user's keyspace. Who names the system's is refused.
	UserOnly Reach = iota
	// ByMetadata is the keyspace that the metadata of a call names by
	// KeyspaceKey; the user's if there is none.
	ByMetadata
)

// KeyspaceKey names the keyspace that a call is about in its metadata: user or
// system.
const KeyspaceKey = "fairlead-keyspace"

const (
	userName   = "user"
	systemName = "system"
)

// named returns the keyspace that the metadata of a call names.
func named(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, KeyspaceKey); len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// Keyspace returns the keyspace that a call is about, or why it may not be.
func (r Reach) Keyspace(ctx context.Context) (store.Keyspace, error) {
	switch name := named(ctx); {
	case name == "", name == userName:
		return store.User, nil
	case name != systemName:
		return 0, status.Errorf(codes.InvalidArgument, "%s is %q: it names a keyspace, user or system", KeyspaceKey, name)
	case r != ByMetadata:
		return 0, status.Error(codes.PermissionDenied, "the system's keyspace is reached by the agent's Unix socket only")
	}
	return store.System, nil
}

// face is a Server as a listener shows it.
type face struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
	*Server

	reach Reach
}

var _ Services = (*face)(nil)

// Face returns the services for a listener that gives this access.
func (s *Server) Face(r Reach) Services { return &face{Server: s, reach: r} }

// enter returns the keyspace that a call is about. A client may demand that there
// is a leader, and is told at once if there is none.
func (s *face) enter(ctx context.Context) (store.Keyspace, error) {
	k, err := s.reach.Keyspace(ctx)
	if err == nil && wantsLeader(ctx) && s.cfg.Store.Header().Leader == 0 {
		err = rpctypes.ErrGRPCNoLeader
	}
	return k, err
}

// receive takes what a stream brings, so that its reader can wait for something
// else as well. It ends with the stream; failed is nil if the client is done.
func receive[Q, R any](stream grpc.BidiStreamingServer[Q, R]) (requests <-chan *Q, failed <-chan error) {
	out, end := make(chan *Q), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				end <- nil
				return
			case err != nil:
				end <- err
				return
			}
			select {
			case out <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return out, end
}
