package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// group is three servers on real disks and connections.
type group struct {
	t        testing.TB
	net      *network
	dirs     map[uint64]string
	hosts    map[uint64]*raft.Host
	wires    map[uint64]*wire
	secrets  []identity.Secret
	sizes    raft.Sizes
	election time.Duration
	memory   bool // is their disks, which do not hang, nor last
}

func newGroup(t testing.TB, change func(*group)) *group {
	g := &group{
		t: t, net: newNetwork(t), dirs: map[uint64]string{}, hosts: map[uint64]*raft.Host{}, wires: map[uint64]*wire{},
		secrets: []identity.Secret{secretOf(t, 0)}, sizes: raft.Sizes{SegmentBytes: 1 << 20, FreeBytes: 1}, election: 500 * time.Millisecond,
	}
	if change != nil {
		change(g)
	}
	for id := uint64(1); id <= 3; id++ {
		g.dirs[id] = t.TempDir()
	}
	for id := range g.dirs {
		g.open(id)
	}
	t.Cleanup(func() {
		for id := range g.dirs {
			g.close(id)
		}
	})
	return g
}

func (g *group) open(id uint64) *raft.Host {
	g.t.Helper()
	var fs disk.FS = disk.NewMemory()
	if !g.memory {
		var err error
		if fs, err = disk.OpenOS(g.dirs[id]); err != nil {
			g.t.Fatal(err)
		}
	}
	w := g.net.unstarted(wireSpec{id: id, secrets: g.secrets})
	h, err := raft.Open(raft.Config{
		ID: id, Cluster: "abcd", Voters: []uint64{1, 2, 3}, Disk: fs, Transport: w.Transport,
		HeartbeatInterval: g.election / 10, ElectionTimeout: g.election, Sizes: g.sizes,
		Log:     slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("server", id),
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.hosts[id], g.wires[id] = h, w
	return h
}

func (g *group) close(id uint64) {
	if h := g.hosts[id]; h != nil {
		h.Close()
		g.wires[id].stop()
		delete(g.hosts, id)
	}
}

// leader waits until a server leads that all that are up agree upon.
func (g *group) leader() *raft.Host {
	g.t.Helper()
	var leads *raft.Host
	await.Within(g.t, time.Minute, "a leader", func() bool {
		leads = nil
		for _, h := range g.hosts {
			if h.State().Leads() {
				leads = h
			}
		}
		if leads == nil {
			return false
		}
		for _, h := range g.hosts {
			if h.State().Leader != leads.ID() {
				return false
			}
		}
		return true
	})
	return leads
}

func putOf(key, value string) store.Command {
	return store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: key, Value: []byte(value)}}}
}

func (g *group) put(h *raft.Host, key, value string) {
	g.t.Helper()
	if r, err := h.Propose(soon(g.t), putOf(key, value)); err != nil || r.Err != nil {
		g.t.Fatalf("server %d: put of %s: %v, %v", h.ID(), key, err, r.Err)
	}
}

func (g *group) get(h *raft.Host, key string) string {
	g.t.Helper()
	v, err := h.Read(soon(g.t))
	if err != nil {
		g.t.Fatalf("server %d: get of %s: %v", h.ID(), key, err)
	}
	r, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: key}})
	if err != nil {
		g.t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return ""
	}
	return string(r.KVs[0].Value)
}

// Every server writes and reads, whoever leads; each is restarted, at another
// address.
func TestGroup(t *testing.T) {
	g := newGroup(t, nil)
	for round := range 3 {
		g.leader()
		for id, h := range g.hosts {
			key := fmt.Sprint("key-", id)
			g.put(h, key, strconv.Itoa(round))
			for other, o := range g.hosts {
				if got := g.get(o, key); got != strconv.Itoa(round) {
					t.Fatalf("round %d: server %d wrote, %d reads %q", round, id, other, got)
				}
			}
		}
		lease := store.Lease{Space: store.User, ID: store.LeaseID(round + 1)}
		follower := g.hosts[g.leader().ID()%3+1]
		if r, err := follower.Propose(soon(t), store.Command{Space: store.User, Grant: &store.Grant{ID: lease.ID, TTLSeconds: 60}}); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		if ttl, there, err := follower.Renew(soon(t), lease); err != nil || !there || ttl > time.Minute || ttl < 59*time.Second {
			t.Error(ttl, there, err)
		}
		lost := g.leader().ID()
		g.close(lost)
		g.put(g.leader(), "meanwhile", strconv.Itoa(round))
		if got := g.get(g.open(lost), "meanwhile"); got != strconv.Itoa(round) {
			t.Fatalf("round %d: back again, server %d reads %q", round, lost, got)
		}
	}
}

// A server that was away for longer than the log goes back is sent a snapshot, of
// more than a frame, and has the same state then.
func TestGroupSendsASnapshot(t *testing.T) {
	g := newGroup(t, func(g *group) {
		g.sizes = raft.Sizes{SegmentBytes: 4 << 20, SnapshotBytes: 2 << 20, TrailingBytes: 1 << 10, FreeBytes: 1}
		g.election = 2 * time.Second // a disk that is slow with much is none that hangs
	})
	leader := g.leader()
	away := leader.ID()%3 + 1
	g.close(away)
	for i := range 24 {
		g.put(leader, fmt.Sprint("key-", i), strings.Repeat(string(rune('a'+i)), 512<<10))
	}
	h := g.open(away)
	if got := g.get(h, "key-23"); len(got) != 512<<10 {
		t.Errorf("it reads %d bytes", len(got))
	}
	await.Within(t, time.Minute, "equal states", func() bool {
		mine, theirs := h.View(), g.leader().View() // each as it is from here on
		a, _ := mine.Applied()
		b, _ := theirs.Applied()
		if a == b && mine.Digest() != theirs.Digest() {
			t.Fatalf("the states of entry %d differ", a)
		}
		return a == b
	})
	sent := float64(0)
	for _, w := range g.wires {
		sent += w.counted(w.metrics.sentBytes.WithLabelValues(string(snapshots)))
	}
	if sent < 4<<20 {
		t.Errorf("%v bytes of snapshots were sent", sent)
	}
}

// writers write at all servers until they are stopped.
type writers struct {
	answered atomic.Int64
	failed   atomic.Pointer[error]
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func (g *group) write(n int) *writers {
	ctx, cancel := context.WithCancel(g.t.Context())
	w := &writers{cancel: cancel}
	hosts := slices.Collect(func(yield func(*raft.Host) bool) {
		for id := uint64(1); id <= 3 && yield(g.hosts[id]); id++ {
		}
	})
	for i := range n {
		w.running.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				r, err := hosts[i%3].Propose(ctx, putOf(fmt.Sprintf("w%d", i), strconv.Itoa(j)))
				if err = errors.Join(err, r.Err); err != nil && ctx.Err() == nil {
					w.failed.Store(&err)
					return
				}
				w.answered.Add(1)
			}
		})
	}
	return w
}

// more waits until some more writes were answered.
func (w *writers) more(t testing.TB, n int64) {
	t.Helper()
	before := w.answered.Load()
	await.Within(t, time.Minute, "more writes", func() bool {
		if err := w.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		return w.answered.Load() >= before+n
	})
}

func (w *writers) stop() {
	w.cancel()
	w.running.Wait()
}

// A follower that does not read any more holds nobody up: writes go on, and the
// leader stays the leader of the same term.
func TestStalledFollower(t *testing.T) {
	t.Parallel() // it waits for time limits
	g := newGroup(t, func(g *group) { g.election, g.memory = 4*time.Second, true })
	leader := g.leader()
	stalled := leader.ID()%3 + 1
	term := leader.State().Term
	release := g.wires[stalled].proxy.hold()
	defer release()
	w := g.wires[leader.ID()]
	dropped := func() float64 {
		return w.counted(w.metrics.lost.WithLabelValues("entries", "unreachable")) + w.counted(w.metrics.lost.WithLabelValues("entries", "queue-full"))
	}
	for i := 0; dropped() == 0; i++ {
		g.put(leader, fmt.Sprint("key-", i%10), strings.Repeat("x", 256<<10))
		if now := leader.State(); !now.Leads() { // else it sends nothing more, and this has no end
			t.Fatalf("the leader of term %d is %+v", term, now)
		}
	}
	for i := range scale.N(200) {
		g.put(g.hosts[6-leader.ID()-stalled], "small", strconv.Itoa(i))
	}
	if now := leader.State(); !now.Leads() || now.Term != term {
		t.Errorf("the leader of term %d is %+v", term, now)
	}
	release()
	if got := g.get(g.hosts[stalled], "small"); got != strconv.Itoa(scale.N(200)-1) {
		t.Errorf("released, it reads %q", got)
	}
}

// Secrets change while connections break and writers write, and no write fails.
func TestSecretsChangeWhileWriting(t *testing.T) {
	g := newGroup(t, nil)
	g.leader()
	w := g.write(6)
	defer w.stop()
	w.more(t, 50)
	before, after := secretOf(t, 0), secretOf(t, 1)
	handshakes := func() (ok, refused float64) {
		for _, w := range g.wires {
			for _, reason := range []string{"stranger", "tls", "time", "timeout", "too-many"} {
				refused += w.counted(w.port.metrics.handshakes.WithLabelValues(reason))
			}
			ok += w.counted(w.port.metrics.handshakes.WithLabelValues("ok"))
		}
		return ok, refused
	}
	for _, step := range [][]identity.Secret{{before, after}, {after, before}, {after}} {
		for id := uint64(1); id <= 3; id++ {
			if err := g.wires[id].keeper.SetSecrets(step); err != nil {
				t.Fatal(err)
			}
			// Some servers have the new ones and some the old.
			ok, _ := handshakes()
			// One that is cut in its handshake would be refused: secrets that are new have the
			// others make new connections at the same time.
			await.Within(t, time.Minute, "the handshakes under way to end", func() bool {
				if g.wires[id].port.listener.counted() > 0 {
					return false
				}
				g.wires[id].proxy.cut()
				return true
			})
			await.Within(t, time.Minute, "new connections", func() bool { now, _ := handshakes(); return now > ok })
			w.more(t, 50)
		}
	}
	w.stop()
	if err := w.failed.Load(); err != nil {
		t.Error(*err)
	}
	if _, refused := handshakes(); refused != 0 {
		t.Errorf("%v handshakes were refused", refused)
	}
}

// The commands of many at a follower take few calls: they go to the leader as messages,
// and those of which nothing is heard in time, as on a busy machine, share calls.
func TestForwardedCommandsTakeFewCalls(t *testing.T) {
	g := newGroup(t, nil)
	follower := g.hosts[g.leader().ID()%3+1]
	const many = 64
	each := scale.N(50)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for range each {
				if r, err := follower.Propose(soon(t), putOf(fmt.Sprint("key-", i), "v")); err != nil || r.Err != nil {
					t.Error(err, r.Err)
				}
			}
		})
	}
	all.Wait()
	w := g.wires[follower.ID()]
	questions, asks := w.counted(w.metrics.questions), w.counted(w.metrics.asks)
	t.Logf("%d commands, %v questions in %v calls", many*each, questions, asks)
	if asks > float64(many*each)/4 {
		t.Errorf("%d commands took %v calls", many*each, asks)
	}
}
