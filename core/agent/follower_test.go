package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/test/await"
)

// putSystem writes a key of the cluster's own by an agent's socket.
func putSystem(t *testing.T, cfg *config.Config, key, value string) int64 {
	t.Helper()
	kv := pb.NewKVClient(dialStore(t, "unix://"+cfg.API.Socket))
	var revision int64
	await.Until(t, func() string {
		r, err := kv.Put(metadata.AppendToOutgoingContext(storeCall(t), "fairlead-keyspace", "system"), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		if err != nil {
			return err.Error()
		}
		revision = r.Header.Revision
		return ""
	})
	return revision
}

// has waits until an agent's copy has a key.
func (r *running) has(t *testing.T, key, value string) {
	t.Helper()
	await.Until(t, func() string {
		if kv, _ := r.storage.follower.source.State().Get(key); string(kv.Value) != value {
			return key + " is " + string(kv.Value)
		}
		return ""
	})
}

// An agent that is no server follows those that are, and knows what is configured
// when all of them are gone.
func TestAgentFollowsTheServers(t *testing.T) {
	all := staticSet(t)
	set, cfg := all[:3], all[3]
	var servers []*running
	for _, cfg := range set {
		servers = append(servers, start(t, Options{Loaded: loaded(cfg)}))
	}
	r := start(t, Options{Loaded: loaded(cfg)})
	revision := putSystem(t, set[0], "services/web", "1")
	r.has(t, "services/web", "1")
	servers[1].has(t, "services/web", "1")
	var group string
	await.Until(t, func() string {
		st, err := r.api.Raft(t.Context())
		if err != nil || st.Copy == nil || st.Copy.Revision < revision || st.Copy.Server == "" || !st.Copy.AgeKnown || st.Copy.Problem != "" {
			return fmt.Sprintf("%+v, %v", st.Copy, err)
		}
		group = st.Copy.ClusterID
		return ""
	})
	await.Until(t, func() string { // an agent that is none asks who they are
		st, err := r.api.RaftPeers(t.Context())
		roles := map[string]int{}
		for _, m := range st.Members {
			if m.Name != "" && m.Addr != "" && m.MatchKnown && m.Active {
				roles[m.Role]++
			}
		}
		if err != nil || st.Server || roles["leader"] != 1 || roles["voter"] != 2 {
			return fmt.Sprintf("%+v, %v", st, err)
		}
		return ""
	})
	if of, err := servers[0].api.Raft(t.Context()); err != nil || of.Copy != nil || of.ClusterID != group {
		t.Errorf("a server: %+v, %v", of, err)
	}
	for i, s := range servers {
		s.cancel()
		if err := s.wait(t); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(set[i].Node.DataDir, copyFile)); !os.IsNotExist(err) {
			t.Errorf("a server has a copy: %v", err)
		}
	}
	await.For(t, "a word that no server is there", func() bool {
		st, err := r.api.Raft(t.Context())
		return err == nil && st.Copy.Problem != "" && st.Copy.Revision >= revision
	})
	r.has(t, "services/web", "1")
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	again := start(t, Options{Loaded: loaded(cfg)})
	if kv, _ := again.storage.follower.source.State().Get("services/web"); string(kv.Value) != "1" {
		t.Errorf("after a restart without servers: %+v", kv)
	}
}

// A lone agent is its own server.
func TestLoneAgentHasItsOwn(t *testing.T) {
	cfg := testConfig(t, "n1")
	r := start(t, Options{Loaded: loaded(cfg)})
	putSystem(t, cfg, "services/web", "1")
	r.has(t, "services/web", "1")
	if st := r.storage.follower.source.Status(); st.Server != "n1" || st.Problem != "" {
		t.Errorf("%+v", st)
	}
}

// With an etcd cluster there is no store of the agents, and it says where to look.
func TestStoreIsEtcd(t *testing.T) {
	cfg := testConfig(t, "n1")
	cfg.Store = config.Store{Kind: "etcd", Endpoints: []string{"127.0.0.1:1"}}
	r := start(t, Options{Loaded: loaded(cfg)})
	if _, err := r.storeAt(t).Range(storeCall(t), &pb.RangeRequest{Key: []byte("k")}); err == nil || !strings.Contains(err.Error(), "store.endpoints") {
		t.Errorf("%v", err)
	}
	st, err := r.api.Raft(t.Context())
	if err != nil || st.NotServer != "store.kind is etcd" || st.Copy == nil {
		t.Errorf("%+v, %v", st, err)
	}
	await.For(t, "a word that etcd does not answer", func() bool {
		st, err := r.api.Raft(t.Context())
		return err == nil && strings.Contains(st.Copy.Problem, "127.0.0.1:1")
	})
}
