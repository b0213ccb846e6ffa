package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestClusterExpectsDiffer: nothing forms while two numbers of servers are expected,
// and all say why. Once they are equal it does.
func TestClusterExpectsDiffer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 0, 3)
	odd := c.servers[c.draw.IntN(3)]
	odd.expects(2)
	c.up(c.servers...)
	for _, n := range c.servers {
		c.eventually(20*time.Second, n.name+" says why", n.says("says bootstrap_expect", "here it is", "make them equal"))
	}
	lasts(3 * time.Second)
	c.none()
	odd.kill()
	odd.expects(3)
	c.up(odd)
	c.formed(c.servers...)
}

// expects sets how many servers the agent expects.
func (n *storeNode) expects(servers int) {
	i := slices.Index(n.args, "--cluster.bootstrap_expect")
	n.args[i+1] = fmt.Sprint(servers)
}

// none fails the test if there is a server of any group.
func (c *cluster) none() {
	c.t.Helper()
	for _, n := range c.servers {
		if id, err := n.identity(); !errors.Is(err, os.ErrNotExist) {
			c.t.Errorf("%s is %+v, %v", n.name, id, err)
		}
	}
}

// TestClusterOneMore: four servers start where three are expected. The fourth is added.
func TestClusterOneMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, 0, 3)
	c.up(c.servers...)
	c.eventually(30*time.Second, "three vote and one learns", func() error {
		if _, err := c.one(c.servers...); err != nil {
			return err
		}
		all, err := c.servers[0].listPeers()
		roles := map[string]int{}
		for _, p := range all {
			roles[p.Role]++
		}
		if err == nil && (roles["leader"] != 1 || roles["voter"] != 2 || roles["learner"] != 1) {
			err = fmt.Errorf("they are %v", roles)
		}
		return err
	})
}

// TestClusterHalfFormed: while six servers form a group of three they are cut into two
// halves, killed and started again at any moment. In the end there is one group.
func TestClusterHalfFormed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 6, 0, 3)
	for range scale.N(20) {
		c.up(c.servers...)
		lasts(c.draw.upTo(3500 * time.Millisecond))
		halves := c.draw.Perm(len(c.servers))
		groups := [2][]*netns.Node{}
		for i, k := range halves {
			groups[i%2] = append(groups[i%2], c.servers[k].node)
		}
		c.topo.Partition(groups[:]...)
		for _, k := range halves[:c.draw.IntN(3)] {
			lasts(c.draw.upTo(1000 * time.Millisecond))
			c.servers[k].kill()
			c.servers[k].up()
		}
		lasts(c.draw.upTo(2500 * time.Millisecond))
		c.topo.Heal()
		c.oneGroup()
		c.killAll(c.servers...)
		for _, n := range c.servers {
			n.wipe()
		}
	}
}

// oneGroup waits until all servers are of one group, and all answer clients.
func (c *cluster) oneGroup() {
	c.t.Helper()
	c.eventually(60*time.Second, "one group", func() error {
		group := ""
		for _, n := range c.servers {
			id, err := n.identity()
			if err != nil {
				why, _ := n.awaits()
				return fmt.Errorf("%w: it waits: %s", err, why)
			}
			if group = cmp.Or(group, id.Group); id.Group != group {
				c.t.Fatalf("two groups: %s is of %s, others of %s", n.name, id.Group, group)
			}
			if err := n.answers(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestClusterHalves: of six servers that know each other, and of which three are to form
// a group, each half is cut off from the other. Neither forms one, and each says why.
func TestClusterHalves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 6, 0, 3)
	last := c.servers[5]
	last.expects(2) // so that nothing forms before the cut
	c.up(c.servers...)
	c.eventually(20*time.Second, "all see all alive", c.agreed(c.agents...))
	for _, n := range c.servers {
		c.eventually(20*time.Second, n.name+" knows what others expect", n.says("says bootstrap_expect"))
	}
	lasts(2 * time.Second) // and what all of them do
	groups := [2][]*netns.Node{}
	for i, n := range c.servers {
		groups[i/3] = append(groups[i/3], n.node)
	}
	c.topo.Partition(groups[:]...)
	last.kill()
	last.expects(3)
	c.up(last)
	for _, half := range [][]*storeNode{c.servers[:3], c.servers[3:]} {
		// Who knows less of the others waits for one who says why.
		c.eventually(30*time.Second, "one of each half says why", func() (err error) {
			for _, n := range half {
				if err = n.says("the others could form a cluster of their own")(); err == nil {
					return nil
				}
			}
			return err
		})
	}
	lasts(3 * time.Second)
	c.none()
	c.topo.Heal()
	c.oneGroup()
}

// TestClusterOtherSecret: one of three has another secret. All see each other alive,
// so nothing forms, and both sides say what is awaited and what is wrong. Then the disk
// of the candidate is lost, which has a yes of the second: that one waits for it, and
// says so, also beside a server of the same name, until an operator says that it is lost.
func TestClusterOtherSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 0, 3)
	// Who is who is on disk, and the lowest id is the candidate's.
	for _, n := range c.servers {
		n.args = append(n.args, "--cluster.server=false")
	}
	c.up(c.servers...)
	c.eventually(20*time.Second, "all see all alive", c.agreed(c.agents...))
	table, err := c.servers[0].members()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]uint64{}
	for _, m := range table {
		ids[m.Name] = uint64(m.ID)
	}
	c.killAll(c.servers...)
	for _, n := range c.servers {
		n.args = slices.DeleteFunc(n.args, func(a string) bool { return a == "--cluster.server=false" })
	}
	in := slices.SortedFunc(slices.Values(c.servers), func(a, b *storeNode) int { return cmp.Compare(ids[a.name], ids[b.name]) })
	candidate, bound, odd := in[0], in[1], in[2]
	odd.secrets(newSecret())
	c.up(c.servers...)
	c.eventually(20*time.Second, "the candidate says what it waits for", candidate.says("proposed cluster", "waiting for the yes of "+odd.name))
	c.eventually(20*time.Second, "one is bound", bound.says("said yes to cluster", "waiting for "+candidate.name))
	c.eventually(20*time.Second, "the one that nobody believes waits", odd.says("waiting for "+candidate.name))
	c.eventually(20*time.Second, "both sides say what is wrong", func() error {
		for n, says := range map[*storeNode]string{candidate: "signed by none of this node's secrets", odd: "no secret in common"} {
			if !strings.Contains(n.proc.Output(), says) {
				return fmt.Errorf("%s does not say what is wrong", n.name)
			}
		}
		return nil
	})
	c.none()

	candidate.kill()
	candidate.wipe()
	odd.secrets(c.secret)
	odd.reload()
	gone := fmt.Sprintf("of %s (id %016x), which is not alive", candidate.name, ids[candidate.name])
	c.eventually(20*time.Second, "it says who is gone", bound.says("said yes to cluster", gone, "fairlead raft recover"))
	c.up(candidate)
	c.eventually(20*time.Second, "it is not fooled by the name", bound.says(gone, "a server of that name is alive with another data directory"))
	lasts(3 * time.Second)
	c.none()
	if out, err := bound.run("raft", "recover"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.formed(c.servers...)
}
