package raft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// aloneOn opens a server that is the only one of its group.
func aloneOn(t testing.TB, fs disk.FS) (*Host, error) {
	sizes := Sizes{SegmentBytes: 4 << 10, SnapshotBytes: 2 << 10, TrailingBytes: 1 << 10, FreeBytes: 1}
	return Open(Config{
		ID: 1, Cluster: "abcd", Voters: []uint64{1}, Disk: fs, Transport: Alone{}, HeartbeatInterval: 2 * time.Millisecond,
		ElectionTimeout: 6 * time.Millisecond, Sizes: sizes, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
}

// A group that was to begin with one state and, after a crash, begins with another one
// has nothing of the first.
func TestBeginsAnew(t *testing.T) {
	beginning := func(value string) *store.Machine {
		m := store.NewMachine()
		m.Apply(1, 1, []store.Command{putOf("begins", value)})
		return m
	}
	again := 0
	for step := 1; ; step++ {
		fs := disktest.NewCrash()
		c := Config{ID: 1, Cluster: "abcd", Voters: []uint64{1}, Disk: fs, Sizes: Sizes{SegmentBytes: 4 << 10}}
		fs.StopAt(step)
		if Create(c, beginning("first")) == nil {
			break
		}
		fs.StopAt(1 << 30) // only the process ended
		switch err := Create(c, beginning("second")); {
		case errors.Is(err, ErrHasState):
			continue
		case err != nil:
			t.Fatal(err)
		}
		again++
		h, err := aloneOn(t, fs)
		if err != nil {
			t.Fatal(err)
		}
		if got := valueIn(t, h.View(), "begins"); got != "second" {
			t.Errorf("step %d: the group begins with %q", step, got)
		}
		h.Close()
	}
	if again == 0 {
		t.Error("nothing crashed")
	}
}

// TestCrashes crashes the disk of a server at steps of what it does, of its
// snapshots as well: it starts again, and what it had answered is there.
func TestCrashes(t *testing.T) {
	const steps = 300
	crashes := 0
	for i, n := 0, scale.N(300); i < n; i++ {
		if crashAt(t, 1+(i*steps+n/2)/n) {
			crashes++
		}
	}
	if crashes == 0 {
		t.Error("nothing crashed")
	}
}

// crashAt reports whether there was a crash.
func crashAt(t *testing.T, step int) bool {
	const puts = 60
	fs := disktest.NewCrash()
	fs.StopAt(step)
	answered := 0
	h, err := aloneOn(t, fs)
	if err == nil {
		for answered < puts {
			r, err := h.Propose(soon(t), putOf(fmt.Sprintf("%03d", answered), strings.Repeat("x", 200)))
			if err != nil || r.Err != nil {
				break
			}
			answered++
		}
		if answered == puts {
			// Few steps do for many puts if they come at once: it may crash right after the last one as well.
			startsAgain(t, fs, step, answered)
		}
		h.Close()
	} else if !errors.Is(err, disktest.ErrCrashed) {
		t.Fatalf("step %d: %v", step, err)
	}
	if fs.Steps() < step {
		return false
	}
	startsAgain(t, fs, step, answered)
	return true
}

// startsAgain opens a server on what a crash may leave, and expects the puts that
// were answered.
func startsAgain(t *testing.T, fs *disktest.Crash, step, answered int) {
	t.Helper()
	_, names := fs.Unsynced()
	for variant := range 3 {
		coin := rand.New(rand.NewPCG(uint64(step), uint64(variant)))
		fate := disktest.Fate{Names: coin.IntN(names + 1), Sector: func(string, int, int) bool { return variant > 0 && coin.IntN(variant) == 0 }}
		h, err := aloneOn(t, fs.After(fate))
		if err != nil {
			t.Fatalf("invariant starts: step %d, variant %d: %v", step, variant, err)
		}
		v, err := h.Read(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		r, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: "0", End: "1"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.KVs) < answered {
			t.Fatalf("invariant durable: step %d, variant %d: %d puts were answered, %d are there", step, variant, answered, len(r.KVs))
		}
		h.Close()
	}
}

// A leader that reaches nobody answers no write.
func TestNothingIsAnsweredThatIsNotCommitted(t *testing.T) {
	g := steady(t, 3, little())
	h := g.leader()
	g.put(h, "a", "1") // it is registered
	g.net.isolate(h.ID(), true)
	ctx, cancel := context.WithTimeout(t.Context(), 5*g.tick)
	defer cancel()
	if r, err := h.Propose(ctx, putOf("a", "2")); err == nil {
		t.Fatalf("invariant committed: a leader that is cut off answers %+v", r)
	}
	g.net.isolate(h.ID(), false)
}

// What a leader does by itself carries its term, so that nothing of it counts when
// another leads.
func TestLeadersAreFenced(t *testing.T) {
	fs := disk.NewMemory()
	h, err := aloneOn(t, fs)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := h.Propose(soon(t), store.Command{Space: store.User, Grant: &store.Grant{ID: 1, TTLSeconds: 1}}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	await.For(t, "the end of the lease", func() bool {
		_, there := h.View().Lease(store.User, 1)
		return !there
	})
	h.Close()
	l, found, err := wal.Open(fs, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	revokes, announcements := 0, 0
	for _, e := range found.Entries {
		commands, err := store.DecodeCommands(e.Data)
		if err != nil {
			continue // of the membership, or empty
		}
		for _, c := range commands {
			switch {
			case c.Revoke != nil:
				revokes++
			case c.Op != nil && c.Op.Put != nil && c.Op.Put.Key == LeaderKey:
				announcements++
			default:
				continue
			}
			if c.Term != e.Term {
				t.Errorf("invariant fence: entry %d of term %d has a command of term %d", e.Index, e.Term, c.Term)
			}
		}
	}
	if revokes != 1 || announcements != 1 {
		t.Errorf("%d leases ended, %d leaders were announced", revokes, announcements)
	}
}
