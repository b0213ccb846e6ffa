package interop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	raftpb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/snap"
)

// alone is the transport of a server that has no others.
type alone struct{}

func (alone) Start(raft.Handler)                                           {}
func (alone) Send(*raftpb.Message)                                         {}
func (alone) SendSnapshot(_ *raftpb.Message, _ snap.Meta, f io.ReadCloser) { _ = f.Close() }
func (alone) Stop()                                                        {}
func (alone) Ask(context.Context, uint64, raft.Question) (raft.Answer, error) {
	return raft.Answer{}, errors.New("there is no other server")
}

// named is a raft.Host with what an agent knows beside it.
type named struct {
	*raft.Host
	url string
}

func (n named) Status() etcd.Status {
	st := n.State()
	index, _ := n.View().Applied()
	return etcd.Status{
		ClusterID: 0xabcd, MemberID: n.ID(), Term: st.Term, Leader: st.Leader, Index: index,
		Members: []etcd.Member{{ID: n.ID(), Name: "n1", PeerURLs: []string{"http://127.0.0.1:7401"}, ClientURLs: []string{n.url}}},
	}
}

// fairlead starts a server of the store and returns its endpoint.
func fairlead(t *testing.T) string {
	t.Helper()
	fs, err := disk.OpenOS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	store := &named{url: "http://" + l.Addr().String()}
	api := etcd.New(etcd.Config{Store: store, Log: log})
	store.Host, err = raft.Open(raft.Config{
		ID: 1, Cluster: "abcd", Voters: []uint64{1}, Disk: fs, Transport: alone{}, HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond,
		OnApply: func(raft.Applied) { api.Applied() }, Log: log, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(etcd.MaxReceiveBytes))
	api.Register(g)
	go g.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() {
		api.Stop()
		g.Stop()
		store.Close()
	})
	return l.Addr().String()
}

// peer starts Debian's etcd and returns its endpoint.
func peer(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is not installed: Debian package etcd-server")
	}
	client, server := free(t), free(t)
	cmd := exec.Command(path, "--name", "n1", "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-client-urls", "http://"+client,
		"--advertise-client-urls", "http://"+client, "--listen-peer-urls", "http://"+server, "--initial-advertise-peer-urls", "http://"+server,
		"--initial-cluster", "n1=http://"+server, "--logger", "zap", "--log-level", "error", "--heartbeat-interval", "10", "--election-timeout", "50")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return client
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// etcdctl runs Debian's client and returns what it printed and how it ended.
func etcdctl(t *testing.T, endpoint, stdin string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("etcdctl is not installed: Debian package etcd-client")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"--endpoints", endpoint}, args...)...)
	cmd.Env = []string{"ETCDCTL_API=3", "PATH=/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		text += err.Error() + "\n"
	}
	return text
}
