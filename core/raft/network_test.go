package raft

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// network carries messages between the servers of one process.
type network struct {
	mu      sync.Mutex
	servers map[uint64]*wire
	cut     map[[2]uint64]bool
	asked   atomic.Int64 // questions
	sees    func(*pb.Message)
}

// wire is one server's end.
type wire struct {
	n       *network
	id      uint64
	handler Handler
	out     chan func()
	stop    chan struct{}
	once    sync.Once
	ended   sync.WaitGroup
}

var errDown = errors.New("the other server is down")

func newNetwork() *network {
	return &network{servers: map[uint64]*wire{}, cut: map[[2]uint64]bool{}}
}

func (n *network) wire(id uint64) *wire {
	return &wire{n: n, id: id, out: make(chan func(), 4096), stop: make(chan struct{})}
}

// isolate cuts a server off, or no longer.
func (n *network) isolate(id uint64, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.servers {
		if other != id {
			n.cut[[2]uint64{id, other}], n.cut[[2]uint64{other, id}] = cut, cut
		}
	}
}

func (n *network) handlerOf(from, to uint64) Handler {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.servers[to]
	if w == nil || n.cut[[2]uint64{from, to}] {
		return nil
	}
	return w.handler
}

func (w *wire) Start(h Handler) {
	w.handler = h
	w.n.mu.Lock()
	w.n.servers[w.id] = w
	w.n.mu.Unlock()
	w.ended.Go(func() {
		for {
			select {
			case f := <-w.out:
				f()
			case <-w.stop:
				return
			}
		}
	})
}

func (w *wire) Send(m *pb.Message) {
	m = proto.Clone(m).(*pb.Message)
	w.n.mu.Lock()
	if w.n.sees != nil {
		w.n.sees(m)
	}
	w.n.mu.Unlock()
	select {
	case w.out <- func() {
		if h := w.n.handlerOf(w.id, m.GetTo()); h != nil {
			_ = h.Receive(m)
		} else {
			w.handler.Unreachable(m.GetTo())
		}
	}:
	default:
	}
}

func (w *wire) SendSnapshot(m *pb.Message, meta snap.Meta, file io.ReadCloser) {
	m = proto.Clone(m).(*pb.Message)
	w.ended.Go(func() {
		data, err := io.ReadAll(file)
		err = errors.Join(err, file.Close())
		if h := w.n.handlerOf(w.id, m.GetTo()); h == nil {
			err = errDown
		} else if err == nil {
			err = h.ReceiveSnapshot(m, meta, bytes.NewReader(data))
		}
		w.handler.SnapshotSent(m.GetTo(), err)
	})
}

func (w *wire) Ask(ctx context.Context, to uint64, q Question) (Answer, error) {
	w.n.asked.Add(1)
	h := w.n.handlerOf(w.id, to)
	if h == nil {
		return Answer{}, errDown
	}
	return h.Answer(ctx, w.id, q)
}

func (w *wire) Stop() {
	w.n.mu.Lock()
	if w.n.servers[w.id] == w {
		delete(w.n.servers, w.id)
	}
	w.n.mu.Unlock()
	w.once.Do(func() { close(w.stop) })
	w.ended.Wait()
}

// group is servers in this process, with disks of their own.
type group struct {
	t     testing.TB
	net   *network
	dirs  map[uint64]string
	disks map[uint64]func(disk.FS) disk.FS
	hosts map[uint64]*Host
	joins map[uint64]bool // servers that are not of those that the group began with
	sizes Sizes
	tick  time.Duration
}

func newGroup(t testing.TB, n int, sizes Sizes) *group {
	g := &group{
		t: t, net: newNetwork(), dirs: map[uint64]string{}, disks: map[uint64]func(disk.FS) disk.FS{}, hosts: map[uint64]*Host{}, joins: map[uint64]bool{},
		sizes: sizes, tick: 20 * time.Millisecond,
	}
	for id := uint64(1); id <= uint64(n); id++ {
		g.dirs[id] = t.TempDir()
	}
	t.Cleanup(func() {
		for id := range g.hosts {
			g.close(id)
		}
	})
	for id := range g.dirs {
		g.open(id)
	}
	return g
}

func (g *group) open(id uint64) *Host {
	g.t.Helper()
	fs, err := disk.OpenOS(g.dirs[id])
	if err != nil {
		g.t.Fatal(err)
	}
	var on disk.FS = fs
	if wrap := g.disks[id]; wrap != nil {
		on = wrap(fs)
	}
	h, err := Open(g.config(id, on))
	if err != nil {
		g.t.Fatal(err)
	}
	g.hosts[id] = h
	return h
}

func (g *group) config(id uint64, on disk.FS) Config {
	var voters []uint64
	for other := range g.dirs {
		if !g.joins[other] && !g.joins[id] {
			voters = append(voters, other)
		}
	}
	log := slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("server", id)
	return Config{
		ID: id, Cluster: "abcd", Voters: voters, Join: g.joins[id], Disk: on, Transport: g.net.wire(id), HeartbeatInterval: g.tick, ElectionTimeout: 10 * g.tick,
		Sizes: g.sizes, Log: log, Metrics: prometheus.NewRegistry(),
	}
}

func (g *group) close(id uint64) {
	if h := g.hosts[id]; h != nil {
		h.Close()
		delete(g.hosts, id)
	}
}

// join makes a server that waits to be added.
func (g *group) join(id uint64) *Host {
	g.t.Helper()
	g.dirs[id], g.joins[id] = g.t.TempDir(), true
	return g.open(id)
}

// kill ends a server as the kernel shows that to the others.
func (g *group) kill(id uint64) {
	g.close(id)
	for _, h := range g.hosts {
		h.Gone(id)
	}
}

// leader waits until a server leads that all members that are up agree upon.
func (g *group) leader() *Host {
	g.t.Helper()
	var leads *Host
	await.Within(g.t, time.Minute, "a leader", func() bool {
		leads = nil
		for _, h := range g.hosts {
			if h.State().Leads() {
				leads = h
			}
		}
		return leads != nil && !slices.ContainsFunc(g.up(), func(h *Host) bool {
			c := leads.Members()
			return h.State().Leader != leads.ID() && slices.Contains(slices.Concat(c.GetVoters(), c.GetLearners()), h.ID())
		})
	})
	return leads
}

func (g *group) up() []*Host {
	var out []*Host
	for id := range g.dirs {
		if h := g.hosts[id]; h != nil {
			out = append(out, h)
		}
	}
	return out
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func putOf(key, value string) store.Command {
	return store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: key, Value: []byte(value)}}}
}

func (g *group) put(h *Host, key, value string) store.Result {
	g.t.Helper()
	r, err := h.Propose(soon(g.t), putOf(key, value))
	if err != nil || r.Err != nil {
		g.t.Fatalf("server %d: put of %s: %v, %v", h.ID(), key, err, r.Err)
	}
	return r
}

// get reads a key so that it has all that was answered before.
func (g *group) get(h *Host, key string) string {
	g.t.Helper()
	v, err := h.Read(soon(g.t))
	if err != nil {
		g.t.Fatalf("server %d: get of %s: %v", h.ID(), key, err)
	}
	return valueIn(g.t, v, key)
}

func valueIn(t testing.TB, v *store.View, key string) string {
	t.Helper()
	r, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: key}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return ""
	}
	return string(r.KVs[0].Value)
}
