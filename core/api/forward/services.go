package forward

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api/etcd"
)

// unimplemented answers what servers do not answer either.
type unimplemented struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
}

var _ etcd.Services = (*face)(nil)

// Face implements etcd.Backend.
func (f *Forwarder) Face(r etcd.Reach) etcd.Services { return &face{Forwarder: f, reach: r} }

func unless(isLocal bool) kind {
	if isLocal {
		return local
	}
	return read
}

// Range implements pb.KVServer.
func (f *face) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	return call[pb.RangeRequest, pb.RangeResponse](ctx, f, unless(q.Serializable), pb.KV_Range_FullMethodName, q)
}

// Put implements pb.KVServer.
func (f *face) Put(ctx context.Context, q *pb.PutRequest) (*pb.PutResponse, error) {
	return call[pb.PutRequest, pb.PutResponse](ctx, f, write, pb.KV_Put_FullMethodName, q)
}

// DeleteRange implements pb.KVServer.
func (f *face) DeleteRange(ctx context.Context, q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return call[pb.DeleteRangeRequest, pb.DeleteRangeResponse](ctx, f, write, pb.KV_DeleteRange_FullMethodName, q)
}

// Txn implements pb.KVServer.
func (f *face) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	k := write
	if etcd.OnlyReads(q) {
		k = unless(etcd.Serializable(q))
	}
	return call[pb.TxnRequest, pb.TxnResponse](ctx, f, k, pb.KV_Txn_FullMethodName, q)
}

// Compact implements pb.KVServer.
func (f *face) Compact(ctx context.Context, q *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return call[pb.CompactionRequest, pb.CompactionResponse](ctx, f, write, pb.KV_Compact_FullMethodName, q)
}

// Watch implements pb.WatchServer.
func (f *face) Watch(s pb.Watch_WatchServer) error {
	return pipe[pb.WatchRequest, pb.WatchResponse](f, s, pb.Watch_Watch_FullMethodName, nil)
}

// LeaseGrant implements pb.LeaseServer.
func (f *face) LeaseGrant(ctx context.Context, q *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return call[pb.LeaseGrantRequest, pb.LeaseGrantResponse](ctx, f, write, pb.Lease_LeaseGrant_FullMethodName, q)
}

// LeaseRevoke implements pb.LeaseServer.
func (f *face) LeaseRevoke(ctx context.Context, q *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return call[pb.LeaseRevokeRequest, pb.LeaseRevokeResponse](ctx, f, write, pb.Lease_LeaseRevoke_FullMethodName, q)
}

// LeaseKeepAlive implements pb.LeaseServer.
func (f *face) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	return pipe[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse](f, s, pb.Lease_LeaseKeepAlive_FullMethodName, nil)
}

// LeaseTimeToLive implements pb.LeaseServer.
func (f *face) LeaseTimeToLive(ctx context.Context, q *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return call[pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse](ctx, f, read, pb.Lease_LeaseTimeToLive_FullMethodName, q)
}

// LeaseLeases implements pb.LeaseServer.
func (f *face) LeaseLeases(ctx context.Context, q *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return call[pb.LeaseLeasesRequest, pb.LeaseLeasesResponse](ctx, f, read, pb.Lease_LeaseLeases_FullMethodName, q)
}

// Alarm implements pb.MaintenanceServer.
func (f *face) Alarm(ctx context.Context, q *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	k := write
	if q.Action == pb.AlarmRequest_GET {
		k = read
	}
	return call[pb.AlarmRequest, pb.AlarmResponse](ctx, f, k, pb.Maintenance_Alarm_FullMethodName, q)
}

// Status implements pb.MaintenanceServer. It is about the server that calls go to
// now.
func (f *face) Status(ctx context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	return call[pb.StatusRequest, pb.StatusResponse](ctx, f, local, pb.Maintenance_Status_FullMethodName, q)
}

// Defragment implements pb.MaintenanceServer.
func (f *face) Defragment(ctx context.Context, q *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return call[pb.DefragmentRequest, pb.DefragmentResponse](ctx, f, local, pb.Maintenance_Defragment_FullMethodName, q)
}

// Hash implements pb.MaintenanceServer.
func (f *face) Hash(ctx context.Context, q *pb.HashRequest) (*pb.HashResponse, error) {
	return call[pb.HashRequest, pb.HashResponse](ctx, f, local, pb.Maintenance_Hash_FullMethodName, q)
}

// HashKV implements pb.MaintenanceServer.
func (f *face) HashKV(ctx context.Context, q *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return call[pb.HashKVRequest, pb.HashKVResponse](ctx, f, local, pb.Maintenance_HashKV_FullMethodName, q)
}

// Snapshot implements pb.MaintenanceServer.
func (f *face) Snapshot(q *pb.SnapshotRequest, s pb.Maintenance_SnapshotServer) error {
	return pipe[pb.SnapshotRequest, pb.SnapshotResponse](f, s, pb.Maintenance_Snapshot_FullMethodName, q)
}

// MoveLeader implements pb.MaintenanceServer. Only the leader does it, and is looked
// for.
func (f *face) MoveLeader(ctx context.Context, q *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	return call[pb.MoveLeaderRequest, pb.MoveLeaderResponse](ctx, f, write, pb.Maintenance_MoveLeader_FullMethodName, q)
}

// MemberList implements pb.ClusterServer.
func (f *face) MemberList(ctx context.Context, q *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return call[pb.MemberListRequest, pb.MemberListResponse](ctx, f, unless(!q.Linearizable), pb.Cluster_MemberList_FullMethodName, q)
}
