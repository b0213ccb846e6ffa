package forward

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/test/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server of the store with a port for others.
type node struct {
	t *testing.T
	Server
	store *etcdtest.Server // nil: it has none
	front *etcd.Front
	grpc  *grpc.Server
	puts  atomic.Int64 // that came in
	reads atomic.Int64
	// follows says that it does not lead, when that matters.
	follows atomic.Bool
	// hold, if it is not nil, is called for each call that came in, before it is
	// carried out.
	hold atomic.Pointer[func(ctx context.Context, method string)]
}

// newNode starts a server, which has the id given, or 0 for no store.
func newNode(t *testing.T, id uint64, name string) *node {
	t.Helper()
	n := &node{t: t, front: etcd.NewFront("it is no server"), Server: Server{Name: name, Node: name}}
	if id != 0 {
		n.store = etcdtest.Open(t, id)
		n.front.Set(n.store.API)
	}
	n.listen(port.Free(t)) // it is listened on again, and dialled while nobody does
	t.Cleanup(n.kill)
	return n
}

func (n *node) listen(address string) {
	n.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Address = l.Addr().String()
	n.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(etcd.MaxReceiveBytes), grpc.UnaryInterceptor(n.count))
	n.front.Register(n.grpc, etcd.ByMetadata)
	go n.grpc.Serve(l) //nolint:errcheck // it ends with the test
}

func (n *node) count(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	switch info.FullMethod {
	case pb.KV_Put_FullMethodName:
		n.puts.Add(1)
	case pb.KV_Range_FullMethodName:
		n.reads.Add(1)
	}
	if n.follows.Load() && info.FullMethod == pb.Maintenance_MoveLeader_FullMethodName {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if hold := n.hold.Load(); hold != nil {
		(*hold)(ctx, info.FullMethod)
	}
	return next(ctx, q)
}

// kill breaks all connections.
func (n *node) kill() { n.grpc.Stop() }

// world is a forwarder with a client.
type world struct {
	t *testing.T
	*Forwarder
	front *etcd.Front
	conn  *grpc.ClientConn
	kv    pb.KVClient
	watch pb.WatchClient

	mu      sync.Mutex
	servers []Server
	leader  string
}

// newWorld returns a forwarder to nodes, in the clear.
func newWorld(t *testing.T, nodes ...*node) *world {
	t.Helper()
	return newWorldBy(t, func(s Server, o ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+s.Address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}, etcd.UserOnly, nodes...)
}

func newWorldBy(t *testing.T, dial func(Server, ...grpc.DialOption) (*grpc.ClientConn, error), reach etcd.Reach, nodes ...*node) *world {
	t.Helper()
	w := &world{t: t}
	w.know(nodes...)
	f, err := New(Config{
		Servers: func() []Server {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.servers
		},
		Leader: func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leader
		},
		Dial: dial, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Forwarder, w.front = f, etcd.NewFront("")
	w.front.Set(f)
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(etcd.MaxReceiveBytes))
	w.front.Register(g, reach)
	go g.Serve(l) //nolint:errcheck // it ends with the test
	w.conn, err = grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.conn.Close()
		f.Stop()
		g.Stop()
	})
	w.kv, w.watch = pb.NewKVClient(w.conn), pb.NewWatchClient(w.conn)
	return w
}

// know sets the servers that the forwarder knows.
func (w *world) know(nodes ...*node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = nil
	for _, n := range nodes {
		w.servers = append(w.servers, n.Server)
	}
}

// leads sets which address the forwarder takes for that of the leader.
func (w *world) leads(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = address
}

func (w *world) ctx() context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) put(key string) (*pb.PutResponse, error) {
	return w.kv.Put(w.ctx(), &pb.PutRequest{Key: []byte(key), Value: []byte("v")})
}

func (w *world) get(key string) (*pb.RangeResponse, error) {
	return w.kv.Range(w.ctx(), &pb.RangeRequest{Key: []byte(key)})
}

// at returns which of the nodes calls go to.
func (w *world) at(nodes ...*node) *node {
	w.t.Helper()
	r, err := w.get("k")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.store != nil && n.store.ID() == r.Header.MemberId {
			return n
		}
	}
	w.t.Fatalf("server %d answers", r.Header.MemberId)
	return nil
}

// other returns the one of two that n is not.
func other(n, a, b *node) *node {
	if n == a {
		return b
	}
	return a
}

// watching opens a watch, and waits until it is there.
func (w *world) watching(key string) pb.Watch_WatchClient {
	w.t.Helper()
	s, err := w.watch.Watch(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	create := &pb.WatchCreateRequest{Key: []byte(key)}
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		w.t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || !r.Created {
		w.t.Fatalf("%v, %v", r, err)
	}
	return s
}
