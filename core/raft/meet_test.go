package raft

import (
	"fmt"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// onSlowDisk is one server and its disk. Nothing is sent again while that is slow.
func onSlowDisk(t *testing.T) (*group, *slowDisk) {
	g, d := steady(t, 1, little()), &slowDisk{}
	g.disks[1] = func(fs disk.FS) disk.FS { d.FS = fs; return d }
	g.close(1)
	g.open(1)
	g.put(g.leader(), "first", "1")
	await.For(t, "the leader's own entry, which is no write of the test", func() bool {
		h := g.hosts[1]
		found, err := h.View().Range(store.System, store.RangeOp{Range: store.Range{Key: LeaderKey}})
		return err == nil && len(found.KVs) == 1 && string(found.KVs[0].Value) == fmt.Sprintf("1 %d", h.State().Term)
	})
	return g, d
}

// Writes that come while the disk is at the one before make one entry.
func TestWritesThatMeetShareAnEntry(t *testing.T) {
	g, d := onSlowDisk(t)
	h := g.hosts[1]
	before, _ := h.View().Applied()
	goesOn := d.hang()
	syncs := d.syncs.Load()
	var writers sync.WaitGroup
	put := func(key string) {
		writers.Go(func() {
			if r, err := h.Propose(soon(t), putOf(key, "1")); err != nil || r.Err != nil {
				t.Error(err, r.Err)
			}
		})
	}
	put("alone")
	await.For(t, "the disk is at the first", func() bool { return d.syncs.Load() > syncs })
	const many = 50
	for i := range many {
		put(fmt.Sprint("key-", i))
	}
	await.For(t, "all others wait", func() bool { return len(h.proposals) == many })
	goesOn()
	writers.Wait()
	if after, _ := h.View().Applied(); after != before+2 {
		t.Errorf("%d writes made %d entries, want 2", 1+many, after-before)
	}
}

// A write is synced once: that it is committed is noted with the next one, or when
// the server stops.
func TestWriteIsSyncedOnce(t *testing.T) {
	g, d := onSlowDisk(t)
	h := g.hosts[1]
	const writes = 20
	before := d.syncs.Load()
	for i := range writes {
		g.put(h, fmt.Sprint("key-", i), "1")
	}
	if n := d.syncs.Load() - before; n != writes {
		t.Errorf("%d writes, one after the other, were synced %d times", writes, n)
	}
	last, _ := h.View().Applied()
	g.close(1)
	log, found, err := wal.Open(d.FS, wal.Options{SegmentBytes: little().SegmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if found.Hard.Commit != last {
		t.Errorf("after a stop, entries up to %d are known to be committed, want %d", found.Hard.Commit, last)
	}
}
