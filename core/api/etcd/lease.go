package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fairlead/fairlead/core/store"
)

// LeaseGrant implements pb.LeaseServer.
func (s *face) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if r.TTL > store.MaxTTLSeconds {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	ttl := max(r.TTL, int64((s.cfg.MinLease+time.Second-1)/time.Second))
	for {
		id := store.LeaseID(r.ID)
		if id == 0 {
			id = 1 + store.LeaseID(rand.Int64N(1<<62))
		}
		done, err := s.propose(ctx, store.Command{Space: k, Grant: &store.Grant{ID: id, TTLSeconds: ttl}})
		if r.ID == 0 && errors.Is(err, rpctypes.ErrGRPCLeaseExist) {
			continue // drawn twice
		}
		if err != nil {
			return nil, err
		}
		return &pb.LeaseGrantResponse{Header: s.header(done.Revision), ID: int64(id), TTL: ttl}, nil
	}
}

// LeaseRevoke implements pb.LeaseServer.
func (s *face) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.propose(ctx, store.Command{Space: k, Revoke: &store.Revoke{ID: store.LeaseID(r.ID)}})
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.header(done.Revision)}, nil
}

// LeaseKeepAlive implements pb.LeaseServer. A lease that is not there is answered
// with a time of 0.
func (s *face) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	k, err := s.enter(stream.Context())
	if err != nil {
		return err
	}
	requests, failed := receive(stream)
	for {
		var r *pb.LeaseKeepAliveRequest
		select {
		case r = <-requests:
		case err := <-failed:
			return err
		case <-s.stop:
			return rpctypes.ErrGRPCStopped
		}
		ctx, cancel := bounded(stream.Context())
		ttl, there, err := s.cfg.Store.Renew(ctx, store.Lease{Space: k, ID: store.LeaseID(r.ID)})
		cancel()
		if err != nil {
			return wireError(err)
		}
		out := &pb.LeaseKeepAliveResponse{Header: s.header(s.cfg.Store.View().Stats(k).Revision), ID: r.ID}
		if there {
			out.TTL = int64((ttl + time.Second - 1) / time.Second) // one that was granted just now has lost some of it
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive implements pb.LeaseServer. A lease that is not there has -1.
func (s *face) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx, false)
	if err != nil {
		return nil, err
	}
	out := &pb.LeaseTimeToLiveResponse{Header: s.header(v.Stats(k).Revision), ID: r.ID, TTL: -1}
	info, there := v.Lease(k, store.LeaseID(r.ID))
	if !there {
		return out, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	left, there, err := s.cfg.Store.Left(ctx, store.Lease{Space: k, ID: info.ID})
	if err != nil {
		return nil, wireError(err)
	}
	if !there {
		return out, nil
	}
	out.TTL, out.GrantedTTL = int64(left/time.Second), info.TTLSeconds
	if r.Keys {
		for _, key := range info.Keys {
			out.Keys = append(out.Keys, []byte(key))
		}
	}
	return out, nil
}

// LeaseLeases implements pb.LeaseServer.
func (s *face) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx, false)
	if err != nil {
		return nil, err
	}
	out := &pb.LeaseLeasesResponse{Header: s.header(v.Stats(k).Revision)}
	v.Leases(k, func(id store.LeaseID, _ int64) bool {
		out.Leases = append(out.Leases, &pb.LeaseStatus{ID: int64(id)})
		return true
	})
	return out, nil
}
