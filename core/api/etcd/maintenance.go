package etcd

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/store"
)

// version is that of the API that is served: what clients may expect of it.
const version = "3.6.0"

// Status implements pb.MaintenanceServer.
func (s *face) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v, st := s.cfg.Store.View(), s.cfg.Store.Status()
	stats := v.Stats(k)
	applied, _ := v.Applied()
	out := &pb.StatusResponse{
		Header: s.header(stats.Revision), Version: version, DbSize: stats.Bytes, DbSizeInUse: stats.Bytes, DbSizeQuota: stats.QuotaBytes,
		Leader: st.Leader, RaftIndex: max(st.Index, applied), RaftTerm: st.Term, RaftAppliedIndex: applied,
	}
	if stats.Full {
		out.Errors = append(out.Errors, (&pb.AlarmMember{MemberID: st.MemberID, Alarm: pb.AlarmType_NOSPACE}).String())
	}
	if st.Leader == 0 {
		out.Errors = append(out.Errors, rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader))
	}
	for _, m := range st.Members {
		out.IsLearner = out.IsLearner || m.ID == st.MemberID && m.Learner
	}
	return out, nil
}

// Alarm implements pb.MaintenanceServer. The one alarm there is, of a keyspace
// that is full, comes by itself and is ended here.
func (s *face) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	switch r.Action {
	case pb.AlarmRequest_GET:
		v, err := s.view(ctx, false)
		if err != nil {
			return nil, err
		}
		stats := v.Stats(k)
		out := &pb.AlarmResponse{Header: s.header(stats.Revision)}
		if stats.Full && r.Alarm != pb.AlarmType_CORRUPT {
			out.Alarms = s.noSpace()
		}
		return out, nil
	case pb.AlarmRequest_DEACTIVATE:
		was := s.cfg.Store.View().Stats(k).Full
		done, err := s.propose(ctx, store.Command{Space: k, Disarm: &store.Disarm{}})
		if err != nil {
			return nil, err
		}
		out := &pb.AlarmResponse{Header: s.header(done.Revision)}
		if was {
			out.Alarms = s.noSpace()
		}
		return out, nil
	}
	return nil, status.Error(codes.Unimplemented, "fairlead: alarms are raised by the store itself")
}

func (s *face) noSpace() []*pb.AlarmMember {
	return []*pb.AlarmMember{{MemberID: s.cfg.Store.Header().MemberID, Alarm: pb.AlarmType_NOSPACE}}
}

// Defragment implements pb.MaintenanceServer: there is nothing to be done.
func (s *face) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.DefragmentResponse{Header: s.header(s.cfg.Store.View().Stats(k).Revision)}, nil
}

// Hash implements pb.MaintenanceServer.
func (s *face) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v := s.cfg.Store.View()
	sum, at, _, err := v.HashAt(k, 0)
	if err != nil {
		return nil, wireError(err)
	}
	return &pb.HashResponse{Header: s.header(at), Hash: sum}, nil
}

// HashKV implements pb.MaintenanceServer.
func (s *face) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v := s.cfg.Store.View()
	sum, at, compacted, err := v.HashAt(k, r.Revision)
	if err != nil {
		return nil, wireError(err)
	}
	if compacted == 0 {
		compacted = -1 // never
	}
	return &pb.HashKVResponse{Header: s.header(v.Stats(k).Revision), Hash: sum, CompactRevision: compacted, HashRevision: at}, nil
}

// Snapshot implements pb.MaintenanceServer: it sends a backup, see
// store.View.Backup; of the user's keyspace alone to those who may see no other,
// or who ask for that one by its name.
func (s *face) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	if _, err := s.enter(stream.Context()); err != nil {
		return err
	}
	v, err := s.view(stream.Context(), false)
	if err != nil {
		return err
	}
	if s.reach == UserOnly || named(stream.Context()) == userName {
		v = v.UserOnly()
	}
	return v.Backup(func(p []byte, remaining uint64) error {
		return stream.Send(&pb.SnapshotResponse{Blob: bytes.Clone(p), RemainingBytes: remaining, Version: version})
	})
}

// MoveLeader implements pb.MaintenanceServer.
func (s *face) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	st := s.cfg.Store.Status()
	if st.Leader != st.MemberID {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	for _, m := range st.Members {
		if m.ID != r.TargetID || m.Learner {
			continue
		}
		ctx, cancel := bounded(ctx)
		defer cancel()
		if err := s.cfg.Store.Transfer(ctx, r.TargetID); err != nil {
			return nil, wireError(err)
		}
		return &pb.MoveLeaderResponse{Header: s.header(s.cfg.Store.View().Stats(store.User).Revision)}, nil
	}
	return nil, rpctypes.ErrGRPCBadLeaderTransferee
}

// MemberList implements pb.ClusterServer.
func (s *face) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	if r.Linearizable {
		if _, err := s.view(ctx, false); err != nil {
			return nil, err
		}
	}
	st := s.cfg.Store.Status()
	out := &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: st.ClusterID, MemberId: st.MemberID, RaftTerm: st.Term}}
	for _, m := range st.Members {
		out.Members = append(out.Members, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.Learner})
	}
	return out, nil
}
