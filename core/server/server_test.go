package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
	"github.com/fairlead/fairlead/test/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server that tests start and stop.
type node struct {
	t *testing.T
	Config
	*Server
	port *transport.Port
}

// unhurried is an election timeout for servers whose leader is to hand its office over:
// the other one has two of them to take it, on a machine with much else to do as well.
const unhurried = 2 * time.Second

func alone(t *testing.T, dir string) *node {
	return &node{t: t, Config: Config{
		Cluster: "test", Node: "n1", Dir: dir, API: []string{"http://127.0.0.1:7402"},
		HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: prometheus.NewRegistry(),
	}}
}

// set returns the nodes of a static set, which were not started.
func set(t *testing.T, names ...string) []*node {
	t.Helper()
	text, err := identity.Generate(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := identity.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var peers []Peer
	var listeners []net.Listener
	for _, name := range names {
		l, err := net.Listen("tcp", port.Free(t)) // it is listened on again in the next life
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		peers = append(peers, Peer{name, netip.MustParseAddrPort(l.Addr().String())})
	}
	var nodes []*node
	for i, p := range peers {
		n := alone(t, t.TempDir())
		n.Node, n.RPC, n.Set = p.Name, p.Addr.String(), peers
		n.Metrics = prometheus.NewRegistry()
		if n.Keeper, err = identity.NewKeeper("test", identity.Node{ID: p.Name, Name: p.Name}, secrets, time.Now); err != nil {
			t.Fatal(err)
		}
		n.listen(listeners[i])
		nodes = append(nodes, n)
	}
	return nodes
}

// listen makes the port, on l or again on the address that it had.
func (n *node) listen(l net.Listener) {
	n.t.Helper()
	var err error
	if l == nil {
		if l, err = net.Listen("tcp", n.RPC); err != nil {
			n.t.Fatal(err)
		}
	}
	n.port, err = transport.NewPort(transport.PortConfig{Listener: l, Keeper: n.Keeper, Log: n.Log, Metrics: n.Metrics})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Port = n.port
}

func (n *node) start() error {
	var err error
	if n.Server, err = Open(n.Config); err != nil {
		n.Server = nil
		return err
	}
	if n.port != nil {
		go n.port.Serve() //nolint:errcheck // it ends with stop
	}
	return nil
}

func (n *node) stop() {
	if n.Server != nil {
		n.Server.Close(n.t.Context())
	}
	if n.port != nil {
		n.port.Stop()
	}
	n.Server, n.port = nil, nil
}

func startAll(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		if n.port == nil && len(n.Set) > 1 {
			n.listen(nil)
		}
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.stop)
	}
}

func (n *node) put(key, value string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), await.Patience)
	defer cancel()
	r, err := n.Propose(ctx, store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: key, Value: []byte(value)}}})
	if err = errors.Join(err, r.Err); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) get(k store.Keyspace, key string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), await.Patience)
	defer cancel()
	v, err := n.Read(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	found, err := v.Range(k, store.RangeOp{Range: store.Range{Key: key}})
	if err != nil {
		n.t.Fatal(err)
	}
	if len(found.KVs) == 0 {
		return ""
	}
	return string(found.KVs[0].Value)
}

func TestAloneKeepsWhatItHad(t *testing.T) {
	dir := t.TempDir()
	n := alone(t, dir)
	startAll(t, []*node{n})
	n.put("a", "1")
	first := n.Identity()
	n.stop()
	startAll(t, []*node{n})
	if got := n.get(store.User, "a"); got != "1" {
		t.Errorf("after a restart a is %q, want 1", got)
	}
	if now := n.Identity(); now.Cluster != first.Cluster || now.Server != first.Server {
		t.Errorf("after a restart this is %+v, it was %+v", now, first)
	}
	await.For(t, "the server's record is published", func() bool {
		return strings.Contains(n.get(store.System, ServersPrefix+formatID(first.Server)), `"name":"n1"`)
	})
	if st := n.Status(); len(st.Members) != 1 || st.Members[0].Name != "n1" || st.Members[0].API[0] != "http://127.0.0.1:7402" || st.LeaderName != "n1" {
		t.Errorf("status is %+v", st)
	}
}

func TestInMemory(t *testing.T) {
	n := alone(t, "")
	startAll(t, []*node{n})
	n.put("a", "1")
	n.stop()
	startAll(t, []*node{n})
	if got := n.get(store.User, "a"); got != "" {
		t.Errorf("memory that ended still has %q", got)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := alone(t, dir)
	startAll(t, []*node{n})
	n.put("a", "1")
	n.stop()
	segments, err := filepath.Glob(filepath.Join(dir, raftDir, "*"))
	if err != nil || len(segments) < 2 {
		t.Fatalf("files of the log: %v, %v", segments, err)
	}
	peers := []Peer{{"n1", netip.MustParseAddrPort("127.0.0.1:1")}}

	t.Run("a set", func(t *testing.T) {
		other := alone(t, dir)
		other.Set = peers
		wantRefusal(t, other.start(), ErrOther, "raft.peers names n1", "snapshot save")
	})
	t.Run("a set without this node", func(t *testing.T) {
		other := alone(t, dir)
		other.Node, other.Set = "n9", peers
		wantRefusal(t, other.start(), nil, "n9", "n1")
	})
	t.Run("identity damaged", func(t *testing.T) {
		file := filepath.Join(dir, identityFile)
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(file, was, 0o600) //nolint:errcheck // a later test says so
		for i, bad := range []string{strings.Repeat(" ", identityFileBytes+1), "", "{", `{"cluster_id":"0000000000000000","raft_id":"01","node":"n1"}`} {
			if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			err := alone(t, dir).start()
			wantRefusal(t, err, nil, file)
			if i > 0 {
				wantRefusal(t, err, nil, "new data directory")
			}
		}
	})
	t.Run("damaged log", func(t *testing.T) {
		var log string
		for _, s := range segments {
			if strings.HasSuffix(s, ".wal") || strings.Contains(filepath.Base(s), "log") {
				log = s
			}
		}
		if log == "" {
			t.Fatalf("which one of %v is the log", segments)
		}
		was, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(was)
		bad[40] ^= 0xff
		if err := os.WriteFile(log, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		err = alone(t, dir).start()
		var damage *wal.DamageError
		if !errors.As(err, &damage) {
			t.Errorf("a damaged log: %v", err)
		}
		if err := os.WriteFile(log, was, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the log is gone", func(t *testing.T) {
		if err := os.RemoveAll(filepath.Join(dir, raftDir)); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, alone(t, dir).start(), ErrForgotten, filepath.Join(dir, identityFile), "snapshot restore")
	})
}

// What one is told of a state that is damaged or gone never has a server of a static
// set begin with an empty disk: it would have forgotten what it confirmed.
func TestAdvice(t *testing.T) {
	damaged := &wal.DamageError{File: "x", Offset: 7}
	for _, c := range []struct {
		set   []string
		err   error
		words []string
	}{
		{nil, raft.ErrNoState, []string{"raft.json", "new data directory"}},
		{nil, snap.ErrNone, []string{"new data directory"}},
		{nil, damaged, []string{"x is damaged at byte 7", "new data directory"}},
		{[]string{"a", "b"}, raft.ErrNoState, []string{"raft.json", "snapshot save", "never empty one server alone"}},
		{[]string{"a", "b"}, snap.ErrNone, []string{"snapshot save", "never empty one server alone"}},
		{[]string{"a", "b"}, damaged, []string{"snapshot save", "never empty one server alone"}},
	} {
		err := Identity{Set: c.set}.advise(c.err, "dir")
		if errors.Is(c.err, raft.ErrNoState) {
			c.err = ErrForgotten
		}
		wantRefusal(t, err, c.err, c.words...)
		if len(c.set) > 0 && strings.Contains(err.Error(), "new data directory") {
			t.Errorf("a static set: %v", err)
		}
	}
	if other := errors.New("other"); (Identity{}).advise(other, "dir") != other {
		t.Error("another error became one of the state")
	}
}

func wantRefusal(t *testing.T, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Fatalf("the error is %v, want %v", err, is)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not name %q: %v", w, err)
		}
	}
}

func TestStaticSet(t *testing.T) {
	nodes := set(t, "b", "c", "a")
	said := map[*node]*transcript.Buffer{}
	for _, n := range nodes {
		said[n] = &transcript.Buffer{}
		n.Log = slog.New(slog.NewTextHandler(said[n], nil))
		n.ElectionTimeout = unhurried
	}
	startAll(t, nodes)
	nodes[0].put("x", "1")
	for _, n := range nodes {
		if got := n.get(store.User, "x"); got != "1" {
			t.Errorf("%s has x = %q", n.Node, got)
		}
	}
	for i, rank := range []uint64{2, 3, 1} {
		if id := nodes[i].Identity(); id.Server != rank || id.Cluster != nodes[0].Identity().Cluster {
			t.Errorf("%s is %+v", nodes[i].Node, id)
		}
	}
	for _, n := range nodes {
		await.For(t, n.Node+" knows all names and API addresses", func() bool {
			st := n.Status()
			if len(st.Members) != 3 || st.LeaderName == "" {
				return false
			}
			for i, m := range st.Members {
				if m.Name != string('a'+rune(i)) || len(m.API) != 1 || m.RPC == "" {
					return false
				}
			}
			return true
		})
	}

	// A leader that stops hands over: nobody waits for an election.
	for _, n := range nodes {
		if n.State().Leads() {
			term := n.State().Term
			n.stop()
			if !strings.Contains(said[n].String(), "handed the leadership over") {
				t.Errorf("the leader of term %d did not hand over: %s", term, said[n])
			}
			break
		}
	}
}

func TestStaticSetKeepsItsNames(t *testing.T) {
	nodes := set(t, "n1", "n2", "n3")
	startAll(t, nodes)
	nodes[0].put("a", "1")
	for _, n := range nodes {
		n.stop()
	}
	other := alone(t, nodes[0].Dir)
	other.Node = "n2"
	other.Set, other.Keeper, other.RPC = nodes[0].Set, nodes[0].Keeper, nodes[0].RPC
	other.listen(nil)
	defer other.port.Stop()
	wantRefusal(t, other.start(), ErrOther, "node.name is n2", identityFile)
	other.Node, other.Set = "n1", append(slices.Clone(nodes[0].Set), Peer{"n4", netip.MustParseAddrPort("127.0.0.1:1")})
	wantRefusal(t, other.start(), ErrOther, "n1, n2, n3", "n4")
}

func TestRestoreSet(t *testing.T) {
	old := set(t, "n1", "n2", "n3")
	startAll(t, old)
	for i := range 50 {
		old[i%3].put(fmt.Sprintf("key-%02d", i), "value")
	}
	v, err := old[0].Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if err := v.Backup(func(p []byte, _ uint64) error { backup.Write(p); return nil }); err != nil {
		t.Fatal(err)
	}
	want, at, _, err := v.HashAt(store.User, 0)
	if err != nil {
		t.Fatal(err)
	}
	oldCluster := old[0].Identity().Cluster
	for _, n := range old {
		n.stop()
	}

	again := set(t, "n1", "n2", "n3")
	for _, n := range again {
		rc := RestoreConfig{Cluster: n.Cluster, Node: n.Node, Dir: n.Dir, Set: n.Set, Backup: backup.Bytes()}
		if _, err := Restore(rc); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(rc); !errors.Is(err, raft.ErrHasState) {
			t.Errorf("restoring over a server's state: %v", err)
		}
	}
	startAll(t, again)
	again[1].put("later", "1")
	for _, n := range again {
		v, err := n.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _, err := v.HashAt(store.User, at); err != nil || got != want {
			t.Errorf("%s has hash %x at revision %d, %v; the backup had %x", n.Node, got, at, err, want)
		}
		if n.Identity().Cluster == oldCluster {
			t.Error("a restored group has the id of the old one: servers of both could meet")
		}
	}

	bad := bytes.Clone(backup.Bytes())
	bad[100] ^= 1
	if _, err := Restore(RestoreConfig{Cluster: "test", Node: "n1", Dir: t.TempDir(), Backup: bad}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("an altered backup: %v", err)
	}
	if _, err := Restore(RestoreConfig{Cluster: "test", Node: "n7", Dir: t.TempDir(), Set: again[0].Set, Backup: backup.Bytes()}); err == nil {
		t.Error("a node that is not in the set was restored")
	}
}
