package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/store"
)

// All services go through, between agents as they are: by mutual TLS.
func TestServicesGoThrough(t *testing.T) {
	secrets, err := identity.Parse([]byte("abcdefghijklmnopqrstuvwxyz-0123456789-a\n"))
	if err != nil {
		t.Fatal(err)
	}
	keeper := func(node string) *identity.Keeper {
		k, err := identity.NewKeeper("prod", identity.Node{ID: node, Name: node}, secrets, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := transport.NewPort(transport.PortConfig{Listener: l, Keeper: keeper("n1"), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, Server: Server{Name: "n1", Node: "n1", Address: l.Addr().String()}, store: etcdtest.Open(t, 1), front: etcd.NewFront("")}
	n.front.Set(n.store.API)
	n.front.Register(port, etcd.ByMetadata)
	go port.Serve() //nolint:errcheck // it ends with the test
	t.Cleanup(port.Stop)
	own := keeper("n2")
	dial := func(s Server, o ...grpc.DialOption) (*grpc.ClientConn, error) {
		return transport.Dial(own, s.Address, s.Node, o...)
	}
	w := newWorldBy(t, dial, etcd.ByMetadata, n)

	watch := w.watching("k")
	if r, err := w.put("k"); err != nil || r.Header.MemberId != 1 || r.Header.Revision != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	if r, err := watch.Recv(); err != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "k" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := w.get("k"); err != nil || r.Count != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := w.kv.Txn(w.ctx(), &pb.TxnRequest{}); err != nil || !r.Succeeded {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := w.kv.Compact(w.ctx(), &pb.CompactionRequest{Revision: 99}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev) || status.Code(err) != codes.OutOfRange {
		t.Errorf("an error of the server came as %v", err)
	}
	if _, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte("large"), Value: make([]byte, 1400<<10)}); err != nil {
		t.Errorf("1,400 KiB: %v", err)
	}
	if r, err := w.kv.DeleteRange(w.ctx(), &pb.DeleteRangeRequest{Key: []byte("large")}); err != nil || r.Deleted != 1 {
		t.Errorf("%v, %v", r, err)
	}
	leases := pb.NewLeaseClient(w.conn)
	g, err := leases.LeaseGrant(w.ctx(), &pb.LeaseGrantRequest{TTL: 10})
	if err != nil {
		t.Fatal(err)
	}
	alive, err := leases.LeaseKeepAlive(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := alive.Send(&pb.LeaseKeepAliveRequest{ID: g.ID}); err != nil {
		t.Fatal(err)
	}
	if r, err := alive.Recv(); err != nil || r.TTL != 10 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := leases.LeaseTimeToLive(w.ctx(), &pb.LeaseTimeToLiveRequest{ID: g.ID}); err != nil || r.GrantedTTL != 10 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := leases.LeaseLeases(w.ctx(), &pb.LeaseLeasesRequest{}); err != nil || len(r.Leases) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := leases.LeaseRevoke(w.ctx(), &pb.LeaseRevokeRequest{ID: g.ID}); err != nil {
		t.Error(err)
	}
	maintenance := pb.NewMaintenanceClient(w.conn)
	if r, err := maintenance.Status(w.ctx(), &pb.StatusRequest{}); err != nil || r.Leader != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := maintenance.HashKV(w.ctx(), &pb.HashKVRequest{}); err != nil || r.Hash == 0 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := maintenance.Hash(w.ctx(), &pb.HashRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := maintenance.Alarm(w.ctx(), &pb.AlarmRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := maintenance.Defragment(w.ctx(), &pb.DefragmentRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := maintenance.MoveLeader(w.ctx(), &pb.MoveLeaderRequest{TargetID: 9}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCBadLeaderTransferee) {
		t.Errorf("%v", err)
	}
	if r, err := pb.NewClusterClient(w.conn).MemberList(w.ctx(), &pb.MemberListRequest{Linearizable: true}); err != nil || len(r.Members) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := pb.NewClusterClient(w.conn).MemberAdd(w.ctx(), &pb.MemberAddRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
	system := metadata.AppendToOutgoingContext(w.ctx(), etcd.KeyspaceKey, "system")
	if r, err := w.kv.Range(system, &pb.RangeRequest{Key: []byte("leader")}); err != nil || r.Count != 1 {
		t.Errorf("the system's keyspace: %v, %v", r, err)
	}
	if m := backup(t, w.ctx(), maintenance); m.View().Stats(store.System).Keys == 0 {
		t.Error("a backup for those who may see all has no system keyspace")
	}
}

func backup(t *testing.T, ctx context.Context, c pb.MaintenanceClient) *store.Machine {
	t.Helper()
	s, err := c.Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for {
		r, err := s.Recv()
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
	return m
}

// Those who may reach the user's keyspace only see no other, whatever they say.
func TestUserOnly(t *testing.T) {
	w := newWorld(t, newNode(t, 1, "n1"))
	system := metadata.AppendToOutgoingContext(w.ctx(), etcd.KeyspaceKey, "system")
	if _, err := w.kv.Range(system, &pb.RangeRequest{Key: []byte("leader")}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
	s, err := w.watch.Watch(system)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
	if m := backup(t, w.ctx(), pb.NewMaintenanceClient(w.conn)); m.View().Stats(store.System).Keys != 0 {
		t.Error("the backup has keys of the system")
	}
}

// When a server goes, calls go to the next one, and streams end so that clients
// resume them.
func TestAServerGoes(t *testing.T) {
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	w := newWorld(t, a, b)
	first := w.at(a, b)
	if again := w.at(a, b); again != first {
		t.Error("calls went to another server without need")
	}
	watch := w.watching("k")
	first.kill()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), first.Address) {
		t.Errorf("the watch ended with %v", err)
	}
	second := other(first, a, b)
	if r, err := w.put("k"); err != nil || r.Header.MemberId != second.store.ID() {
		t.Errorf("%v, %v", r, err)
	}
	w.watching("k")
	// And back.
	first.listen(first.Address)
	second.kill()
	if w.at(a, b) != first {
		t.Error("who answers?")
	}
	if r, err := w.put("k"); err != nil || r.Header.MemberId != first.store.ID() {
		t.Errorf("%v, %v", r, err)
	}
}

// A server without a leader is left; while there is none anywhere, calls wait.
func TestLeaderIsLost(t *testing.T) {
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	w := newWorld(t, a, b)
	first := w.at(a, b)
	second := other(first, a, b)
	watch := w.watching("k")
	first.store.HideLeader(true)
	if _, err := watch.Recv(); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) {
		t.Errorf("the watch ended with %v", err)
	}
	if r, err := w.put("k"); err != nil || r.Header.MemberId != second.store.ID() {
		t.Errorf("%v, %v", r, err)
	}
	second.store.HideLeader(true)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.kv.Put(short, &pb.PutRequest{Key: []byte("k")}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a write without a leader: %v", err)
	}
	if r, err := w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil {
		t.Errorf("a serializable read without a leader: %v, %v", r, err)
	}
	puts := second.puts.Load()
	done := make(chan error, 1)
	go func() {
		_, err := w.put("k")
		done <- err
	}()
	first.store.HideLeader(false)
	if err := <-done; err != nil {
		t.Errorf("a write that waited for a leader: %v", err)
	}
	if n := second.puts.Load(); n != puts {
		t.Error("the write was tried where there was no leader")
	}
}

// A write that may have been carried out is not made again, a read is.
func TestNothingIsDoneTwice(t *testing.T) {
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	w := newWorld(t, a, b)
	first := w.at(a, b)
	second := other(first, a, b)
	arrived := make(chan struct{}, 1)
	hold := func(ctx context.Context, _ string) { arrived <- struct{}{}; <-ctx.Done() }
	first.hold.Store(&hold)
	done := make(chan error, 1)
	go func() {
		_, err := w.put("k")
		done <- err
	}()
	<-arrived
	first.kill()
	if err := <-done; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), first.Address) {
		t.Errorf("a write that nobody knows of: %v", err)
	}
	if n := second.puts.Load(); n != 0 {
		t.Errorf("the write was made again %d times", n)
	}

	first.hold.Store(nil)
	first.listen(first.Address)
	second.kill()
	if w.at(a, b) != first {
		t.Fatal("who answers?")
	}
	second.listen(second.Address)
	first.hold.Store(&hold)
	go func() {
		_, err := w.get("k")
		done <- err
	}()
	<-arrived
	first.kill()
	if err := <-done; err != nil {
		t.Errorf("a read whose server went: %v", err)
	}
}

// An agent that says that it does not serve is left, by writes as well.
func TestNotAServer(t *testing.T) {
	none, n := newNode(t, 0, "none"), newNode(t, 2, "n2")
	for range 8 { // whoever is asked first
		if r, err := newWorld(t, none, n).put("k"); err != nil || r.Header.MemberId != 2 {
			t.Errorf("%v, %v", r, err)
		}
	}
	// One that serves no more.
	last := newNode(t, 3, "n3")
	w := newWorld(t, last)
	w.at(last)
	last.front.Unset("its disk failed")
	w.know(last, n)
	if r, err := w.put("k"); err != nil || r.Header.MemberId != 2 {
		t.Errorf("%v, %v", r, err)
	}
}

// A server that is none any more is left at once.
func TestServersChange(t *testing.T) {
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	w := newWorld(t, a)
	if w.at(a, b) != a {
		t.Error("calls go elsewhere")
	}
	w.know(b)
	if w.at(a, b) != b {
		t.Error("calls go where no server is any more")
	}
}

// What waits for a server that answers no more, and breaks no connection either, ends when
// gossip has it dead: reads go to another one.
func TestADeadServerIsNotWaitedFor(t *testing.T) {
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	w := newWorld(t, a, b)
	first := w.at(a, b)
	second := other(first, a, b)
	watch := w.watching("k")
	arrived := make(chan struct{}, 2)
	hold := func(ctx context.Context, _ string) { arrived <- struct{}{}; <-ctx.Done() }
	first.hold.Store(&hold)
	read, written := make(chan error, 1), make(chan error, 1)
	go func() {
		r, err := w.get("k")
		if err == nil && r.Header.MemberId != second.store.ID() {
			err = fmt.Errorf("%v answered", r.Header)
		}
		read <- err
	}()
	go func() {
		_, err := w.put("k")
		written <- err
	}()
	<-arrived
	<-arrived
	w.know() // who hears nobody does not know who is dead
	w.ring.leave()
	select {
	case err := <-read:
		t.Fatal(err)
	case err := <-written:
		t.Fatal(err)
	default:
	}
	w.know(second)
	if err := <-read; err != nil {
		t.Errorf("a read: %v", err)
	}
	_, err := watch.Recv()
	for what, err := range map[string]error{"a write that nobody knows of": <-written, "a watch": err} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), first.Address) || !strings.Contains(err.Error(), "dead") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := second.puts.Load(); n != 0 {
		t.Errorf("the write was made again %d times", n)
	}
	// It is back.
	first.hold.Store(nil)
	w.know(first)
	if w.at(a, b) != first {
		t.Error("who answers?")
	}
}

// The one that leads is asked first, and its address is only a hint.
func TestTheLeaderIsAskedFirst(t *testing.T) {
	nodes := []*node{newNode(t, 1, "n1"), newNode(t, 2, "n2"), newNode(t, 3, "n3")}
	for range 3 { // by chance it may be right
		for _, n := range nodes {
			w := newWorld(t, nodes...)
			w.leads(n.Address)
			if got := w.at(nodes...); got != n {
				t.Errorf("calls go to %s, want %s", got.Name, n.Name)
			}
		}
	}
	w := newWorld(t, nodes...)
	w.leads("127.0.0.1:1")
	w.at(nodes...)
	w.leads(nodes[0].Address)
	w.know(nodes[1:]...)
	if got := w.at(nodes...); got == nodes[0] {
		t.Error("calls go to a leader that is no server any more")
	}
	w.know(nodes...)
	nodes[0].kill()
	w.leads(nodes[0].Address)
	nodes[1].front.Unset("it stopped")
	if got := w.at(nodes[2]); got != nodes[2] {
		t.Errorf("calls go to %s", got.Name)
	}
}

// What only the leader does is asked of all until it is found.
func TestOnlyTheLeaderMovesIt(t *testing.T) {
	nodes := []*node{newNode(t, 1, "n1"), newNode(t, 2, "n2"), newNode(t, 3, "n3")}
	w := newWorld(t, nodes...)
	move := func() string {
		_, err := pb.NewMaintenanceClient(w.conn).MoveLeader(w.ctx(), &pb.MoveLeaderRequest{TargetID: 9})
		return rpctypes.ErrorDesc(err)
	}
	for _, leader := range nodes {
		for _, n := range nodes {
			n.follows.Store(n != leader)
		}
		w.leads(leader.Address)
		if got := move(); got != rpctypes.ErrorDesc(rpctypes.ErrGRPCBadLeaderTransferee) {
			t.Errorf("%s leads: %s", leader.Name, got)
		}
	}
	nodes[2].follows.Store(true)
	if got := move(); got != rpctypes.ErrorDesc(rpctypes.ErrGRPCNotLeader) {
		t.Errorf("nobody leads: %s", got)
	}
	if _, err := w.put("k"); err != nil {
		t.Error(err)
	}
}

func TestNobodyIsThere(t *testing.T) {
	w := newWorld(t)
	if _, err := w.put("k"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "raft.peers") {
		t.Errorf("%v", err)
	}
	a, b := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a.kill()
	b.kill()
	w.know(a, b)
	for range 3 { // also when all were asked just now
		_, err := w.put("k")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), a.Address) || !strings.Contains(err.Error(), b.Address) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%v", err)
		}
	}
}

// Deadlines and cancels of clients reach the server.
func TestTheClientGivesUp(t *testing.T) {
	n := newNode(t, 1, "n1")
	w := newWorld(t, n)
	w.at(n)
	arrived, ended := make(chan time.Duration, 1), make(chan error, 1)
	hold := func(ctx context.Context, _ string) {
		left := time.Duration(0)
		if until, has := ctx.Deadline(); has {
			left = time.Until(until)
		}
		arrived <- left
		<-ctx.Done()
		ended <- ctx.Err()
	}
	n.hold.Store(&hold)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan error, 1)
	go func() {
		_, err := w.kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		done <- err
	}()
	if left := <-arrived; left <= 0 || left > 30*time.Second {
		t.Errorf("the server has %v", left)
	}
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	<-ended
	// Who names no time has a bounded one all the same.
	go func() {
		_, err := w.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k")})
		done <- err
	}()
	if left := <-arrived; left <= 0 || left > requestTimeout {
		t.Errorf("the server has %v", left)
	}
	n.kill()
	<-ended
	<-done
}

func TestStopEndsAll(t *testing.T) {
	n := newNode(t, 1, "n1")
	w := newWorld(t, n)
	watch := w.watching("k")
	w.front.Stop()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if _, err := w.Face(etcd.UserOnly).Put(t.Context(), &pb.PutRequest{Key: []byte("k")}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}
