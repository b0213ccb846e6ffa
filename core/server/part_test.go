package server

import (
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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
)

// gossip is what nodes of a test know of each other, all at the same time.
type gossip struct {
	mu    sync.Mutex
	nodes map[model.NodeID]Neighbour
}

func (g *gossip) set(id model.NodeID, change func(*Neighbour)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[id]
	change(&n)
	g.nodes[id] = n
}

// others are those that a node sees.
func (g *gossip) others(self model.NodeID) []Neighbour {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Neighbour
	for id, n := range g.nodes {
		if id != self {
			out = append(out, n)
		}
	}
	return out
}

// partNode is a node with its part in the store.
type partNode struct {
	t *testing.T
	PartConfig
	*Part
	gossip *gossip
	port   *transport.Port
}

// partNodes returns nodes that see each other once they are started.
func partNodes(t *testing.T, n, expect int) []*partNode {
	t.Helper()
	text, err := identity.Generate(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := identity.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g := &gossip{nodes: map[model.NodeID]Neighbour{}}
	var out []*partNode
	for i := range n {
		id := model.NodeID(i+1) << 40
		p := &partNode{t: t, gossip: g, PartConfig: PartConfig{Expect: expect, Config: Config{
			Cluster: "test", Node: fmt.Sprintf("n%d", i+1), NodeID: id, Dir: t.TempDir(),
			HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
			Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", i+1),
		}}}
		if p.Keeper, err = identity.NewKeeper("test", identity.Node{ID: id.String(), Name: p.Node}, secrets, time.Now); err != nil {
			t.Fatal(err)
		}
		p.Neighbours = func() []Neighbour { return g.others(id) }
		p.Announce = func(s *record.Server) { g.set(id, func(n *Neighbour) { n.Server = s }) }
		out = append(out, p)
	}
	return out
}

func (p *partNode) start() {
	p.t.Helper()
	if err := p.tryStart(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *partNode) tryStart() error {
	p.t.Helper()
	address := "127.0.0.1:0" // another one with each start
	for _, peer := range p.Set {
		if peer.Name == p.Node {
			address = peer.Addr.String()
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Metrics = prometheus.NewRegistry()
	if p.port, err = transport.NewPort(transport.PortConfig{Listener: l, Keeper: p.Keeper, Log: p.Log, Metrics: p.Metrics}); err != nil {
		p.t.Fatal(err)
	}
	p.RPC, p.Port = l.Addr().String(), p.port
	p.gossip.set(p.NodeID, func(n *Neighbour) {
		*n = Neighbour{ID: p.NodeID, Name: p.Node, State: model.StateAlive, Since: time.Now(), Server: n.Server}
	})
	if p.Part, err = StartPart(p.PartConfig); err != nil {
		p.port.Stop()
		return err
	}
	go p.port.Serve() //nolint:errcheck // it ends with stop
	p.t.Cleanup(p.stop)
	return nil
}

func (p *partNode) stop() {
	if p.Part == nil {
		return
	}
	p.Part.Close(context.Background())
	p.port.Stop()
	p.Part = nil
	p.gossip.set(p.NodeID, func(n *Neighbour) { n.State, n.Since = model.StateDead, time.Now() })
}

// said is what the node says of itself to the others.
func (p *partNode) said() *record.Server {
	p.gossip.mu.Lock()
	defer p.gossip.mu.Unlock()
	return p.gossip.nodes[p.NodeID].Server
}

func (p *partNode) leads() bool {
	s := p.Server()
	return s != nil && s.State().Leads()
}

func (p *partNode) put(key string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), await.Patience)
	defer cancel()
	r, err := p.Server().Propose(ctx, store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: key}}})
	if err != nil || r.Err != nil {
		p.t.Fatal(err, r.Err)
	}
}

func (p *partNode) has(key string) bool {
	s := p.Server()
	if s == nil {
		return false
	}
	found, err := s.View().Range(store.User, store.RangeOp{Range: store.Range{Key: key}})
	return err == nil && len(found.KVs) == 1
}

// led waits until one of the nodes leads, which is not asked twice: it may have lost
// the office meanwhile.
func led(t *testing.T, nodes []*partNode) (leader *partNode) {
	t.Helper()
	await.For(t, "somebody to lead", func() bool {
		leader = leaderOf(nodes)
		return leader != nil
	})
	return leader
}

// leaderOf is the node that leads, or nil.
func leaderOf(nodes []*partNode) *partNode {
	for _, p := range nodes {
		if p.Part != nil && p.leads() {
			return p
		}
	}
	return nil
}

func TestFormJoinReplace(t *testing.T) {
	nodes := partNodes(t, 4, 3)
	nodes[3].Expect = 0
	for _, p := range nodes[:3] {
		p.start()
	}
	group := led(t, nodes).Server().Identity().Cluster
	for _, p := range nodes[:3] {
		await.For(t, p.Node+" to be a server", func() bool { return p.Server() != nil && p.Server().Identity().Cluster == group })
	}
	led(t, nodes).put("a")

	// The fourth waits until it is added. It knows the group by gossip.
	nodes[3].start()
	await.For(t, "the fourth to wait for the group", func() bool {
		s := nodes[3].Server()
		return s != nil && s.Identity().Cluster == group && len(s.Members().GetVoters()) == 0
	})
	fourth := nodes[3].Server().ID()
	change(t, nodes, replica.Change{AddLearners: []uint64{fourth}})
	await.For(t, "the fourth to have what was written", func() bool { return nodes[3].has("a") })
	await.For(t, "the fourth to say that it is a learner, and the others that they are none", func() bool {
		for i, p := range nodes {
			if s := p.said(); s == nil || s.Group != group || s.Learner != (i == 3) || (s.Term != 0) != p.leads() {
				return false
			}
		}
		return true
	})

	// One that is away is replaced in one change. When it is back, at another address,
	// it finds out and begins anew as another server.
	away := nodes[0]
	if away.leads() {
		away = nodes[1]
	}
	old := away.Server().ID()
	away.stop()
	change(t, nodes, replica.Change{Promote: []uint64{fourth}, Remove: []uint64{old}})
	await.For(t, "the fourth to say that it has a vote", func() bool { return !nodes[3].said().Learner })
	away.start()
	await.For(t, "the one that was away to be another server", func() bool {
		s := away.Server()
		return s != nil && s.ID() != old && s.Identity().Cluster == group
	})
	change(t, nodes, replica.Change{AddLearners: []uint64{away.Server().ID()}})
	await.For(t, "it to have what was written", func() bool { return away.has("a") })

	// All stop, and start again elsewhere.
	for _, p := range nodes {
		p.stop()
	}
	for _, p := range nodes {
		p.start()
	}
	led(t, nodes).put("b")
	for _, p := range nodes {
		await.For(t, p.Node+" to have all", func() bool { return p.has("a") && p.has("b") })
	}
}

// Two that were removed while they were away find that out, though each asks the other
// one first, who knows less and cannot find out more.
func TestTwoThatWereRemoved(t *testing.T) {
	nodes := partNodes(t, 5, 3)
	for i, p := range nodes {
		if i >= 3 {
			p.Expect = 0
		}
		p.start()
	}
	for _, p := range nodes {
		await.For(t, p.Node+" to know the group", func() bool { return p.Server() != nil })
	}
	ids := map[*partNode]uint64{}
	for _, p := range nodes {
		ids[p] = p.Server().ID()
	}
	group := led(t, nodes).Server().Identity().Cluster
	change(t, nodes, replica.Change{AddLearners: []uint64{ids[nodes[3]], ids[nodes[4]]}})
	var away []*partNode
	for i := range 2 {
		next := nodes[slices.IndexFunc(nodes[:3], func(p *partNode) bool { return p.Part != nil && !p.leads() })]
		next.stop()
		change(t, nodes, replica.Change{Promote: []uint64{ids[nodes[3+i]]}, Remove: []uint64{ids[next]}})
		away = append(away, next)
	}
	for i, p := range away {
		other := away[1-i].NodeID
		p.Neighbours = func() []Neighbour {
			near := p.gossip.others(p.NodeID)
			first := slices.IndexFunc(near, func(n Neighbour) bool { return n.ID == other })
			near[0], near[first] = near[first], near[0]
			return near
		}
	}
	for _, p := range away {
		p.start()
	}
	for _, p := range away {
		await.For(t, p.Node+" to be another server", func() bool {
			s := p.Server()
			return s != nil && s.ID() != ids[p] && s.Identity().Cluster == group
		})
	}
}

// A server that is removed while it runs knows it: clients are answered by others at
// once, and not when it has been without a leader for long, and it is another server
// soon.
func TestRemovedWhileItRuns(t *testing.T) {
	nodes := partNodes(t, 4, 3)
	withdrawn := make([]atomic.Bool, len(nodes))
	for i, p := range nodes {
		p.ElectionTimeout = 2 * time.Second
		p.Serving = func(s *Server) { withdrawn[i].Store(s == nil) }
		if i == 3 {
			p.Expect = 0
		}
		p.start()
	}
	for _, p := range nodes {
		await.For(t, p.Node+" to know the group", func() bool { return p.Server() != nil })
	}
	led(t, nodes)
	spare := nodes[3].Server().ID()
	change(t, nodes, replica.Change{AddLearners: []uint64{spare}})
	i := slices.IndexFunc(nodes[:3], func(p *partNode) bool { return !p.leads() })
	id := nodes[i].Server().ID()
	change(t, nodes, replica.Change{Promote: []uint64{spare}, Remove: []uint64{id}})
	begun := time.Now()
	await.For(t, "clients to be answered by others", withdrawn[i].Load)
	await.For(t, nodes[i].Node+" to be another server", func() bool {
		s := nodes[i].Server()
		return s != nil && s.ID() != id
	})
	if took := time.Since(begun); took > lostAfter*nodes[i].ElectionTimeout/2 {
		t.Errorf("it took %v", took)
	}
}

// change has whoever leads make a change, as often as it takes.
func change(t *testing.T, nodes []*partNode, c replica.Change) {
	t.Helper()
	inDoubt := false
	await.For(t, fmt.Sprintf("the change %+v", c), func() bool {
		l := leaderOf(nodes)
		if l == nil {
			return false
		}
		// One that is given up while it is made cannot be made again.
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		err := l.Server().Change(ctx, c)
		if err != nil {
			t.Logf("not yet: %v", err)
		}
		// A leader that is deposed may have made it, and not get to say so.
		inDoubt = inDoubt || errors.Is(err, raft.ErrUnknown)
		return err == nil || inDoubt && errors.Is(err, replica.ErrMembers)
	})
}

func TestNodeThatIsBeginningAnew(t *testing.T) {
	n := partNodes(t, 1, 1)[0]
	n.Alone = true
	n.start()
	n.put("a")
	id := n.Server().Identity()
	n.stop()
	// It stopped in the middle of becoming another server.
	if err := (Identity{Cluster: id.Cluster, Server: 77, Node: "n1", Clearing: true}).write(n.Dir); err != nil {
		t.Fatal(err)
	}
	n.start()
	if s := n.Server(); s == nil || s.ID() != 77 || n.has("a") {
		t.Errorf("it is %+v", s)
	}
	again, known, err := ReadIdentity(n.Dir)
	if err != nil || !known || again.Clearing || !again.Begun {
		t.Errorf("on disk it is %+v, %t, %v", again, known, err)
	}
	n.stop()
	if err := os.WriteFile(filepath.Join(n.Dir, formationFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.tryStart(); err == nil {
		t.Error("a damaged record of the formation was taken for none")
	}
}

// A server whose log and identity are gone forms nothing again, as it said already
// that it is of a group.
func TestServerThatForgotItself(t *testing.T) {
	nodes := partNodes(t, 3, 3)
	for _, p := range nodes {
		p.start()
	}
	for _, p := range nodes {
		await.For(t, p.Node+" to remember that it began", func() bool {
			rec, err := readFormation(p.Dir)
			return err == nil && rec.Begun
		})
	}
	p := nodes[0]
	p.stop()
	for _, name := range []string{identityFile, raftDir} {
		if err := os.RemoveAll(filepath.Join(p.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	wantRefusal(t, p.tryStart(), ErrForgotten, formationFile, "snapshot restore", "empty data directory")
}

// A server of a static set whose disk was emptied does not begin anew while somebody
// knows it; a set that is new begins, also while one of it is not there yet.
func TestStaticServerThatForgotItself(t *testing.T) {
	nodes := partNodes(t, 3, 0)
	var peers []Peer
	for _, p := range nodes {
		peers = append(peers, Peer{p.Node, netip.MustParseAddrPort(port.Free(t))})
	}
	for _, p := range nodes {
		p.Set = peers
	}
	nodes[0].start()
	nodes[1].start()
	await.For(t, "two of three to begin", func() bool { return nodes[0].leads() || nodes[1].leads() })
	nodes[2].start()
	for _, p := range nodes {
		await.For(t, p.Node+" to know all three by what they published", func() bool {
			s := p.Server()
			return s != nil && len(publishedBy(s.View())) == 3
		})
	}
	nodes[0].put("a")

	wiped := nodes[2]
	wiped.stop()
	for _, name := range []string{identityFile, raftDir} {
		if err := os.RemoveAll(filepath.Join(wiped.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].stop()
	wiped.start()
	await.For(t, "the wiped one to be told that it was a server", func() bool { return strings.Contains(wiped.Awaits(), "n2 knows it") })
	if s := wiped.Server(); s != nil {
		t.Errorf("it is server %x", s.ID())
	}
	nodes[0].start()
	await.For(t, "the two that remember to go on", func() bool { return nodes[0].leads() || nodes[1].leads() })
	nodes[1].put("b")
	await.For(t, "what was written to be there", func() bool { return nodes[1].has("a") && nodes[1].has("b") })
}
