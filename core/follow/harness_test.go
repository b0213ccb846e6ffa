package follow

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server of the store, a group of its own, with a port.
type node struct {
	t *testing.T
	Server
	store *etcdtest.Server
	front *etcd.Front
	grpc  *grpc.Server
	conn  *grpc.ClientConn
	kv    pb.KVClient

	mu   sync.Mutex
	hold func(method string, answer any) // called before an answer goes out; nil: nothing
}

func newNode(t *testing.T, id uint64, name string) *node {
	t.Helper()
	n := &node{t: t, store: etcdtest.Open(t, id), front: etcd.NewFront(""), Server: Server{Name: name, Node: name}}
	n.front.Set(n.store.API)
	// No TCP port: who dials one over and over that nobody listens on may get it.
	n.Address = filepath.Join(t.TempDir(), "s")
	n.listen()
	var err error
	if n.conn, err = dial(n.Server); err != nil {
		t.Fatal(err)
	}
	n.kv = pb.NewKVClient(n.conn)
	t.Cleanup(func() {
		_ = n.conn.Close()
		n.kill()
	})
	return n
}

func (n *node) listen() {
	n.t.Helper()
	l, err := net.Listen("unix", n.Address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(etcd.MaxReceiveBytes),
		grpc.UnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			r, err := next(ctx, q)
			if err == nil {
				n.held(info.FullMethod, r)
			}
			return r, err
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, heldStream{stream, n, info.FullMethod})
		}))
	n.front.Register(n.grpc, etcd.ByMetadata)
	go n.grpc.Serve(l) //nolint:errcheck // it ends with the test
}

// holding sets what is called before an answer goes out, which may alter it.
func (n *node) holding(hold func(method string, answer any)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hold = hold
}

func (n *node) held(method string, answer any) {
	n.mu.Lock()
	hold := n.hold
	n.mu.Unlock()
	if hold != nil {
		hold(method, answer)
	}
}

type heldStream struct {
	grpc.ServerStream
	n      *node
	method string
}

func (s heldStream) SendMsg(m any) error {
	s.n.held(s.method, m)
	return s.ServerStream.SendMsg(m)
}

// kill breaks all connections.
func (n *node) kill() { n.grpc.Stop() }

func (n *node) ctx() context.Context {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	n.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, etcd.KeyspaceKey, "system")
}

// put writes a system key, and returns the revision.
func (n *node) put(key, value string) int64 {
	n.t.Helper()
	r, err := n.kv.Put(n.ctx(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Header.Revision
}

func (n *node) delete(key string) int64 {
	n.t.Helper()
	r, err := n.kv.DeleteRange(n.ctx(), &pb.DeleteRangeRequest{Key: []byte(key)}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Header.Revision
}

func (n *node) compact(revision int64) {
	n.t.Helper()
	if _, err := n.kv.Compact(n.ctx(), &pb.CompactionRequest{Revision: revision}, grpc.WaitForReady(true)); err != nil {
		n.t.Fatal(err)
	}
}

func dial(s Server, o ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+s.Address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// agent is where a Follower lives, over its restarts.
type agent struct {
	t *testing.T
	*Follower
	cfg Config
	log *lines

	mu      sync.Mutex
	servers []Server
}

func newAgent(t *testing.T, nodes ...*node) *agent {
	t.Helper()
	a := &agent{t: t, log: &lines{}}
	a.know(nodes...)
	a.cfg = Config{
		Servers: func() []Server {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.servers
		},
		Dial: dial, File: filepath.Join(t.TempDir(), "system.copy"), Of: "the system of prod", Now: time.Now,
		Log: slog.New(slog.NewTextHandler(a.log, nil)), Metrics: prometheus.NewRegistry(),
		times: times{
			answer: 10 * time.Second, page: 10 * time.Second, ask: 10 * time.Millisecond, silent: 3000, steady: time.Millisecond,
			rest: 2 * time.Millisecond, restMost: 20 * time.Millisecond, write: time.Millisecond,
		},
	}
	return a
}

func (a *agent) know(nodes ...*node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.servers = nil
	for _, n := range nodes {
		a.servers = append(a.servers, n.Server)
	}
}

func (a *agent) start() {
	a.t.Helper()
	f, err := Start(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Follower = f
	a.t.Cleanup(f.Stop)
}

// restart stops and starts it again.
func (a *agent) restart() {
	a.t.Helper()
	a.Stop()
	a.start()
}

// reaches waits until the copy has a revision.
func (a *agent) reaches(revision int64) {
	a.t.Helper()
	for {
		changed := a.Changed()
		if a.State().Revision() >= revision {
			return
		}
		select {
		case <-changed:
		case <-time.After(await.Patience):
			a.t.Fatalf("revision %d is not reached: %+v", revision, a.Follower.Status())
		}
	}
}

func (a *agent) follows(n *node) {
	a.t.Helper()
	await.Until(a.t, func() string {
		if s := a.Follower.Status(); s.Server != n.Name || s.Problem != "" {
			return fmt.Sprintf("%s is not followed: %+v", n.Name, s)
		}
		return ""
	})
}

// complains waits until the status says why there is no server.
func (a *agent) complains(words string) {
	a.t.Helper()
	await.Until(a.t, func() string {
		if s := a.Follower.Status(); s.Server != "" || !strings.Contains(s.Problem, words) {
			return fmt.Sprintf("no word of %q: %+v", words, s)
		}
		return ""
	})
}

// has compares with what a server has.
func (a *agent) has(n *node) {
	a.t.Helper()
	local := viewed{0xabcd, n.store.View()}
	a.reaches(local.Revision())
	sameState(a.t, a.State(), local)
}

func sameState(t *testing.T, got, want State) {
	t.Helper()
	if got.Cluster() != want.Cluster() || got.Revision() != want.Revision() {
		t.Fatalf("cluster %x revision %d, want %x and %d", got.Cluster(), got.Revision(), want.Cluster(), want.Revision())
	}
	g, w := slices.Collect(got.Range("")), slices.Collect(want.Range(""))
	equal := slices.EqualFunc(g, w, func(a, b store.KeyValue) bool {
		same := bytes.Equal(a.Value, b.Value)
		a.Value, b.Value = nil, nil
		return same && fmt.Sprint(a) == fmt.Sprint(b)
	})
	if !equal {
		t.Fatalf("it has %d keys %v, want %d: %v", len(g), brief(g), len(w), brief(w))
	}
}

func brief(kvs []store.KeyValue) (keys []string) {
	for _, kv := range kvs[:min(len(kvs), 20)] {
		keys = append(keys, fmt.Sprintf("%s@%d", kv.Key, kv.Mod))
	}
	return keys
}

// lines is a log that can be looked at.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), words)
}
