package etcdstore

import (
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/certs"
	"github.com/fairlead/fairlead/test/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a member of an etcd cluster, as Debian has it.
type peer struct {
	t       *testing.T
	name    string
	client  string // host:port
	args    []string
	process *exec.Cmd
}

// newCluster starts an etcd cluster of some members.
func newCluster(t *testing.T, members int, args ...string) []*peer {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is not installed: Debian package etcd-server")
	}
	scheme := "http://"
	if len(args) > 0 {
		scheme = "https://"
	}
	var peers []*peer
	var all, urls []string
	for i := range members {
		name, url := fmt.Sprintf("e%d", i+1), "http://"+port.Free(t)
		all, urls = append(all, name+"="+url), append(urls, url)
		peers = append(peers, &peer{t: t, name: name, client: port.Free(t)})
	}
	for i, p := range peers {
		p.args = append([]string{
			path, "--name", p.name, "--data-dir", filepath.Join(t.TempDir(), p.name), "--listen-client-urls", scheme + p.client,
			"--advertise-client-urls", scheme + p.client, "--listen-peer-urls", urls[i], "--initial-advertise-peer-urls", urls[i],
			"--initial-cluster", strings.Join(all, ","), "--logger", "zap", "--log-level", "error", "--heartbeat-interval", "20", "--election-timeout", "200",
		}, args...)
		p.start()
		t.Cleanup(p.kill)
	}
	return peers
}

func (p *peer) start() {
	p.t.Helper()
	p.process = exec.Command(p.args[0], p.args[1:]...)
	p.process.Stdout, p.process.Stderr = p.t.Output(), p.t.Output()
	if err := p.process.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) kill() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

// clients are etcd's own services, without any prefix.
func (p *peer) clients(t TLS) pb.KVClient {
	p.t.Helper()
	e, err := parse([]string{p.client}, t)
	if err != nil {
		p.t.Fatal(err)
	}
	conn, err := e.dial(p.client, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewKVClient(conn)
}

func config(t *testing.T, peers ...*peer) Config {
	c := Config{
		Cluster: "prod", File: filepath.Join(t.TempDir(), "system.copy"), Now: time.Now,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: prometheus.NewRegistry(),
	}
	for _, p := range peers {
		c.Endpoints = append(c.Endpoints, p.client)
	}
	return c
}

func open(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// begin is open, and waits until etcd is there.
func begin(t *testing.T, c Config) *Store {
	t.Helper()
	s := open(t, c)
	followed(t, s, "")
	return s
}

// followed waits until the store is at some endpoint, and returns which.
func followed(t *testing.T, s *Store, not string) (address string) {
	t.Helper()
	await.Until(t, func() string {
		st := s.Status()
		if address = st.Address; address == "" || address == not || st.Problem != "" {
			return fmt.Sprintf("no endpoint but %q is followed: %+v", not, st)
		}
		return ""
	})
	return address
}

// answered waits until calls are answered again: one may still go to a member that was
// killed, and is not made again.
func answered(t *testing.T, s *Store) {
	t.Helper()
	await.Until(t, func() string {
		if _, err := s.Txn(t.Context(), &pb.TxnRequest{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// has waits until a key has a value; "" is that it is not there.
func has(t *testing.T, s *Store, key, value string) {
	t.Helper()
	await.Until(t, func() string {
		kv, ok := s.State().Get(key)
		if ok != (value != "") || string(kv.Value) != value {
			return fmt.Sprintf("%s is %q (%v), want %q; %+v", key, kv.Value, ok, value, s.Status())
		}
		return ""
	})
}

func put(t *testing.T, w follow.Writer, key, value string) int64 {
	t.Helper()
	r, err := w.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// written is put to a cluster of several, which may elect a leader at any time.
func written(t *testing.T, s *Store, key, value string) {
	t.Helper()
	await.Until(t, func() string {
		_, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}}})
		if err != nil {
			return fmt.Sprintf("%s is not written: %v", key, err)
		}
		return ""
	})
}

// shows are the files of a client that an authority issued a certificate to.
func shows(a *certs.Authority, name string) TLS {
	p := a.Files(name)
	return TLS{Cert: p.Cert, Key: p.Key, CA: a.File}
}
