package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
)

// dialStore connects to an address of an agent as clients of etcd do.
func dialStore(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *running) storeAt(t *testing.T) pb.KVClient {
	t.Helper()
	st, err := r.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pb.NewKVClient(dialStore(t, st.Listeners["api.listen"]))
}

func storeCall(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// put writes as soon as somebody leads.
func put(t *testing.T, kv pb.KVClient, key, value string) {
	t.Helper()
	await.For(t, "a write of "+key, func() bool {
		_, err := kv.Put(storeCall(t), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		return err == nil
	})
}

// get1 reads as soon as somebody leads.
func get1(t *testing.T, kv pb.KVClient, key string) string {
	t.Helper()
	var found *pb.RangeResponse
	await.Until(t, func() (missing string) {
		var err error
		if found, err = kv.Range(storeCall(t), &pb.RangeRequest{Key: []byte(key)}); err != nil {
			return err.Error()
		}
		return ""
	})
	if len(found.Kvs) == 0 {
		return ""
	}
	return string(found.Kvs[0].Value)
}

func TestStoreOfOneAgent(t *testing.T) {
	cfg := testConfig(t, "n1")
	r := start(t, Options{Loaded: loaded(cfg)})
	kv := r.storeAt(t)
	put(t, kv, "a", "1")

	system := metadata.AppendToOutgoingContext(t.Context(), "fairlead-keyspace", "system")
	if _, err := kv.Range(system, &pb.RangeRequest{Key: []byte("leader")}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the system's keyspace over TCP: %v", err)
	}
	socket := pb.NewKVClient(dialStore(t, "unix://"+cfg.API.Socket))
	found, err := socket.Range(system, &pb.RangeRequest{Key: []byte("leader")})
	if err != nil || found.Count != 1 {
		t.Errorf("the leader's key on the socket: %v, %v", found, err)
	}
	if group, err := r.api.Raft(t.Context()); err != nil || group.LeaderName != "n1" || len(group.Members) != 1 {
		t.Errorf("raft: %+v, %v", group, err)
	}
	// All that there is of the user's is gone, and nothing of the system's.
	if _, err := kv.DeleteRange(storeCall(t), &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil {
		t.Error(err)
	}
	if found, err := socket.Range(system, &pb.RangeRequest{Key: []byte("leader")}); err != nil || found.Count != 1 {
		t.Errorf("after all keys were deleted: %v, %v", found, err)
	}
	put(t, kv, "b", "2")
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}

	again := start(t, Options{Loaded: loaded(cfg)})
	await.For(t, "the store to lead again", func() bool {
		_, err := again.storeAt(t).Range(storeCall(t), &pb.RangeRequest{Key: []byte("b")})
		return err == nil
	})
	if got := get1(t, again.storeAt(t), "b"); got != "2" {
		t.Errorf("after a restart b is %q", got)
	}

	// A change of the servers counts as applied, though the state has nothing of it.
	if err := again.storage.server().Change(storeCall(t), replica.Change{AddLearners: []uint64{99}}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, func() string {
		if st := again.group(t); st.Applied == 0 || st.Applied < st.Commit {
			return fmt.Sprintf("applied %d of %d", st.Applied, st.Commit)
		}
		return ""
	})
}

func TestAgentsThatAreNoServers(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(*config.Config)
		why  string
	}{
		{"told so", func(c *config.Config) { c.Cluster.Server = false }, "cluster.server is false"},
		{"of somebody else's set", func(c *config.Config) {
			c.Raft.Peers = []config.RaftPeer{{Name: "other", Addr: netip.MustParseAddrPort("127.0.0.1:1")}}
		}, "raft.peers does not name it"},
		{"joining", func(c *config.Config) { c.Cluster.Join = []string{"127.0.0.1:1"} }, "it is not alone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t, "n1")
			c.with(cfg)
			r := start(t, Options{Loaded: loaded(cfg)})
			group, err := r.api.Raft(t.Context())
			if err != nil || !strings.Contains(group.NotServer, c.why) {
				t.Errorf("raft: %+v, %v: want %q", group, err, c.why)
			}
			if _, err := os.Stat(filepath.Join(cfg.Node.DataDir, "raft.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("an agent that is no server has state of one: %v", err)
			}
		})
	}
}

// staticSet are the configurations of three servers and one more agent.
func staticSet(t *testing.T) []*config.Config {
	t.Helper()
	return setOf(t, 3)
}

// setOf are the configurations of servers and one more agent.
func setOf(t *testing.T, servers int) []*config.Config {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := identity.CreateFile(secret, rand.Reader); err != nil {
		t.Fatal(err)
	}
	var all []*config.Config
	var peers []config.RaftPeer
	for i := range servers {
		name := fmt.Sprintf("n%d", i+1)
		peers = append(peers, config.RaftPeer{Name: name, Addr: netip.MustParseAddrPort(port.Free(t))})
	}
	for i := range servers + 1 {
		cfg := testConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.Cluster.SecretFile, cfg.Raft.Peers = secret, peers
		if i < len(peers) {
			cfg.RPC.Listen = config.ListenOn(peers[i].Addr)
		} else {
			cfg.RPC.Listen = config.ListenOn(netip.MustParseAddrPort("127.0.0.1:0"))
		}
		cfg.Raft.Heartbeat, cfg.Raft.Election = 20*time.Millisecond, 200*time.Millisecond
		if errs := cfg.Validate(nil); len(errs) != 0 {
			t.Fatal(errs)
		}
		all = append(all, cfg)
	}
	return all
}

func TestStoreOfASet(t *testing.T) {
	all := staticSet(t)
	for _, cfg := range all {
		cfg.Raft.Election = time.Second // a leader that hands over has two of them
	}
	var servers []*running
	for _, cfg := range all[:3] {
		servers = append(servers, start(t, Options{Loaded: loaded(cfg)}))
	}
	put(t, servers[0].storeAt(t), "a", "1")
	for i, r := range servers {
		if got := get1(t, r.storeAt(t), "a"); got != "1" {
			t.Errorf("n%d has %q", i+1, got)
		}
	}
	// One that is no server asks them, also about the system's keyspace.
	other := start(t, Options{Loaded: loaded(all[3])})
	put(t, other.storeAt(t), "b", "2")
	if got := get1(t, servers[1].storeAt(t), "b"); got != "2" {
		t.Errorf("what was written by way of an agent that is no server is %q", got)
	}
	system := metadata.AppendToOutgoingContext(t.Context(), "fairlead-keyspace", "system")
	if _, err := other.storeAt(t).Range(system, &pb.RangeRequest{Key: []byte("leader")}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the system's keyspace over TCP, passed on: %v", err)
	}
	socket := pb.NewKVClient(dialStore(t, "unix://"+all[3].API.Socket))
	if found, err := socket.Range(system, &pb.RangeRequest{Key: []byte("leader")}); err != nil || found.Count != 1 {
		t.Errorf("the system's keyspace on the socket, passed on: %v, %v", found, err)
	}

	// The one that leads stops: somebody else has the office before it is gone.
	leads, _ := byRole(t, servers)
	leads.signals <- os.Interrupt
	if err := leads.wait(t); err != nil {
		t.Error(err)
	}
	if !strings.Contains(leads.log.String(), "handed the leadership over") {
		t.Errorf("the leader stopped without handing over; log:\n%s", leads.log)
	}
}

func TestStoreThatDoesNotOpen(t *testing.T) {
	for _, c := range []struct {
		name  string
		with  func(*config.Config)
		words []string
	}{
		{"no secret file", func(c *config.Config) { c.Cluster.SecretFile = "/nowhere/secret" }, []string{"cluster.secret_file", "/nowhere/secret"}},
		{"a set that is gone", func(c *config.Config) {
			text := `{"cluster_id":"00000000000000aa","raft_id":"0000000000000001","node":"n9","set":["n9"],"begun":true}`
			if err := os.MkdirAll(c.Node.DataDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(c.Node.DataDir, "raft.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"raft.json", "n9", "node.name is n1"}},
		{"no TLS files", func(c *config.Config) { c.API.TLS.Cert, c.API.TLS.Key = "/nowhere/c.pem", "/nowhere/k.pem" }, []string{"api.tls", "/nowhere/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t, "n1")
			c.with(cfg)
			r := prepare(t, Options{Loaded: loaded(cfg)})
			err := r.Run(t.Context(), nil)
			if err == nil {
				t.Fatal("the agent ran")
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not name %q: %v", w, err)
				}
			}
		})
	}
}

func TestDiskWithoutRoomForAStore(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	cfg := testConfig(t, "n1")
	cfg.Node.DataDir = dir
	r := start(t, Options{Loaded: loaded(cfg)})
	if group, err := r.api.Raft(t.Context()); err != nil || !strings.Contains(group.NotServer, "no space left") {
		t.Errorf("raft: %+v, %v", group, err)
	}
	if !strings.Contains(r.log.String(), "free some space") {
		t.Errorf("the log lacks what to do:\n%s", r.log)
	}
}
