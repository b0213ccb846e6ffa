package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

func TestKV(t *testing.T) {
	w := newWorld(t)
	first := w.put("a", "1")
	w.put("b", "2")
	r, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}})
	if err != nil || len(r.Kvs) != 2 || r.Count != 2 || r.Header.Revision != first+1 || r.Header.ClusterId != 0xabcd || r.Header.MemberId != 1 || r.Header.RaftTerm == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	p, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("a"), Value: []byte("3"), PrevKv: true})
	if err != nil || string(p.PrevKv.Value) != "1" || p.PrevKv.ModRevision != first {
		t.Fatalf("%v, %v", p, err)
	}
	old, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("a"), Revision: first, Serializable: true})
	if err != nil || string(old.Kvs[0].Value) != "1" {
		t.Fatalf("%v, %v", old, err)
	}
	txn, err := w.kv.Txn(w.ctx(), &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 2}}},
		Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("c"), Value: []byte("4")}}},
			{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("c")}}},
		},
	})
	if err != nil || !txn.Succeeded || string(txn.Responses[1].GetResponseRange().Kvs[0].Value) != "4" || txn.Responses[1].GetResponseRange().Header.Revision != txn.Header.Revision {
		t.Fatalf("%v, %v", txn, err)
	}
	read, err := w.kv.Txn(w.ctx(), &pb.TxnRequest{
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("c")}}}},
		Compare: []*pb.Compare{{Key: []byte("c"), Target: pb.Compare_VALUE, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Value{Value: []byte("9")}}},
	})
	if err != nil || read.Succeeded || len(read.Responses) != 1 || read.Header.Revision != txn.Header.Revision {
		t.Fatalf("%v, %v", read, err)
	}
	d, err := w.kv.DeleteRange(w.ctx(), &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true})
	if err != nil || d.Deleted != 3 || len(d.PrevKvs) != 3 {
		t.Fatalf("%v, %v", d, err)
	}
	if _, err := w.kv.Compact(w.ctx(), &pb.CompactionRequest{Revision: d.Header.Revision}); err != nil {
		t.Fatal(err)
	}
	// The system's keys are not there for others, not even to be deleted.
	system := metadata.AppendToOutgoingContext(w.ctx(), KeyspaceKey, "system")
	s, err := w.kv.Range(system, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil || len(s.Kvs) == 0 {
		t.Fatalf("%v, %v", s, err)
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1")
	last := w.put("a", "2")
	if _, err := w.kv.Compact(w.ctx(), &pb.CompactionRequest{Revision: last}); err != nil {
		t.Fatal(err)
	}
	many := make([]*pb.RequestOp, 129)
	for i := range many {
		many[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a")}}}
	}
	put := func(r *pb.PutRequest) func() error {
		return func() error { _, err := w.kv.Put(w.ctx(), r); return err }
	}
	get := func(r *pb.RangeRequest) func() error {
		return func() error { _, err := w.kv.Range(w.ctx(), r); return err }
	}
	txn := func(r *pb.TxnRequest) func() error {
		return func() error { _, err := w.kv.Txn(w.ctx(), r); return err }
	}
	twice := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("b")}}}
	for name, c := range map[string]struct {
		do   func() error
		want error
	}{
		"empty key":       {put(&pb.PutRequest{}), rpctypes.ErrGRPCEmptyKey},
		"empty range":     {get(&pb.RangeRequest{}), rpctypes.ErrGRPCEmptyKey},
		"compacted":       {get(&pb.RangeRequest{Key: []byte("a"), Revision: last - 1}), rpctypes.ErrGRPCCompacted},
		"future":          {get(&pb.RangeRequest{Key: []byte("a"), Revision: last + 1}), rpctypes.ErrGRPCFutureRev},
		"sort":            {get(&pb.RangeRequest{Key: []byte("a"), SortOrder: 9}), rpctypes.ErrGRPCInvalidSortOption},
		"no lease":        {put(&pb.PutRequest{Key: []byte("a"), Lease: 99}), rpctypes.ErrGRPCLeaseNotFound},
		"keep of nothing": {put(&pb.PutRequest{Key: []byte("x"), IgnoreValue: true}), rpctypes.ErrGRPCKeyNotFound},
		"keep and value":  {put(&pb.PutRequest{Key: []byte("a"), Value: []byte("x"), IgnoreValue: true}), rpctypes.ErrGRPCValueProvided},
		"keep and lease":  {put(&pb.PutRequest{Key: []byte("a"), Lease: 1, IgnoreLease: true}), rpctypes.ErrGRPCLeaseProvided},
		"too large":       {put(&pb.PutRequest{Key: []byte("a"), Value: make([]byte, maxRequestBytes)}), rpctypes.ErrGRPCRequestTooLarge},
		"too many":        {txn(&pb.TxnRequest{Success: many}), rpctypes.ErrGRPCTooManyOps},
		"twice":           {txn(&pb.TxnRequest{Success: []*pb.RequestOp{twice, twice}}), rpctypes.ErrGRPCDuplicateKey},
		"no target":       {func() error { _, err := w.maint.MoveLeader(w.ctx(), &pb.MoveLeaderRequest{TargetID: 7}); return err }, rpctypes.ErrGRPCBadLeaderTransferee},
		"long lease": {func() error {
			_, err := w.lease.LeaseGrant(w.ctx(), &pb.LeaseGrantRequest{TTL: 9_000_000_001})
			return err
		}, rpctypes.ErrGRPCLeaseTTLTooLarge},
		"compact again": {func() error { _, err := w.kv.Compact(w.ctx(), &pb.CompactionRequest{Revision: last}); return err }, rpctypes.ErrGRPCCompacted},
	} {
		if err := c.do(); status.Code(err) != status.Code(c.want) || rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := w.nodes.MemberAdd(w.ctx(), &pb.MemberAddRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}

// stream is a watch stream of a test.
type stream struct {
	t testing.TB
	pb.Watch_WatchClient
}

func (w *world) stream(ctx context.Context) stream {
	w.t.Helper()
	s, err := w.watch.Watch(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return stream{w.t, s}
}

func (s stream) create(r *pb.WatchCreateRequest) *pb.WatchResponse {
	s.t.Helper()
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		s.t.Fatal(err)
	}
	return s.next()
}

func (s stream) next() *pb.WatchResponse {
	s.t.Helper()
	r, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// events reads until there are so many, as "PUT key value" or "DELETE key".
func (s stream) events(n int) (out []string) {
	s.t.Helper()
	for len(out) < n {
		for _, e := range s.next().Events {
			text := e.Type.String() + " " + string(e.Kv.Key)
			if e.Type == mvccpb.PUT {
				text += " " + string(e.Kv.Value)
			}
			if e.PrevKv != nil {
				text += " was " + string(e.PrevKv.Value)
			}
			out = append(out, text)
		}
	}
	return out
}

func (s stream) want(want ...string) {
	s.t.Helper()
	if got := s.events(len(want)); !slices.Equal(got, want) {
		s.t.Errorf("%q, want %q", got, want)
	}
}

// A write of which nobody knows what became of it is no refusal, and clients know what
// it means: they must not make it again by themselves.
func TestWritesOfUnknownOutcome(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{fmt.Errorf("%w: sent before it was refused: no room", raft.ErrUnknown), rpctypes.ErrGRPCTimeoutDueToConnectionLost},
		{fmt.Errorf("%w: %w", raft.ErrUnknown, store.ErrClientUnknown), rpctypes.ErrGRPCTimeoutDueToConnectionLost},
		{fmt.Errorf("%w: %w", raft.ErrUnknown, context.DeadlineExceeded), rpctypes.ErrGRPCTimeout},
		{fmt.Errorf("%w: %w", raft.ErrUnknown, raft.ErrStopped), rpctypes.ErrGRPCStopped},
	} {
		if got := wireError(c.err); !errors.Is(got, c.want) {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	first := w.put("a", "1")
	w.put("b", "1")
	w.put("a", "2")
	if _, err := w.kv.DeleteRange(w.ctx(), &pb.DeleteRangeRequest{Key: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	s := w.stream(w.ctx())
	if r := s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: first, PrevKv: true}); !r.Created || r.WatchId != 0 || r.Canceled {
		t.Fatalf("%v", r)
	}
	s.want("PUT a 1", "PUT a 2 was 1", "DELETE a was 2")
	if r := s.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}}); r.WatchId != 1 {
		t.Fatalf("%v", r)
	}
	// Several writes of one revision are one answer.
	if _, err := w.kv.Txn(w.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("z"), Value: []byte("3")}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("c"), Value: []byte("3")}}},
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("b")}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if r := s.next(); r.WatchId != 1 || len(r.Events) != 2 || string(r.Events[0].Kv.Key) != "z" {
		t.Fatalf("%v", r)
	}
	// How far all are, then no more of the second one.
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
		t.Fatal(err)
	}
	if r := s.next(); r.WatchId != -1 || r.Header.Revision != first+4 || len(r.Events) != 0 {
		t.Fatalf("%v", r)
	}
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 1}}}); err != nil {
		t.Fatal(err)
	}
	if r := s.next(); !r.Canceled || r.WatchId != 1 {
		t.Fatalf("%v", r)
	}
	w.put("c", "4")
	w.put("a", "5")
	s.want("PUT a 5")
	// One that is in the future, and one whose id is taken.
	if r := s.create(&pb.WatchCreateRequest{WatchId: 9, Key: []byte("f"), StartRevision: first + 8}); r.WatchId != 9 {
		t.Fatalf("%v", r)
	}
	if r := s.create(&pb.WatchCreateRequest{WatchId: 9, Key: []byte("f")}); !r.Canceled || !r.Created {
		t.Fatalf("%v", r)
	}
	w.put("f", "early")
	w.put("f", "due")
	s.want("PUT f due")
}

// A watch that begins before the history does, or is overtaken by its end, is told.
func TestWatchCompacted(t *testing.T) {
	w := newWorld(t)
	first := w.put("a", "1")
	last := w.put("a", "2")
	if _, err := w.kv.Compact(w.ctx(), &pb.CompactionRequest{Revision: last}); err != nil {
		t.Fatal(err)
	}
	s := w.stream(w.ctx())
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	if r := s.next(); !r.Canceled || r.CompactRevision != last || !strings.Contains(r.CancelReason, "compacted") {
		t.Fatalf("%v", r)
	}
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: last})
	s.want("PUT a 2")
}

// What etcd says to creations that make no sense, and which ids it gives away.
func TestWatchCreation(t *testing.T) {
	w := newWorld(t)
	now := w.put("a", "1")
	s := w.stream(w.ctx())
	for _, c := range []struct {
		r      *pb.WatchCreateRequest
		id     int64
		reason string
	}{
		{&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}, -1, "mvcc: watcher range is empty"},
		{&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("b")}, -1, "mvcc: watcher range is empty"},
		{&pb.WatchCreateRequest{Key: []byte("b"), StartRevision: -1}, -1, "etcdserver: mvcc: required revision has been compacted"},
		{&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 1}, 1, ""},
		{&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 1}, -1, "mvcc: duplicate watch ID provided on the WatchStream"},
		{&pb.WatchCreateRequest{Key: []byte("b")}, 0, ""},
		{&pb.WatchCreateRequest{Key: []byte("b")}, 2, ""},
		{&pb.WatchCreateRequest{Key: []byte("b"), WatchId: -9}, -9, ""},
	} {
		if r := s.create(c.r); r.WatchId != c.id || r.CancelReason != c.reason || !r.Created || r.Canceled != (c.reason != "") {
			t.Errorf("%v: %v", c.r, r)
		}
	}
	// No progress is told while one of them is not there yet; the answer to a later
	// request is of that.
	ask := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	s.create(&pb.WatchCreateRequest{Key: []byte("c"), StartRevision: now + 2})
	if err := s.Send(ask); err != nil {
		t.Fatal(err)
	}
	if r := s.create(&pb.WatchCreateRequest{Key: []byte("d")}); !r.Created {
		t.Fatalf("%v", r)
	}
	w.put("x", "2")
	if err := s.Send(ask); err != nil {
		t.Fatal(err)
	}
	if r := s.next(); r.WatchId != -1 || r.Header.Revision != now+1 {
		t.Errorf("%v", r)
	}
}

// A long history is read bit by bit, whole revisions at a time.
func TestWatchOfMuch(t *testing.T) {
	w := newWorld(t)
	value := strings.Repeat("v", 300<<10)
	first := w.put("a", value)
	for range 9 {
		w.put("a", value)
	}
	s := w.stream(w.ctx())
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	answers := 0
	for next := first; next < first+10; answers++ {
		r := s.next()
		if size := proto.Size(r); size > 2*maxRequestBytes {
			t.Errorf("an answer has %d bytes", size)
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision != next {
				t.Fatalf("revision %d, want %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	if answers < 2 {
		t.Errorf("3 MB came in %d answer", answers)
	}
}

// A watch whose client does not read keeps no state of the store in memory: that of
// many of them would have no bound.
func TestWatchThatIsNotRead(t *testing.T) {
	w := newWorld(t)
	value := strings.Repeat("v", 300<<10)
	first := w.put("a", value)
	for range 30 {
		w.put("a", value)
	}
	view := w.Host.View()
	old := weak.Make(view)
	w.behind.Store(view)
	s := w.stream(w.ctx())
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	s.next() // it was read from the view; the rest is more than is on its way unread
	w.behind.Store(nil)
	w.put("b", "")
	await.For(t, "the view to be given up", func() bool {
		runtime.GC()
		return old.Value() == nil
	})
}

// A lease may have any id but 0, and last for as long as etcd's.
func TestLeasesAtTheEdges(t *testing.T) {
	w := newWorld(t)
	for _, id := range []int64{-5, math.MinInt64, math.MaxInt64} {
		if r, err := w.lease.LeaseGrant(w.ctx(), &pb.LeaseGrantRequest{ID: id, TTL: store.MaxTTLSeconds}); err != nil || r.ID != id || r.TTL != store.MaxTTLSeconds {
			t.Fatalf("%v, %v", r, err)
		}
		if r, err := w.lease.LeaseTimeToLive(w.ctx(), &pb.LeaseTimeToLiveRequest{ID: id}); err != nil || r.TTL < store.MaxTTLSeconds-60 {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("leased"), Lease: id}); err != nil {
			t.Error(err)
		}
	}
}

// Large answers come in pieces to those who take them so, with nothing missing.
func TestWatchFragments(t *testing.T) {
	w := newWorld(t)
	s := w.stream(w.ctx())
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte{0}, StartRevision: 2, Fragment: true})
	value := strings.Repeat("v", 500<<10)
	for i := range 8 {
		w.put(fmt.Sprint("a", i), value)
	}
	slow := w.stream(w.ctx())
	slow.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte{0}, StartRevision: 2, Fragment: true})
	got, pieces := 0, 0
	for got < 8 {
		r := slow.next()
		got += len(r.Events)
		if r.Fragment {
			pieces++
		}
	}
	if pieces == 0 {
		t.Error("8 values of 500 KiB came in one piece")
	}
}

// Whoever asks for a leader hears that there is none.
func TestWatchNeedsLeader(t *testing.T) {
	w := newWorld(t)
	plain := w.stream(w.ctx())
	plain.create(&pb.WatchCreateRequest{Key: []byte("a")})
	s := w.stream(metadata.AppendToOutgoingContext(w.ctx(), rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.hide(true)
	if _, err := s.Recv(); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) {
		t.Errorf("%v", err)
	}
	w.put("a", "1")
	plain.want("PUT a 1")
}

func TestLease(t *testing.T) {
	w := newWorld(t)
	const seconds = 4 // all that is asked of it takes less, on a busy machine as well
	g, err := w.lease.LeaseGrant(w.ctx(), &pb.LeaseGrantRequest{TTL: seconds})
	if err != nil || g.ID <= 0 || g.TTL != seconds {
		t.Fatalf("%v, %v", g, err)
	}
	if _, err := w.lease.LeaseGrant(w.ctx(), &pb.LeaseGrantRequest{ID: g.ID, TTL: seconds}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist) {
		t.Errorf("%v", err)
	}
	if _, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("a"), Lease: g.ID}); err != nil {
		t.Fatal(err)
	}
	ttl, err := w.lease.LeaseTimeToLive(w.ctx(), &pb.LeaseTimeToLiveRequest{ID: g.ID, Keys: true})
	if err != nil || ttl.GrantedTTL != seconds || len(ttl.Keys) != 1 || string(ttl.Keys[0]) != "a" {
		t.Errorf("%v, %v", ttl, err)
	}
	all, err := w.lease.LeaseLeases(w.ctx(), &pb.LeaseLeasesRequest{})
	if err != nil || len(all.Leases) != 1 || all.Leases[0].ID != g.ID {
		t.Errorf("%v, %v", all, err)
	}
	alive, err := w.lease.LeaseKeepAlive(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	keep := func(id int64) int64 {
		t.Helper()
		if err := alive.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		r, err := alive.Recv()
		if err != nil || r.ID != id {
			t.Fatalf("%v, %v", r, err)
		}
		return r.TTL
	}
	if got := keep(g.ID); got != seconds {
		t.Errorf("kept alive for %d", got)
	}
	if got := keep(g.ID + 1); got != 0 {
		t.Errorf("a lease that never was is kept for %d", got)
	}
	s := w.stream(w.ctx())
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	s.want("DELETE a")
	if ttl, err := w.lease.LeaseTimeToLive(w.ctx(), &pb.LeaseTimeToLiveRequest{ID: g.ID}); err != nil || ttl.TTL != -1 {
		t.Errorf("%v, %v", ttl, err)
	}
	if _, err := w.lease.LeaseRevoke(w.ctx(), &pb.LeaseRevokeRequest{ID: g.ID}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("%v", err)
	}
}

func TestMaintenance(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1")
	st, err := w.maint.Status(w.ctx(), &pb.StatusRequest{})
	if err != nil || st.Leader != 1 || st.RaftAppliedIndex == 0 || st.RaftTerm == 0 || st.DbSize == 0 || st.Version == "" || len(st.Errors) != 0 {
		t.Errorf("%v, %v", st, err)
	}
	m, err := w.nodes.MemberList(w.ctx(), &pb.MemberListRequest{Linearizable: true})
	if err != nil || len(m.Members) != 1 || m.Members[0].Name != "n1" {
		t.Errorf("%v, %v", m, err)
	}
	one, err := w.maint.HashKV(w.ctx(), &pb.HashKVRequest{})
	if one.GetCompactRevision() != -1 {
		t.Errorf("compacted at %d before it was", one.GetCompactRevision())
	}
	if err != nil || one.Hash == 0 || one.HashRevision != 2 {
		t.Errorf("%v, %v", one, err)
	}
	w.put("a", "2")
	again, err := w.maint.HashKV(w.ctx(), &pb.HashKVRequest{Revision: 2})
	if err != nil || again.Hash != one.Hash {
		t.Errorf("%v, %v", again, err)
	}
	s, err := w.maint.Snapshot(w.ctx(), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, r.Blob...)
	}
	back, err := store.ReadBackup(data)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := back.View().Range(store.User, store.RangeOp{Range: store.Range{Key: "a"}}); err != nil || string(r.KVs[0].Value) != "2" {
		t.Errorf("%v, %v", r, err)
	}
}

// A keyspace that is full says so until somebody made room and said so.
func TestAlarm(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Propose(w.ctx(), store.Command{Space: store.User, Quota: &store.Quota{Bytes: 1000}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 2000)}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace) {
		t.Fatalf("%v", err)
	}
	a, err := w.maint.Alarm(w.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	if err != nil || len(a.Alarms) != 1 || a.Alarms[0].Alarm != pb.AlarmType_NOSPACE {
		t.Errorf("%v, %v", a, err)
	}
	if st, err := w.maint.Status(w.ctx(), &pb.StatusRequest{}); err != nil || len(st.Errors) != 1 {
		t.Errorf("%v, %v", st, err)
	}
	if a, err := w.maint.Alarm(w.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE}); err != nil || len(a.Alarms) != 1 {
		t.Errorf("%v, %v", a, err)
	}
	w.put("a", "1")
}

// What is asked of the health by HTTP is answered as by etcd.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	handler := w.front.HTTP()
	check := func(query string, code int, reason string) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(w.ctx(), http.MethodGet, "/health"+query, nil))
		want := fmt.Sprintf("{\"health\":\"%t\",\"reason\":%q}\n", code == 200, reason)
		if answer.Code != code || answer.Body.String() != want {
			t.Errorf("%s: %d %s, want %d %s", query, answer.Code, answer.Body, code, want)
		}
	}
	check("", 200, "")
	w.hide(true)
	check("", 503, "RAFT NO LEADER")
	check("?serializable=true", 200, "")
	w.hide(false)
	if _, err := w.Propose(w.ctx(), store.Command{Space: store.User, Quota: &store.Quota{Bytes: 1000}}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 2000)})
	check("", 503, "ALARM NOSPACE")
	check("?exclude=NOSPACE", 200, "")
	w.front.Unset("why")
	check("?serializable=true", 503, "no store answers here: why")
}

// Many writers, and watchers that come and go: each event once, in order.
func TestWatchersUnderLoad(t *testing.T) {
	w := newWorld(t)
	const n = 300
	done := make(chan []string, 4)
	for range 4 {
		s := w.stream(w.ctx())
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		go func() {
			var got []string
			last := int64(0)
			for len(got) < n {
				r, err := s.Recv()
				if err != nil {
					break
				}
				for _, e := range r.Events {
					if e.Kv.ModRevision <= last {
						got = append(got, "out of order")
					}
					last = e.Kv.ModRevision
					got = append(got, string(e.Kv.Value))
				}
			}
			done <- got
		}()
	}
	for i := range n {
		w.put("k", fmt.Sprint(i))
	}
	for range 4 {
		got := <-done
		for i, v := range got {
			if v != fmt.Sprint(i) {
				t.Fatalf("event %d is %s", i, v)
			}
		}
	}
}

// A serializable read at a revision that the client saw at another server does not
// fail where that did not arrive yet.
func TestSerializableReadOfALaggard(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1")
	w.behind.Store(w.Host.View())
	newer := w.put("a", "2")
	read := func(revision int64) (string, error) {
		q := &pb.RangeRequest{Key: []byte("a"), Revision: revision, Serializable: true}
		r, err := w.kv.Range(w.ctx(), q)
		// In a transaction it is the same.
		txn, within := w.kv.Txn(w.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: q}}}})
		if err != nil || within != nil {
			if status.Code(err) != status.Code(within) {
				t.Errorf("%v, and in a transaction %v", err, within)
			}
			return "", err
		}
		if got := txn.Responses[0].GetResponseRange(); !proto.Equal(got.Kvs[0], r.Kvs[0]) {
			t.Errorf("%v, and in a transaction %v", r, got)
		}
		return string(r.Kvs[0].Value), nil
	}
	if got, err := read(newer); got != "2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := read(0); got != "1" || err != nil {
		t.Errorf("as old as may be: %q, %v", got, err)
	}
	if _, err := read(newer + 1); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev) {
		t.Errorf("what nobody has: %v", err)
	}
	w.hide(true)
	if _, err := read(newer); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev) {
		t.Errorf("without a leader: %v", err)
	}
}
