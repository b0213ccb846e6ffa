package raft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// little makes small files, so that all that they are for happens.
func little() Sizes {
	return Sizes{SegmentBytes: 32 << 10, SnapshotBytes: 16 << 10, TrailingBytes: 4 << 10, FreeBytes: 1}
}

func TestOneServer(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	for i := range 300 {
		g.put(h, fmt.Sprint("key-", i%7), strings.Repeat("x", 200)+strconv.Itoa(i))
	}
	g.close(1)
	h = g.open(1)
	if got := g.get(h, "key-1"); !strings.HasSuffix(got, "x295") {
		t.Errorf("after a restart: %q", got)
	}
	await.Within(t, time.Minute, "the leader's key of the new term", func() bool {
		r, err := h.View().Range(store.System, store.RangeOp{Range: store.Range{Key: LeaderKey}})
		return err == nil && len(r.KVs) == 1 && r.KVs[0].Version == 2
	})
	await.Until(t, func() string { // one may be in the making
		if n, err := h.snaps.List(); err != nil || len(n) != keptSnapshots {
			return fmt.Sprintf("%d snapshots; there are %v, %v", keptSnapshots, n, err)
		}
		return ""
	})
}

// A snapshot takes a while. One that was sent meanwhile, and is newer, has overtaken it.
func TestSnapshotThatWasOvertaken(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	for i := range 200 {
		g.put(h, "key", strings.Repeat("x", 200)+strconv.Itoa(i))
	}
	for _, behind := range []uint64{0, 1} {
		job := appendJob{mark: &wal.Mark{Index: origin - behind, Term: origin}, marked: make(chan error)}
		h.appends.add(job)
		select {
		case <-job.marked:
		case <-h.Done():
			t.Fatalf("an old mark ended the server: %v", h.Err())
		}
	}
	g.put(h, "key", "goes on")
}

// Every server writes and reads; the leader is lost again and again.
func TestThreeServers(t *testing.T) {
	g := newGroup(t, 3, little())
	g.leader()
	for round := range 4 {
		for id, h := range g.hosts {
			key := fmt.Sprint("key-", id)
			g.put(h, key, strconv.Itoa(round))
			for other, o := range g.hosts {
				if got := g.get(o, key); got != strconv.Itoa(round) {
					t.Fatalf("invariant linearizable: round %d: server %d wrote, %d reads %q", round, id, other, got)
				}
			}
		}
		lost := g.leader().ID()
		g.close(lost)
		g.put(g.leader(), "meanwhile", strconv.Itoa(round))
		h := g.open(lost)
		if got := g.get(h, "meanwhile"); got != strconv.Itoa(round) {
			t.Fatalf("invariant linearizable: round %d: back again, server %d reads %q", round, lost, got)
		}
	}
}

// A server that was away for longer than the log goes back is sent a snapshot.
func TestFollowerTakesASnapshot(t *testing.T) {
	g := newGroup(t, 3, little())
	leader := g.leader()
	away := leader.ID()%3 + 1
	g.close(away)
	for i := range 400 {
		g.put(leader, fmt.Sprint("key-", i%50), strings.Repeat("y", 300)+strconv.Itoa(i))
	}
	h := g.open(away)
	if got := g.get(h, "key-49"); !strings.HasSuffix(got, "y399") {
		t.Errorf("it reads %q", got)
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
	// And again from its own disk.
	g.close(away)
	if got := g.get(g.open(away), "key-49"); !strings.HasSuffix(got, "y399") {
		t.Errorf("after a restart it reads %q", got)
	}
}

// Writers at all servers, and one server after the other cut off or restarted:
// what was answered is there, once.
func TestWritersAndFaults(t *testing.T) {
	g := newGroup(t, 3, little())
	g.leader()
	var mu sync.Mutex // guards g.hosts
	host := func(id uint64) *Host {
		mu.Lock()
		defer mu.Unlock()
		return g.hosts[id]
	}
	ctx, cancel := context.WithCancel(t.Context())
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	var writers sync.WaitGroup
	answered := make([]atomic.Int64, 6)
	for w := range answered {
		writers.Go(func() {
			for i := int64(1); ctx.Err() == nil; i++ {
				key := fmt.Sprintf("w%d/%d", w, i)
				for ctx.Err() == nil {
					h := host(uint64(w%3 + 1))
					if h == nil {
						<-ticks.C
						continue
					}
					r, err := h.Propose(ctx, putOf(key, "v"))
					if err == nil && r.Err == nil {
						answered[w].Store(i)
						break
					}
				}
			}
		})
	}
	// progress waits until the writers got something done.
	progress := func() {
		t.Helper()
		before := int64(0)
		for w := range answered {
			before += answered[w].Load()
		}
		await.Within(t, time.Minute, "writes", func() bool {
			now := int64(0)
			for w := range answered {
				now += answered[w].Load()
			}
			return now >= before+20
		})
	}
	for round := range scale.N(30) {
		id := uint64(round%3 + 1)
		if round%2 == 0 {
			g.net.isolate(id, true)
			progress() // of those who ask the other two
			g.net.isolate(id, false)
		} else {
			mu.Lock()
			h := g.hosts[id]
			delete(g.hosts, id)
			mu.Unlock()
			h.Close()
			mu.Lock()
			g.open(id)
			mu.Unlock()
		}
		progress()
	}
	cancel()
	writers.Wait()
	v, err := g.leader().Read(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for w := range answered {
		for i := int64(1); i <= answered[w].Load(); i++ {
			r, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: fmt.Sprintf("w%d/%d", w, i)}})
			if err != nil || len(r.KVs) != 1 {
				t.Fatalf("writer %d: write %d was answered and is not there: %v", w, i, err)
			}
			// A write that got no answer is made again as another one.
			total++
		}
	}
	t.Logf("%d writes", total)
}

func TestLeases(t *testing.T) {
	g := newGroup(t, 3, little())
	leader := g.leader()
	follower := g.hosts[leader.ID()%3+1]
	const ttl = 4 * time.Second // longer than a busy machine takes to renew one
	grant := func(id store.LeaseID) {
		t.Helper()
		r, err := follower.Propose(soon(t), store.Command{Space: store.User, Grant: &store.Grant{ID: id, TTLSeconds: int64(ttl / time.Second)}})
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		if r, err := follower.Propose(soon(t), store.Command{Space: store.User, Op: &store.Op{Put: &store.PutOp{Key: fmt.Sprint("lease-", id), Lease: id}}}); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
	}
	grant(1)
	grant(2)
	kept := store.Lease{Space: store.User, ID: 2}
	await.Within(t, time.Minute, "the end of lease 1", func() bool {
		if got, there, err := follower.Renew(soon(t), kept); err != nil || !there || got != ttl {
			t.Fatal(got, there, err)
		}
		_, there := leader.View().Lease(store.User, 1)
		return !there
	})
	if _, there := leader.View().Lease(store.User, 2); !there {
		t.Error("a lease that was kept alive ended")
	}
	if r, err := leader.View().Range(store.User, store.RangeOp{Range: store.Range{Key: "lease-", End: store.FromKey}}); err != nil || r.Count != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	// A new leader gives it its whole time again, and then lets it end.
	g.close(leader.ID())
	if left, there, err := follower.Left(soon(t), kept); err != nil || !there || left <= 0 {
		t.Error(left, there, err)
	}
	await.Within(t, time.Minute, "the end of lease 2", func() bool {
		_, there := follower.View().Lease(store.User, 2)
		return !there
	})
	if _, there, err := follower.Renew(soon(t), kept); there || err != nil {
		t.Error(there, err)
	}
}

// A leader that pauses just before it renews a lease leads no more when it goes on, and
// has to notice that.
func TestLeaseOfALeaderThatPaused(t *testing.T) {
	g := newGroup(t, 3, little())
	lease := store.Lease{Space: store.User, ID: 1}
	if r, err := g.leader().Propose(soon(t), store.Command{Space: lease.Space, Grant: &store.Grant{ID: lease.ID, TTLSeconds: 600}}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	// On a busy machine another one may be elected before the leader is cut off.
	for try := 1; !pauses(t, g, lease); try++ {
		if try == 20 {
			t.Fatal("no leader stays one for long enough")
		}
	}
}

// pauses has the leader pause as TestLeaseOfALeaderThatPaused says; false if it was
// deposed before it was cut off.
func pauses(t *testing.T, g *group, lease store.Lease) bool {
	t.Helper()
	old := g.leader()
	leads := old.State()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	old.lessor.mu.Lock() // the pause
	goOn := sync.OnceFunc(old.lessor.mu.Unlock)
	t.Cleanup(goOn)
	answer := make(chan error, 1)
	go func() {
		_, there, err := old.Renew(ctx, lease)
		if err == nil && there {
			err = errors.New("it was renewed")
		}
		answer <- err
	}()
	for range 500 {
		g.get(old, "key") // what came before is read by then
	}
	g.net.isolate(old.ID(), true)
	defer g.net.isolate(old.ID(), false)
	if !leads.Leads() || old.State() != leads {
		goOn()
		cancel()
		<-answer
		return false
	}
	await.Within(t, time.Minute, "another leader", func() bool {
		return slices.ContainsFunc(g.up(), func(h *Host) bool { return h != old && h.State().Leads() })
	})
	goOn()
	await.Within(t, time.Minute, "the old leader to step down", func() bool { return !old.State().Leads() })
	select {
	case err := <-answer:
		t.Fatalf("invariant lease-fencing: an isolated leader answered: %v", err)
	default:
	}
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return true
}

// The server ends although one of its own goroutines had the loop do what panics.
func TestPanicOfTheLoop(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	asked := make(chan error, 1)
	h.running.Go(func() { asked <- h.ask(func() { panic("this cannot be") }) })
	await.Within(t, time.Minute, "the server to end", func() bool {
		select {
		case <-h.Done():
			return true
		default:
			return false
		}
	})
	if err := <-asked; !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	if err := h.Err(); err == nil || !strings.Contains(err.Error(), "this cannot be") {
		t.Error(err)
	}
}

// badDisk is one that fails when it is told to.
type badDisk struct {
	disk.FS
	broken atomic.Bool
	free   atomic.Uint64
}

func (d *badDisk) FreeBytes() (uint64, error) { return d.free.Load(), nil }

func (d *badDisk) Open(name string) (disk.File, error) { return d.wrap(d.FS.Open(name)) }

func (d *badDisk) Create(name string) (disk.File, error) { return d.wrap(d.FS.Create(name)) }

func (d *badDisk) wrap(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return &badFile{f, d}, nil
}

type badFile struct {
	disk.File
	d *badDisk
}

func (f *badFile) Sync() error {
	if f.d.broken.Load() {
		return errors.New("input/output error")
	}
	return f.File.Sync()
}

func bad(g *group) map[uint64]*badDisk {
	disks := map[uint64]*badDisk{}
	for id := range g.dirs {
		d := &badDisk{}
		d.free.Store(1 << 40)
		disks[id] = d
		g.disks[id] = func(fs disk.FS) disk.FS { d.FS = fs; return d }
		g.close(id)
	}
	for id := range g.dirs {
		g.open(id)
	}
	g.elect()
	return disks
}

// A server whose disk fails ends, says so, and the others go on.
func TestDiskFails(t *testing.T) {
	g := newGroup(t, 3, little())
	disks := bad(g)
	leader := g.leader()
	disks[leader.ID()].broken.Store(true)
	_, _ = leader.Propose(soon(t), putOf("a", "1")) // it may be committed by the others
	<-leader.Done()
	if err := leader.Err(); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("%v", err)
	}
	for _, err := range []error{
		func() error { _, err := leader.Propose(soon(t), putOf("b", "1")); return err }(),
		func() error { _, err := leader.Read(soon(t)); return err }(),
	} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%v", err)
		}
	}
	delete(g.hosts, leader.ID())
	g.put(g.leader(), "c", "1")
}

// A full disk of the leader moves the leadership; those of a majority end writes,
// not reads, and no server.
func TestDiskFull(t *testing.T) {
	g := newGroup(t, 3, little())
	disks := bad(g)
	first := g.leader()
	g.put(first, "a", "1")
	disks[first.ID()].free.Store(0)
	await.Within(t, time.Minute, "another leader", func() bool { return !first.State().Leads() && g.leader().ID() != first.ID() })
	g.put(first, "a", "2")
	disks[first.ID()%3+1].free.Store(0)
	await.Within(t, time.Minute, "writes to be refused", func() bool {
		r, err := first.Propose(soon(t), putOf("b", "1"))
		return err == nil && errors.Is(r.Err, store.ErrNoSpace)
	})
	if got := g.get(first, "a"); got != "2" {
		t.Errorf("a is %q", got)
	}
	if r, err := first.Propose(soon(t), store.Command{Space: store.User, Op: &store.Op{Delete: &store.DeleteOp{Range: store.Range{Key: "a"}}}}); err != nil || r.Err != nil {
		t.Error(err, r.Err)
	}
	for _, d := range disks {
		d.free.Store(1 << 40)
	}
	await.Within(t, time.Minute, "writes again", func() bool {
		r, err := first.Propose(soon(t), putOf("b", "1"))
		return err == nil && r.Err == nil
	})
}

// Without a majority nothing is done, and the error says what is missing.
func TestNoMajority(t *testing.T) {
	g := newGroup(t, 3, little())
	h := g.leader()
	g.put(h, "a", "1")
	for id := range g.dirs {
		if id != h.ID() {
			g.close(id)
		}
	}
	await.Within(t, time.Minute, "the leader to give up", func() bool { return !h.State().Leads() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*g.tick)
	defer cancel()
	if _, err := h.Propose(ctx, putOf("a", "2")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, err := h.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if got := valueIn(t, h.View(), "a"); got != "1" {
		t.Errorf("a is %q", got)
	}
	// Who gives up leaves nothing behind.
	ctx, cancel = context.WithTimeout(t.Context(), 2*g.tick)
	defer cancel()
	if _, err := h.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	await.Within(t, time.Minute, "the reads that nobody waits for to be forgotten", func() bool {
		var m dto.Metric
		if err := h.metrics.readsWaiting.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetGauge().GetValue() == 0
	})
}

func TestTransfer(t *testing.T) {
	g := steady(t, 3, little())
	from := g.leader()
	to := from.ID()%3 + 1
	if err := g.hosts[to].Transfer(soon(t), to); !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v", err)
	}
	if err := from.Transfer(soon(t), to); err != nil {
		t.Fatal(err)
	}
	if got := g.leader().ID(); got != to {
		t.Errorf("server %d leads, want %d", got, to)
	}
}

func TestOpenRefuses(t *testing.T) {
	g := newGroup(t, 1, little())
	g.leader()
	g.close(1)
	fs, err := disk.OpenOS(g.dirs[1])
	if err != nil {
		t.Fatal(err)
	}
	cfg := g.config(1, fs)
	other := cfg
	other.ID = 2
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "was copied") {
		t.Errorf("%v", err)
	}
	empty, err := disk.OpenOS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	none := cfg
	none.Disk, none.Voters = empty, nil
	if _, err := Open(none); !errors.Is(err, ErrNoState) {
		t.Errorf("%v", err)
	}
}
