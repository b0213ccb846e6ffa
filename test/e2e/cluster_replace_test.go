package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/test/scale"
)

// TestClusterReplaces: a server dies for good, and another one takes its place in one
// change. The dead one comes back with its disk, and later without: each time it is
// one more server that waits.
func TestClusterReplaces(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, 2, 3)
	first, dies, fourth := c.servers[:3], c.servers[2], c.servers[3]
	for _, n := range c.servers {
		n.args = append(n.args, "--log.level", "debug") // it has each membership
	}
	c.up(first...)
	c.up(c.others...)
	c.nodes = c.others // who is asked lives on
	_, group := c.formed(first...)
	l := c.load(300, 0.6)
	l.writesOn()
	was := dies.raftID()
	dies.kill()
	l.writesOn()
	seen := c.watchVoters()
	c.up(fourth)
	now := []*storeNode{first[0], first[1], fourth}
	c.eventually(60*time.Second, "the fourth takes its place", func() error { return c.votes(now...) })
	seen.end(t, now)

	// It has its disk, on which it is a voter.
	dies.up()
	c.eventually(30*time.Second, "it is another server", func() error {
		id, err := dies.identity()
		if err == nil && (id.ID == was || id.Group != group) {
			err = fmt.Errorf("it is %+v, and was %s of %s", id, was, group)
		}
		return errors.Join(err, dies.learns(first[0]))
	})
	again := dies.raftID()
	dies.kill()
	dies.wipe()
	dies.up()
	c.eventually(60*time.Second, "it is one more server", func() error {
		id, err := dies.identity()
		if err == nil && (id.ID == was || id.ID == again || id.Group != group) {
			err = fmt.Errorf("it is %+v, and was %s and %s of %s", id, was, again, group)
		}
		return errors.Join(err, dies.learns(first[0]))
	})
	c.vote(now...)
	c.endOn(l, append(now, dies)...)
}

// endOn ends a load and sees that servers which clients did not ask have the same.
func (c *cluster) endOn(l *storeLoad, servers ...*storeNode) {
	c.t.Helper()
	l.end()
	revision := l.mark()
	f := storeFleet{nodes: slices.Concat(servers, c.nodes)}
	c.eventually(20*time.Second, "all have the same", func() error { return f.same(revision) })
}

// votersSeen is who voted, as clients saw it, again and again.
type votersSeen struct {
	c    *cluster
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	seen map[string]bool // ids of the voters that a member list had
}

// watchVoters looks all the time, from now on.
func (c *cluster) watchVoters() *votersSeen {
	ctx, stop := context.WithCancel(context.Background())
	w := &votersSeen{c: c, stop: stop, seen: map[string]bool{}}
	c.t.Cleanup(func() { stop(); w.done.Wait() })
	w.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			n := c.nodes[i%len(c.nodes)]
			if r, err := pb.NewClusterClient(n.conn).MemberList(ctx, &pb.MemberListRequest{}); err == nil {
				var ids []string
				for _, m := range r.Members {
					if !m.IsLearner {
						ids = append(ids, fmt.Sprintf("%016x", m.ID))
					}
				}
				w.mu.Lock()
				w.seen[strings.Join(ids, " ")] = true
				w.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return w
}

// configuration is how Raft logs that another membership is in force.
var configuration = regexp.MustCompile(`switched to configuration voters=\(([^)]*)\)(?:&&\(([^)]*)\))?`)

// has is nil if clients saw just these servers vote.
func (w *votersSeen) has(servers []*storeNode) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ids := range w.seen {
		voters := strings.Fields(ids)
		all := len(voters) == len(servers)
		for _, n := range servers {
			id, err := n.identity()
			if err != nil {
				return err
			}
			all = all && slices.Contains(voters, id.ID)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("clients saw %v", slices.Sorted(maps.Keys(w.seen)))
}

// end sees that there was one change, with three voters before and after it and at
// every instant, in the eyes of clients and in the logs of the servers.
func (w *votersSeen) end(t *testing.T, servers []*storeNode) {
	t.Helper()
	w.c.eventually(20*time.Second, "clients see those who vote now", func() error { return w.has(servers) })
	w.stop()
	w.done.Wait()
	t.Logf("clients saw the voters %v", slices.Sorted(maps.Keys(w.seen)))
	sets := 0
	for ids := range w.seen {
		if n := len(strings.Fields(ids)); n != 3 {
			t.Errorf("%d voted: %s", n, ids)
		}
		sets++
	}
	if sets != 2 {
		t.Errorf("clients saw %d sets of three, want the old and the new one", sets)
	}
	for _, n := range servers {
		joint := map[string]bool{}
		for _, m := range configuration.FindAllStringSubmatch(n.proc.Output(), -1) {
			if in := strings.Fields(m[1]); len(in) != 3 && len(in) != 0 { // none: it was not added yet
				t.Errorf("%s was in a group of %d voters: %s", n.name, len(in), m[0])
			}
			if out := strings.Fields(m[2]); len(out) != 0 {
				joint[m[0]] = true
				if len(out) != 3 {
					t.Errorf("%s was in a change from %d voters: %s", n.name, len(out), m[0])
				}
			}
		}
		if len(joint) != 1 {
			t.Errorf("%s has taken part in %d changes of the voters, want 1: %v", n.name, len(joint), joint)
		}
	}
}

// TestClusterRolls: all servers are replaced one by one, with new names and disks,
// under load. Nothing is lost, and no write waits long.
func TestClusterRolls(t *testing.T) {
	waitsAtMost := scale.Bound(time.Second, 10*time.Second)
	c := newCluster(t, 6, 2, 3)
	for _, n := range c.nodes {
		n.join = []string{c.others[0].node.Addr().String() + ":7400"}
	}
	c.up(c.others...)
	c.up(c.servers[:3]...)
	c.nodes = c.others // who is asked stays
	_, group := c.formed(c.servers[:3]...)
	l := c.load(300, 0.6)
	l.writesOn()
	began := time.Now()
	c.up(c.servers[3:]...)
	for _, goes := range c.servers[:3] {
		id := goes.raftID()
		c.eventually(10*time.Second, "it is written that "+goes.name+" leaves", func() error { return c.others[0].system("leaving/"+id, "") })
		c.eventually(30*time.Second, "another one has the place of "+goes.name, func() error {
			r, err := pb.NewClusterClient(c.others[0].conn).MemberList(t.Context(), &pb.MemberListRequest{})
			for _, m := range r.GetMembers() {
				if fmt.Sprintf("%016x", m.ID) == id {
					return fmt.Errorf("it is still a member: %v", m)
				}
			}
			return err
		})
		c.terminate(goes)
	}
	c.vote(c.servers[3:]...)
	l.writesOn()
	gap := l.longestWait(began)
	t.Logf("no write waited for more than %v", gap)
	if gap > waitsAtMost {
		t.Errorf("writes stood still for %v, want %v at most", gap, waitsAtMost)
	}
	c.eventually(20*time.Second, "they are the group that was", func() error {
		now, err := c.one(c.servers[3:]...)
		if err == nil && now != group {
			t.Fatalf("the group is %s, and was %s", now, group)
		}
		return err
	})
	c.endOn(l, c.servers[3:]...)
}

// TestClusterRemoves: a server is removed while it runs, the one that leads too. Clients
// of its own agent are answered on, by others, and it is one more server that waits.
func TestClusterRemoves(t *testing.T) {
	t.Parallel()
	waitsAtMost := scale.Bound(time.Second, 10*time.Second)
	c := newCluster(t, 4, 0, 3)
	c.up(c.servers...)
	c.formed(c.servers...)
	all := c.nodes
	for trial := range scale.N(20) {
		c.nodes = all
		leader := c.leader(c.servers...)
		goes := leader
		for trial%2 == 1 && (goes == leader || goes.learns(leader) == nil) {
			goes = c.servers[c.draw.IntN(len(c.servers))]
		}
		c.nodes = []*storeNode{goes}
		// A history begins with nothing.
		c.eventually(20*time.Second, "the keys of before are gone", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := goes.kv().DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(storePrefix), RangeEnd: []byte("load0")})
			return err
		})
		l := c.load(100, 1) // it reads nothing: that may be old, each time at another server
		l.writesOn()
		id, began := goes.raftID(), time.Now()
		out, err := goes.run("raft", "remove", goes.name)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		c.eventually(30*time.Second, "it is another server", func() error {
			if goes.raftID() == id {
				return errNotYet
			}
			return goes.learns(c.servers[(slices.Index(c.servers, goes)+1)%len(c.servers)])
		})
		l.writesOn()
		gap := l.longestWait(began)
		t.Logf("no write waited for more than %v", gap)
		if gap > waitsAtMost {
			t.Errorf("writes stood still for %v, want %v at most", gap, waitsAtMost)
		}
		c.endOn(l, all...)
	}
}

// longestWait returns the longest time since a moment in which no write was
// acknowledged.
func (l *storeLoad) longestWait(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := time.Duration(0)
	for _, a := range l.acks {
		if a.ended.After(since) {
			longest = max(longest, a.ended.Sub(since))
			since = a.ended
		}
	}
	return longest
}
