package etcd

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/core/store"
)

// group is a raft.Host with the names that an agent knows.
type group struct {
	*raft.Host
	hidden atomic.Bool                // say that there is no leader
	behind atomic.Pointer[store.View] // what a follower that lags has; nil: the newest
}

func (g *group) View() *store.View {
	if v := g.behind.Load(); v != nil {
		return v
	}
	return g.Host.View()
}

func (g *group) Status() Status {
	st := g.State()
	index, _ := g.View().Applied()
	out := Status{ClusterID: 0xabcd, MemberID: g.ID(), Term: st.Term, Leader: st.Leader, Index: index}
	for _, id := range g.Members().GetVoters() {
		out.Members = append(out.Members, Member{ID: id, Name: "n1", PeerURLs: []string{"https://127.0.0.1:7401"}, ClientURLs: []string{"http://127.0.0.1:7402"}})
	}
	if g.hidden.Load() {
		out.Leader = 0
	}
	return out
}

func (g *group) Header() Header {
	st := g.State()
	h := Header{ClusterID: 0xabcd, MemberID: g.ID(), Term: st.Term, Leader: st.Leader}
	if g.hidden.Load() {
		h.Leader = 0
	}
	return h
}

func (g *group) hide(hidden bool) { g.hidden.Store(hidden) }

// world is a server with clients.
type world struct {
	t testing.TB
	*group
	server *Server
	front  *Front
	kv     pb.KVClient
	watch  pb.WatchClient
	lease  pb.LeaseClient
	maint  pb.MaintenanceClient
	nodes  pb.ClusterClient
}

func newWorld(t testing.TB) *world { return newWorldOn(t, disktest.NewCrash()) }

func newWorldOn(t testing.TB, fs disk.FS) *world {
	w := &world{t: t, group: &group{}}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.server = New(Config{Store: w.group, Log: log, MinLease: 10 * time.Millisecond})
	h, err := raft.Open(raft.Config{
		ID: 1, Cluster: "abcd", Voters: []uint64{1}, Disk: fs, Transport: raft.Alone{}, HeartbeatInterval: 5 * time.Millisecond,
		ElectionTimeout: 20 * time.Millisecond, Sizes: raft.Sizes{SegmentBytes: 1 << 20}, OnApply: func(raft.Applied) { w.server.Applied() },
		Log: log, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Host = h
	for changed := h.Changed(); !h.State().Leads(); changed = h.Changed() {
		<-changed
	}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(MaxReceiveBytes))
	w.front = NewFront("")
	w.front.Set(w.server)
	w.front.Register(g, ByMetadata)
	go g.Serve(l) //nolint:errcheck // it ends with the test
	conn, err := grpc.NewClient("passthrough:///etcd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		w.server.Stop()
		g.Stop()
		h.Close()
	})
	w.kv, w.watch, w.lease, w.maint, w.nodes = pb.NewKVClient(conn), pb.NewWatchClient(conn), pb.NewLeaseClient(conn), pb.NewMaintenanceClient(conn), pb.NewClusterClient(conn)
	return w
}

func (w *world) ctx() context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) put(key, value string) int64 {
	w.t.Helper()
	r, err := w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Header.Revision
}
