package etcd

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/store"
)

func TestReach(t *testing.T) {
	for _, c := range []struct {
		reach Reach
		name  string // - is none
		want  store.Keyspace
		code  codes.Code
	}{
		{UserOnly, "-", store.User, codes.OK},
		{UserOnly, "user", store.User, codes.OK},
		{UserOnly, "system", 0, codes.PermissionDenied},
		{UserOnly, "System", 0, codes.InvalidArgument},
		{ByMetadata, "-", store.User, codes.OK},
		{ByMetadata, "user", store.User, codes.OK},
		{ByMetadata, "system", store.System, codes.OK},
		{ByMetadata, "both", 0, codes.InvalidArgument},
	} {
		ctx := t.Context()
		if c.name != "-" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(KeyspaceKey, c.name))
		}
		if k, err := c.reach.Keyspace(ctx); k != c.want || status.Code(err) != c.code {
			t.Errorf("%v, %s: %v, %v", c.reach, c.name, k, err)
		}
	}
}

// Whatever is behind a front, every method of every service reaches it or is told
// why there is nobody.
func TestFront(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1")
	if !IsMethod(pb.KV_Put_FullMethodName) || !IsMethod(pb.Cluster_MemberList_FullMethodName) || IsMethod("/fairlead.v1.Agent/Status") {
		t.Error("IsMethod")
	}
	w.front.Unset("the server failed: disk")
	_, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a")})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the server failed: disk") || !NotDone(err) {
		t.Errorf("%v", err)
	}
	s, err := w.watch.Watch(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !NotDone(err) {
		t.Errorf("%v", err)
	}
	w.front.Set(w.server)
	if r, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a")}); err != nil || r.Count != 1 {
		t.Errorf("%v, %v", r, err)
	}
	w.front.Stop()
	w.front.Set(w.server)
	if _, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a")}); !NotDone(err) {
		t.Errorf("a front that was stopped: %v", err)
	}
}

// Stop ends what would go on for ever.
func TestStopEndsStreams(t *testing.T) {
	w := newWorld(t)
	watch := w.stream(w.ctx())
	watch.create(&pb.WatchCreateRequest{Key: []byte("a")})
	lease, err := w.lease.LeaseKeepAlive(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Send(&pb.LeaseKeepAliveRequest{ID: 9}); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Recv(); err != nil {
		t.Fatal(err)
	}
	w.server.Stop()
	for _, end := range []func() error{
		func() error { _, err := watch.Recv(); return err },
		func() error { _, err := lease.Recv(); return err },
	} {
		if err := end(); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped) {
			t.Errorf("%v", err)
		}
	}
}

// Who demands a leader is told at once that there is none.
func TestCallsMayDemandALeader(t *testing.T) {
	w := newWorld(t)
	w.hide(true)
	demanding := metadata.AppendToOutgoingContext(w.ctx(), rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	if _, err := w.kv.Put(demanding, &pb.PutRequest{Key: []byte("a")}); !NotDone(err) {
		t.Errorf("%v", err)
	}
	if r, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a")}); err != nil || r.Count != 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// A backup has the system's keyspace only for those who may see it.
func TestSnapshotShowsWhatMayBeSeen(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1")
	for keyspace, system := range map[string]bool{"user": false, "system": true} {
		stream, err := w.maint.Snapshot(metadata.AppendToOutgoingContext(w.ctx(), KeyspaceKey, keyspace), &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var data []byte
		for {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if data = append(data, r.Blob...); r.RemainingBytes == 0 {
				break
			}
		}
		m, err := store.ReadBackup(data)
		if err != nil {
			t.Fatal(err)
		}
		if v := m.View(); v.Stats(store.User).Keys != 1 || v.Stats(store.System).Keys > 0 != system {
			t.Errorf("%s: %+v, %+v", keyspace, v.Stats(store.User), v.Stats(store.System))
		}
	}
}
