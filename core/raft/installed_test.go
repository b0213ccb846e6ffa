package raft

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/test/await"
)

// slowLog is a disk that hangs where the log is.
type slowLog struct{ slowDisk }

func (d *slowLog) Open(name string) (disk.File, error) {
	if !strings.HasSuffix(name, walSuffix) {
		return d.FS.Open(name)
	}
	return d.slowDisk.Open(name)
}

func (d *slowLog) Create(name string) (disk.File, error) {
	if !strings.HasSuffix(name, walSuffix) {
		return d.FS.Create(name)
	}
	return d.slowDisk.Create(name)
}

// answersTo notes who answers a server's question for the index of a read.
func (g *group) answersTo(id uint64) *atomic.Uint64 {
	var by atomic.Uint64
	g.net.mu.Lock()
	defer g.net.mu.Unlock()
	g.net.sees = func(m *pb.Message) {
		if m.GetType() == pb.MsgReadIndexResp && m.GetTo() == id {
			by.Store(m.GetFrom())
		}
	}
	return &by
}

// taken waits until a server took what another one is seen to send it.
func (g *group) taken(from uint64, h *Host) {
	g.t.Helper()
	turn := func(h *Host) {
		if err := h.ask(func() {}); err != nil {
			g.t.Fatal(err)
		}
	}
	turn(g.hosts[from]) // it is sent
	g.net.mu.Lock()
	w := g.net.servers[from]
	g.net.mu.Unlock()
	arrived := make(chan struct{})
	w.out <- func() { close(arrived) }
	<-arrived
	for range 100 { // it may be behind what is asked
		turn(h)
	}
}

// reads reads a key in the background.
func reads(t *testing.T, h *Host, key string) <-chan string {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	got := make(chan string, 1)
	go func() {
		defer cancel()
		v, err := h.Read(ctx)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- valueIn(t, v, key)
	}()
	return got
}

// A read that waits for an entry is answered when that is applied, and not before.
func TestReadOfAnEntryThatIsNotApplied(t *testing.T) {
	g := steady(t, 3, little())
	id := g.leader().ID()%3 + 1
	d := &slowLog{}
	g.disks[id] = func(fs disk.FS) disk.FS { d.FS = fs; return d }
	g.close(id)
	h := g.open(id)
	g.put(h, "key", "before")
	by := g.answersTo(id)
	goesOn := d.hang()
	defer goesOn()
	for _, other := range g.up() {
		if other != h {
			g.put(other, "key", "after")
		}
	}
	read := reads(t, h, "key")
	await.For(t, "the index of the read", func() bool { return by.Load() != 0 })
	g.taken(by.Load(), h)
	goesOn()
	if got := <-read; got != "after" {
		t.Errorf("invariant linearizable: it reads %q", got)
	}
}

// A read that waits for an entry is answered when a snapshot brings it, and nothing is
// written after that.
func TestReadOfASnapshot(t *testing.T) {
	sizes := little()
	sizes.SnapshotBytes = 256 << 10 // one snapshot, as while one is made no other is begun
	g := steady(t, 3, sizes)        // nor is a term written
	leader := g.leader()
	away := leader.ID()%3 + 1
	g.close(away)
	for i := range 40 {
		g.put(leader, fmt.Sprint("key-", i), strings.Repeat("x", 2<<10))
	}
	g.put(leader, "large", strings.Repeat("x", 512<<10))
	await.For(t, "a snapshot of all there is", func() bool {
		st, err := g.leader().Standing()
		return err == nil && st.Snapshot == st.Commit
	})
	d := &slowLog{}
	g.disks[away] = func(fs disk.FS) disk.FS { d.FS = fs; return d }
	by := g.answersTo(away)
	g.net.isolate(away, true)
	h := g.open(away)
	goesOn := d.hang()
	defer goesOn()
	g.net.isolate(away, false)
	read := reads(t, h, "key-0")
	await.For(t, "a snapshot, and the index of the read", func() bool {
		return by.Load() != 0 && valueIn(t, h.View(), "key-0") != ""
	})
	g.taken(by.Load(), h)
	goesOn()
	if got := <-read; len(got) != 2<<10 {
		t.Errorf("invariant answered: it reads %q", got)
	}
}
