package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/test/scale"
)

// storeKind is whose servers a test is about: both speak the same API. With etcd's
// the tests themselves are tested.
type storeKind string

const (
	agents storeKind = "agents"
	etcds  storeKind = "etcd"
)

// underTest is whose servers the scenarios run on: the agents', or with
// E2E_STORE=etcd Debian's etcd, which tells a fault of a test from one of the store.
// What only the agents have is skipped there.
func underTest() storeKind {
	if os.Getenv("E2E_STORE") == string(etcds) {
		return etcds
	}
	return agents
}

// ours skips a test of what only the agents have.
func ours(t *testing.T) storeKind {
	t.Helper()
	if underTest() != agents {
		t.Skip("E2E_STORE: etcd has nothing of the kind")
	}
	return agents
}

// electionTimeout of all servers of a store.
const electionTimeout = time.Second

// clientAPI is where a server of a store serves clients, in its own namespace, so
// that no cut between servers is one between a server and its clients.
const clientAPI = "127.0.0.1:7402"

// etcdPort is where etcd serves agents too.
const etcdPort = 2379

// storeFleet is the servers of one store, one per node.
type storeFleet struct {
	*fleet
	kind    storeKind
	nodes   []*storeNode
	timeout time.Duration // of the calls of clients
}

// storeNode is one server.
type storeNode struct {
	*agent
	f    *storeFleet
	life atomic.Int64 // how often it was started
	conn *grpc.ClientConn
}

// newStore lays out a store of three servers, each with its state on disk. Nothing
// is started.
func newStore(t *testing.T, kind storeKind) *storeFleet {
	t.Helper()
	if kind == etcds {
		needsEtcd(t)
	}
	f := &storeFleet{fleet: newFleet(t, 3), kind: kind, timeout: callTimeout}
	secret := newSecret()
	for _, a := range f.agents {
		f.nodes = append(f.nodes, f.node(a, secret, "--raft.peers", f.peers()))
	}
	return f
}

// needsEtcd skips a test on a machine without Debian's etcd.
func needsEtcd(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed: Debian package etcd-server")
	}
}

// node is an agent as a node of a store.
func (f *storeFleet) node(a *agent, secret string, more ...string) *storeNode {
	f.t.Helper()
	n := &storeNode{agent: a, f: f}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	n.secrets(secret)
	a.args = append(a.args, "--cluster.secret_file", n.secretFile(), "--gossip.profile", "local", "--api.listen", clientAPI,
		"--rpc.listen", a.node.Addr().String()+":7401", "--raft.election", electionTimeout.String(),
		"--http.listen", "127.0.0.1:7403", "--dns.listen", "off")
	a.args = append(a.args, more...)
	n.dial()
	return n
}

// startStore is newStore, with all servers started and one of them leading.
func startStore(t *testing.T, kind storeKind) *storeFleet {
	t.Helper()
	f := newStore(t, kind)
	f.upAll()
	return f
}

// upAll starts all servers and waits until one leads and all know it.
func (f *storeFleet) upAll() {
	f.t.Helper()
	for _, n := range f.nodes {
		n.up()
	}
	f.eventually(30*time.Second, "one leads and all follow", f.led)
}

// peers is the static set, as text of the configuration.
func (f *storeFleet) peers() string {
	var all []string
	for _, a := range f.agents {
		all = append(all, fmt.Sprintf("{name: %s, addr: %q}", a.name, a.node.Addr().String()+":7401"))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// up starts the server.
func (n *storeNode) up() {
	n.t.Helper()
	n.life.Add(1)
	if n.f.kind == agents {
		n.start()
		return
	}
	peer := func(a *agent) string { return "http://" + a.node.Addr().String() + ":2380" }
	var all []string
	for _, a := range n.f.agents {
		all = append(all, a.name+"="+peer(a))
	}
	line := slices.Concat(n.under, []string{
		"etcd", "--name", n.name, "--data-dir", filepath.Join(n.dir, "etcd"), "--listen-client-urls", "http://" + clientAPI + ",http://" + n.url(etcdPort),
		"--advertise-client-urls", "http://" + clientAPI, "--listen-peer-urls", peer(n.agent), "--initial-advertise-peer-urls", peer(n.agent),
		"--initial-cluster", strings.Join(all, ","), "--heartbeat-interval", "100", "--election-timeout", fmt.Sprint(electionTimeout.Milliseconds()),
		"--pre-vote", "--logger", "zap", "--log-level", "error",
	})
	n.proc = n.node.Start(line[0], line[1:])
}

// dial connects to the client API of the node, whoever serves it.
func (n *storeNode) dial(more ...grpc.DialOption) {
	n.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+clientAPI, append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return n.node.DialContext(ctx, "tcp", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	n.conn = conn
}

func (n *storeNode) kv() pb.KVClient { return pb.NewKVClient(n.conn) }

// status is what the server says of itself.
func (n *storeNode) status() (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(500*time.Millisecond, 3*time.Second))
	defer cancel()
	st, err := pb.NewMaintenanceClient(n.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	return st, nil
}

// led is nil when all servers follow one leader.
func (f *storeFleet) led() error {
	_, err := f.leads(f.nodes...)
	return err
}

// leads returns the one of some servers that leads, if all of them follow it.
func (f *storeFleet) leads(among ...*storeNode) (*storeNode, error) {
	var leader *storeNode
	var last *pb.StatusResponse
	var errs []error
	answered := map[uint64]string{}
	for _, n := range among {
		st, err := n.status()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if st.Leader == 0 || last != nil && (st.Leader != last.Leader || st.RaftTerm != last.RaftTerm) {
			errs = append(errs, fmt.Errorf("%s follows %x in term %d", n.name, st.Leader, st.RaftTerm))
		}
		// Until its own server is open an agent passes on, to one that may be ahead of it.
		if by := answered[st.Header.MemberId]; by != "" && !n.passesOn() {
			errs = append(errs, fmt.Errorf("%s and %s answer as one server", by, n.name))
		}
		answered[st.Header.MemberId] = n.name
		if st.Leader == st.Header.MemberId {
			leader = n
		}
		last = st
	}
	if leader == nil {
		errs = append(errs, errors.New("none of them leads"))
	}
	return leader, errors.Join(errs...)
}

// leader waits until one leads and all of some servers follow it; without any named,
// all.
func (f *storeFleet) leader(among ...*storeNode) *storeNode {
	f.t.Helper()
	if len(among) == 0 {
		among = f.nodes
	}
	var leader *storeNode
	eventually(f.t, 30*time.Second, func() (err error) {
		leader, err = f.leads(among...)
		return err
	}, "one leads")
	return leader
}

// besides returns the servers but some.
func (f *storeFleet) besides(but ...*storeNode) []*storeNode {
	var rest []*storeNode
next:
	for _, n := range f.nodes {
		for _, b := range but {
			if n == b {
				continue next
			}
		}
		rest = append(rest, n)
	}
	return rest
}

// newSecret is what `fairlead keygen` prints.
func newSecret() string {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	return base64.RawURLEncoding.EncodeToString(random)
}

// secretFile is beside the data directory, as that may be a file system of its own.
func (n *storeNode) secretFile() string { return n.dir + ".secret" }

// secrets writes the secret file as a whole.
func (n *storeNode) secrets(all ...string) {
	n.t.Helper()
	next := n.secretFile() + ".next"
	err := os.WriteFile(next, []byte(strings.Join(all, "\n")+"\n"), 0o600)
	if err := errors.Join(err, os.Rename(next, n.secretFile())); err != nil {
		n.t.Fatal(err)
	}
}

// lasts lets a fault or a load last.
func lasts(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}
