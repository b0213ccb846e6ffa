package etcdstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/certs"
)

// What one agent writes, all have; and nothing that others keep in etcd.
func TestSourceAndWriter(t *testing.T) {
	p := newCluster(t, 1)[0]
	kv := p.clients(TLS{})
	for _, key := range []string{"/fairlead/", "/fairlead/prod", "/fairlead/prod0", "/fairlead/production/k", "/fairlead/test/k", "k"} {
		if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte("other")}); err != nil {
			t.Fatal(err)
		}
	}
	one, two := begin(t, config(t, p)), begin(t, config(t, p))
	revision := put(t, one, "k", "v")
	has(t, two, "k", "v")
	if kv, _ := two.State().Get("k"); kv.Mod != revision || kv.Create != revision || kv.Version != 1 {
		t.Errorf("%+v, want revision %d", kv, revision)
	}
	r, err := kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("/fairlead/prod/k")})
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := kv.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/fairlead/prod/k")}); err != nil {
		t.Fatal(err)
	}
	has(t, two, "k", "")
	put(t, two, "l", "v")
	has(t, one, "l", "v")
	if keys := slices.Collect(one.State().Range("")); len(keys) != 1 {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
}

// Who does not lead any more writes nothing: the fence is the election's key.
func TestFence(t *testing.T) {
	p := newCluster(t, 1)[0]
	s := begin(t, config(t, p))
	elected := put(t, s, "leader", "n1")
	w := follow.Fenced(s, follow.Fence{Key: "leader", Created: elected})
	put(t, w, "k", "1")
	put(t, s, "leader", "n1") // it is written again, but it is the same election
	put(t, w, "k", "2")
	if _, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("leader")}}}}}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "leader", "n2")
	_, err := w.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: []byte("3")}}}}})
	if !errors.Is(err, follow.ErrDeposed) {
		t.Errorf("%v", err)
	}
	put(t, s, "after", "v")
	has(t, s, "after", "v")
	has(t, s, "k", "2")
}

// Large answers come in pieces and pages, and a copy that is behind a compaction is
// read anew.
func TestAway(t *testing.T) {
	p := newCluster(t, 1)[0]
	kv := p.clients(TLS{})
	c := config(t, p)
	s := begin(t, c)
	for i := range 600 {
		put(t, s, fmt.Sprintf("k/%03d", i), "v")
	}
	has(t, s, "k/599", "v")
	s.Stop()
	other := begin(t, config(t, p))
	has(t, other, "k/599", "v")
	if n := len(slices.Collect(other.State().Range("k/"))); n != 600 {
		t.Errorf("%d keys", n)
	}
	for i := range 8 {
		put(t, other, fmt.Sprintf("large/%d", i), string(bytes.Repeat([]byte{'x'}, 1<<20)))
	}
	s = open(t, c)
	has(t, s, "large/7", strings.Repeat("x", 1<<20))
	s.Stop()
	if _, err := other.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("k/000")}}}}}); err != nil {
		t.Fatal(err)
	}
	last := put(t, other, "last", "v")
	if _, err := kv.Compact(t.Context(), &pb.CompactionRequest{Revision: last, Physical: true}); err != nil {
		t.Fatal(err)
	}
	s = open(t, c)
	has(t, s, "last", "v")
	has(t, s, "k/000", "")
	if n := len(slices.Collect(s.State().Range("k/"))); n != 599 {
		t.Errorf("%d keys", n)
	}
}

// A member that goes is left for another, and one that has no leader as well; what
// is known stays. The age says so.
func TestMembersGo(t *testing.T) {
	peers := newCluster(t, 3)
	s := begin(t, config(t, peers...))
	written(t, s, "k", "1")
	has(t, s, "k", "1")
	at := followed(t, s, "")
	i := slices.IndexFunc(peers, func(p *peer) bool { return p.client == at })
	peers[i].kill()
	second := followed(t, s, at)
	written(t, s, "k", "2")
	has(t, s, "k", "2")
	// The one that is left has no majority.
	j := slices.IndexFunc(peers, func(p *peer) bool { return p.client == second })
	peers[j].kill()
	await.Until(t, func() string {
		if st := s.Status(); st.Server != "" || !strings.Contains(st.Problem, "no leader") && !strings.Contains(st.Problem, "silent") {
			return fmt.Sprintf("a member without a leader is followed: %+v", st)
		}
		return ""
	})
	has(t, s, "k", "2")
	peers[i].start()
	peers[j].start()
	followed(t, s, "")
	written(t, s, "k", "3")
	has(t, s, "k", "3")
}

// Both sides show certificates. Files are read anew for each connection.
func TestTLS(t *testing.T) {
	a := certs.New(t)
	server := a.Files("etcd")
	p := newCluster(t, 1, "--cert-file", server.Cert, "--key-file", server.Key, "--trusted-ca-file", a.File, "--client-cert-auth")[0]
	c := config(t, p)
	c.TLS = shows(a, "fairlead")
	s := begin(t, c)
	put(t, s, "k", "v")
	has(t, s, "k", "v")
	s.Stop()
	// A certificate of somebody else is refused, until it is replaced.
	good := c.TLS
	c.TLS = shows(certs.New(t), "stranger")
	c.TLS.CA = a.File
	s = open(t, c)
	await.Until(t, func() string {
		if st := s.Status(); !strings.Contains(st.Problem, "tls:") {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	for from, to := range map[string]string{good.Cert: c.TLS.Cert, good.Key: c.TLS.Key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	followed(t, s, "")
	put(t, s, "k", "w")
	has(t, s, "k", "w")
}

// Whatever cannot work is said when it is opened.
func TestOpenRefuses(t *testing.T) {
	a := certs.New(t)
	good := shows(a, "fairlead")
	for name, one := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nothing":          {func(c *Config) { *c = Config{} }, "required"},
		"no endpoint":      {func(c *Config) { c.Endpoints = nil }, "store.endpoints is empty"},
		"no port":          {func(c *Config) { c.Endpoints = []string{"https://etcd"} }, "not host:port"},
		"plain with TLS":   {func(c *Config) { c.Endpoints, c.TLS = []string{"http://127.0.0.1:1"}, good }, "say https://"},
		"with and without": {func(c *Config) { c.Endpoints = []string{"127.0.0.1:1", "https://127.0.0.1:1"} }, "with TLS and without"},
		"no certificate":   {func(c *Config) { c.TLS = TLS{Cert: "/nowhere", Key: good.Key} }, "store.tls.cert"},
		"no authority":     {func(c *Config) { c.TLS = TLS{CA: "/nowhere"} }, "store.tls.ca"},
		"not PEM":          {func(c *Config) { c.TLS = TLS{CA: good.Key} }, "no certificate"},
		"a slash":          {func(c *Config) { c.Cluster = "a/b" }, "slash"},
		"twice":            {func(c *Config) { open(t, *c) }, "register metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			c.Endpoints = []string{"127.0.0.1:1", "127.0.0.1:1"}
			one.change(&c)
			if s, err := Open(c); err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}
