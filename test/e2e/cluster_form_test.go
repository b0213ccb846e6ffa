package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/test/scale"
)

// formsWithin is how soon agents that start are one cluster.
const formsWithin = 5 * time.Second

// TestClusterForms: three servers and two other agents that know one address only
// become one cluster, also if they are started one by one, and if one of them is killed
// and started again on the way. It measures time, so it runs beside no other test.
func TestClusterForms(t *testing.T) {
	const sides = 4
	trials := (scale.N(100) + sides - 1) / sides
	var mu sync.Mutex
	var took []time.Duration
	t.Run("trials", func(t *testing.T) {
		for side := range sides {
			t.Run(fmt.Sprint(side), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, 3, 2, 3)
				for i := range trials {
					this := c.forms(i + side)
					mu.Lock()
					took = append(took, this)
					mu.Unlock()
				}
			})
		}
	})
	if len(took) == 0 {
		return // skipped, or it said why
	}
	slices.Sort(took)
	longest := took[len(took)-1]
	t.Logf("%d trials: %v in the middle, %v at most", len(took), took[len(took)/2], longest)
	if most := scale.Bound(formsWithin, time.Minute); longest > most {
		t.Errorf("it took %v, want %v at most", longest, most)
	}
}

// forms has all agents begin with empty disks, and returns how long after the last start
// they were one cluster.
func (c *cluster) forms(trial int) time.Duration {
	c.t.Helper()
	order := c.draw.Perm(len(c.nodes))
	between := time.Duration(0)
	if trial%3 == 1 {
		between = 300 * time.Millisecond
	}
	for i, k := range order {
		if i > 0 {
			lasts(c.draw.upTo(2 * between))
		}
		c.nodes[k].up()
	}
	if trial%3 == 2 {
		again := c.servers[c.draw.IntN(len(c.servers))]
		lasts(c.draw.upTo(3000 * time.Millisecond))
		again.kill()
		again.up()
	}
	took, group := c.formed(c.servers...)
	for _, n := range c.nodes {
		var st *pb.StatusResponse
		eventually(c.t, 10*time.Second, func() (err error) {
			st, err = n.status()
			return err
		}, "%s says its status", n.name)
		if got := fmt.Sprintf("%016x", st.Header.ClusterId); got != group {
			c.t.Errorf("%s answers for the group %s, want %s", n.name, got, group)
		}
	}
	c.killAll(c.nodes...)
	for _, n := range c.nodes {
		n.wipe()
	}
	return took
}
