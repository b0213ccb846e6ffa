package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

const (
	// deadFor is how long a server is dead before another one takes its place.
	deadFor = 10 * time.Second
	// deadSeen is more than it takes until gossip says that a server is dead, and that
	// something was done about it.
	deadSeen = 5 * time.Second
	// Writes go on so soon after a leader was killed: in the middle, and always.
	failoverMiddle = 500 * time.Millisecond
	failoverAlways = electionTimeout + time.Second
)

// TestClusterLeaderKilled: kill -9 of the leader under 200 writes a second, of clients
// at all agents. It measures time, so it runs beside no other test.
func TestClusterLeaderKilled(t *testing.T) {
	c := startCluster(t, 3, 2)
	l := c.load(330, 0.6)
	var gaps []time.Duration
	// On a busy machine the quickest of some has to be quicker than a wait for the
	// silence of the dead.
	quick := func() bool { return scale.Factor() >= 1 || slices.Min(gaps) < electionTimeout }
	for try := 1; try <= scale.N(30) || !quick() && try <= 10; try++ {
		leader := c.leader(c.servers...)
		l.writesOn()
		leader.kill()
		gaps = append(gaps, l.writesOn())
		leader.up()
		c.formed(c.servers...)
	}
	l.end()
	slices.Sort(gaps)
	t.Logf("the first write after a leader's death was acknowledged after %v", gaps)
	if median := gaps[(len(gaps)-1)/2]; median > scale.Bound(failoverMiddle, time.Minute) || !quick() {
		t.Errorf("the median is %v, want %v at most", median, failoverMiddle)
	}
	if longest := gaps[len(gaps)-1]; longest > scale.Bound(failoverAlways, 15*time.Second) {
		t.Errorf("the longest is %v, want %v at most", longest, failoverAlways)
	}
}

// TestClusterDwindles: five servers are killed one by one. Nobody shrinks the group
// until a minority may write, however long the dead are dead; and in whatever order
// they are started again, nothing is lost.
func TestClusterDwindles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, 0, 5)
	for _, n := range c.nodes {
		n.args = append(n.args, "--raft.voters", "5")
	}
	c.up(c.nodes...)
	c.formed(c.servers...)
	who := c.identities()
	l := c.load(300, 0.6)
	for round := range scale.N(10) {
		l.writesOn()
		killed, left := []*storeNode(nil), slices.Clone(c.servers)
		for len(left) > 0 {
			i := c.draw.IntN(len(left))
			left[i].kill()
			killed, left = append(killed, left[i]), slices.Delete(left, i, i+1)
			if len(left) > len(c.servers)/2 {
				l.writesOn()
				if round == 0 && len(left) == 3 {
					lasts(deadFor + deadSeen)
				}
				continue
			}
			lasts(callTimeout) // what was under way
			since := time.Now()
			lasts(2 * electionTimeout)
			if took := l.firstAck(since); took != 0 {
				t.Errorf("%d of 5 acknowledged a write", len(left))
			}
		}
		c.draw.Shuffle(len(killed), func(i, j int) { killed[i], killed[j] = killed[j], killed[i] })
		c.up(killed...)
		c.formed(c.servers...)
		c.are(who) // who had been removed would be another one
	}
	c.vote(c.servers...)
	l.end()
}

// TestClusterStops: all servers end by SIGTERM and start again, where they were and at
// other addresses. They are who they were, and have all there was.
func TestClusterStops(t *testing.T) {
	t.Parallel()
	leadsWithin := scale.Bound(5*time.Second, time.Minute)
	c := startCluster(t, 3, 1)
	l := c.load(300, 0.6)
	who := c.identities()
	for i, elsewhere := range []bool{false, true} {
		l.writesOn()
		c.terminate(c.servers...)
		if elsewhere {
			for k, n := range c.servers {
				n.moves(n.node.Addr().Next().Next().Next().Next().Next()) // beyond the nodes there are
				t.Logf("%d: %s is at %v", k, n.name, n.node.Addr())
			}
		}
		c.up(c.servers...)
		if took, _ := c.formed(c.servers...); took > leadsWithin {
			t.Errorf("%d: somebody led after %v, want %v at most", i, took, leadsWithin)
		}
		c.are(who)
	}
	c.eventually(10*time.Second, "the new addresses are listed", func() error {
		all, err := c.servers[0].listPeers()
		if err != nil {
			return err
		}
		for _, n := range c.servers {
			if got, want := all[who[n].ID].Addr, n.node.Addr().String()+":7401"; got != want {
				return fmt.Errorf("%s is listed at %s, want %s", n.name, got, want)
			}
		}
		return nil
	})
	c.vote(c.servers...)
	l.writesOn()
	l.end()
}

// identities are who the servers are.
func (c *cluster) identities() map[*storeNode]serverIdentity {
	c.t.Helper()
	who := map[*storeNode]serverIdentity{}
	for _, n := range c.servers {
		id, err := n.identity()
		if err != nil {
			c.t.Fatal(err)
		}
		who[n] = id
	}
	return who
}

// are fails the test unless the servers are who they were.
func (c *cluster) are(who map[*storeNode]serverIdentity) {
	c.t.Helper()
	for _, n := range c.servers {
		if id, err := n.identity(); err != nil || id != who[n] {
			c.t.Errorf("%s is %+v, %v, and was %+v", n.name, id, err, who[n])
		}
	}
}
