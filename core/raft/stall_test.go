package raft

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// slowDisk is one that hangs when it is told to, also in virtual time.
type slowDisk struct {
	disk.FS
	mu    sync.RWMutex  // held for reading while something is written
	gate  chan struct{} // guarded by mu; nil: it does not hang
	syncs atomic.Int32  // that were asked for
}

// hang makes it hang, once what is under way is done, until the returned function is
// called.
func (d *slowDisk) hang() (goesOn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.gate = gate
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(gate)
		d.gate = nil
	})
}

func (d *slowDisk) Open(name string) (disk.File, error) { return d.wrap(d.FS.Open(name)) }

func (d *slowDisk) Create(name string) (disk.File, error) { return d.wrap(d.FS.Create(name)) }

func (d *slowDisk) wrap(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d}, nil
}

type slowFile struct {
	disk.File
	d *slowDisk
}

func (f *slowFile) Sync() error {
	d := f.d
	d.syncs.Add(1)
	d.mu.RLock()
	for d.gate != nil {
		gate := d.gate
		d.mu.RUnlock()
		<-gate
		d.mu.RLock()
	}
	defer d.mu.RUnlock()
	return f.File.Sync()
}

// A leader whose disk hangs hands the leadership over within three election
// timeouts. What is asked of it then is done, by the new leader, and it follows once
// its disk goes on.
func TestDiskHangs(t *testing.T) {
	g := newGroup(t, 3, little())
	disks := map[uint64]*slowDisk{}
	for id := range g.dirs {
		d := &slowDisk{}
		disks[id] = d
		g.disks[id] = func(fs disk.FS) disk.FS { d.FS = fs; return d }
		g.close(id)
	}
	for id := range g.dirs {
		g.open(id)
	}
	first := g.leader()
	g.put(first, "a", "1")
	hanging := disks[first.ID()]
	goesOn := hanging.hang()
	defer goesOn()
	began := time.Now()
	other := g.hosts[first.ID()%3+1]
	g.put(other, "a", "2") // the two others make a majority, whoever leads
	await.Within(t, time.Minute, "another leader", func() bool {
		for id, h := range g.hosts {
			if id != first.ID() && h.State().Leads() {
				return true
			}
		}
		return false
	})
	took := time.Since(began)
	t.Logf("another one leads after %v; the election timeout is %v", took, first.cfg.ElectionTimeout)
	if took > scale.Bound(3*first.cfg.ElectionTimeout, 25*first.cfg.ElectionTimeout) {
		t.Errorf("another one leads after %v", took)
	}
	g.put(first, "a", "3")
	goesOn()
	if got := g.get(first, "a"); got != "3" {
		t.Errorf("a is %q", got)
	}
}
