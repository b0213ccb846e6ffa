package raft

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// virtual opens a server whose time is that of a synctest bubble.
func virtual(t *testing.T, network *network, id uint64, change func(*Config)) *Host {
	t.Helper()
	cfg := Config{
		ID: id, Cluster: "abcd", Disk: disk.NewMemory(), Transport: network.wire(id), Sizes: little(),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
	change(&cfg)
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func begins(c *Config) { c.Voters = []uint64{1} }

func joins(c *Config) { c.Join = true }

// passes lets virtual time pass.
func passes(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// resting asks the loop, which is a turn of it.
func (h *Host) resting(t *testing.T) (rests bool) {
	t.Helper()
	if err := h.ask(func() { rests = h.pulse.resting }); err != nil {
		t.Fatal(err)
	}
	return rests
}

func does(t *testing.T, h *Host, c store.Command) {
	t.Helper()
	if r, err := h.Propose(t.Context(), c); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// The pulse beats while there is something to wait for, and not otherwise.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 100 * time.Millisecond
		p := newPulse(every)
		defer p.stop()
		nothing := false
		beats := func(in time.Duration) (n int) {
			for over := time.After(in); ; {
				select {
				case <-p.c():
					n++
					p.follow(func() bool { return nothing }, true)
				case <-over:
					return n
				}
			}
		}
		turn := func() { p.follow(func() bool { return nothing }, false) }
		for _, step := range []struct {
			nothing bool
			want    int
		}{{false, 10}, {true, 1}, {true, 0}, {false, 10}, {false, 10}, {true, 1}} {
			nothing = step.nothing
			turn()
			if got := beats(time.Second + every/2); got < step.want || got > step.want+1 || step.nothing && got != step.want {
				t.Errorf("%+v: %d beats", step, got)
			}
		}
	})
}

// A server that is alone does not tick while nobody wants something, and does again
// from the moment on in which it gets company.
func TestALoneServerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		h := virtual(t, net, 1, begins)
		passes(time.Second)
		if !h.State().Leads() || !h.resting(t) {
			t.Fatalf("it is %+v, rests: %v", h.State(), h.resting(t))
		}
		for i := range 20 {
			does(t, h, putOf("key", fmt.Sprint(i)))
			if v, err := h.Read(t.Context()); err != nil || valueIn(t, v, "key") != fmt.Sprint(i) {
				t.Fatal(valueIn(t, v, "key"), err)
			}
		}
		passes(time.Second)
		if !h.resting(t) {
			t.Error("it does not rest when all is done")
		}
		passes(time.Hour)

		other := virtual(t, net, 2, joins)
		for _, c := range []replica.Change{{AddLearners: []uint64{2}}, {Promote: []uint64{2}}} {
			if err := h.Change(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if h.resting(t) {
				t.Errorf("after %+v it rests", c)
			}
			passes(h.cfg.ElectionTimeout)
		}
		does(t, other, putOf("key", "of two"))
		passes(time.Minute)
		if h.resting(t) || other.resting(t) || h.State().Term != 2 || h.State().Leader != 1 || other.State().Leader != 1 {
			t.Errorf("a minute later: %+v, %+v", h.State(), other.State())
		}

		if err := h.Change(t.Context(), replica.Change{Remove: []uint64{2}}); err != nil {
			t.Fatal(err)
		}
		passes(2 * h.cfg.ElectionTimeout)
		if !h.resting(t) {
			t.Error("alone again it does not rest")
		}
	})
}

// A lease ends in its time, and not later than a tick of leases after it, whatever was
// waited for when it was granted.
func TestLeasesOfALoneServerEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := virtual(t, newNetwork(), 1, begins)
		passes(time.Minute)
		ends := func(after time.Duration, grant ...int64) {
			t.Helper()
			for i, ttl := range grant {
				id := store.LeaseID(i + 1)
				does(t, h, store.Command{Space: store.User, Grant: &store.Grant{ID: id, TTLSeconds: ttl}})
			}
			last := store.LeaseID(len(grant))
			there := func() bool { _, is := h.View().Lease(store.User, last); return is }
			if passes(after - time.Millisecond); !there() {
				t.Errorf("of leases of %v s the last one ended before %v", grant, after)
			}
			if passes(leaseTick + 2*time.Millisecond); there() {
				t.Errorf("of leases of %v s the last one did not end after %v and %v", grant, after, leaseTick)
			}
			for i := range grant {
				h.propose(t, store.Command{Space: store.User, Revoke: &store.Revoke{ID: store.LeaseID(i + 1)}})
			}
		}
		ends(time.Second, 1)
		ends(time.Second, 600, 1) // the sooner one is granted later
		ends(30*time.Second, 5, 600, 2, 30)

		kept := store.Lease{Space: store.User, ID: 7}
		does(t, h, store.Command{Space: kept.Space, Grant: &store.Grant{ID: kept.ID, TTLSeconds: 1}})
		for range 50 {
			passes(900 * time.Millisecond)
			if ttl, there, err := h.Renew(t.Context(), kept); ttl != time.Second || !there || err != nil {
				t.Fatal(ttl, there, err)
			}
		}
		passes(time.Second - time.Millisecond)
		if left, there, err := h.Left(t.Context(), kept); left != time.Millisecond || !there || err != nil {
			t.Error(left, there, err)
		}
		passes(leaseTick + time.Millisecond)
		if _, there, err := h.Left(t.Context(), kept); there || err != nil {
			t.Error(there, err)
		}
	})
}

func (h *Host) propose(t *testing.T, c store.Command) {
	t.Helper()
	if _, err := h.Propose(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// A server that rested notices a disk that hangs as soon as any, and a second time as well.
func TestALoneServerNoticesADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		hung := &slowDisk{FS: disk.NewMemory()}
		h := virtual(t, newNetwork(), 1, func(c *Config) {
			begins(c)
			c.Disk, c.Log = hung, slog.New(slog.NewTextHandler(&log, nil))
		})
		passes(time.Minute)
		for round := range 3 {
			release := hung.hang()
			done := make(chan struct{})
			go func() {
				defer close(done)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_, _ = h.Propose(ctx, putOf("key", "value"))
			}()
			passes(h.cfg.ElectionTimeout - time.Millisecond)
			if got := log.count("disk of the store hangs"); got != round {
				t.Errorf("before an election timeout it was said %d times, want %d", got, round)
			}
			passes(2 * time.Millisecond)
			if got := log.count("disk of the store hangs"); got != round+1 {
				t.Errorf("after an election timeout it was said %d times, want %d", got, round+1)
			}
			passes(5 * h.cfg.ElectionTimeout)
			release()
			<-done
			passes(time.Second)
			if got := log.count("disk of the store hangs"); got != round+1 {
				t.Errorf("the disk goes on, and it was said %d times, want %d", got, round+1)
			}
			if !h.resting(t) {
				t.Error("it does not rest afterwards")
			}
			passes(time.Minute)
		}
	})
}
