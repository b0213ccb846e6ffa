package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestClusterBegunAnew: all servers lose their disks. The first that is back hears of
// the group that they were, and they form another one once an operator gives that up.
// The agents that are none keep what they know and say how they are made to follow the
// new group; when an operator says that, they do, and keep the copy that they had.
func TestClusterBegunAnew(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	c.nodes = c.servers // the others pass nothing on meanwhile
	c.copied("test/before")
	had := c.others[0].copy()
	c.killAll(c.servers...)
	for _, n := range c.servers {
		n.wipe()
	}
	// The others do not know yet that they are gone.
	first := c.servers[0]
	c.up(first)
	c.eventually(20*time.Second, first.name+" hears of the old group", first.warns("cluster "+had.Cluster+" exists already"))
	c.up(c.servers[1:]...)
	group := c.givesUp(had.Cluster)
	if group == had.Cluster {
		t.Fatalf("the new group has the id of the old one, %s", group)
	}
	for _, n := range c.others {
		c.eventually(30*time.Second, n.name+" says what to do", func() error {
			if got := n.copy(); got.Cluster != had.Cluster || got.Revision != had.Revision || !strings.Contains(got.Problem, "`fairlead raft follow "+group+"`") {
				return fmt.Errorf("it has %+v", got)
			}
			return nil
		})
		if out, err := n.run("raft", "follow", had.Cluster); err == nil || !strings.Contains(err.Error(), "no server of that cluster is refused") {
			t.Errorf("%s: %q, %v", n.name, out, err)
		}
		if out := string(n.must("raft", "follow", group)); !strings.Contains(out, "follows cluster "+group) || !strings.Contains(out, had.Cluster) || !strings.Contains(out, "system.copy.before") {
			t.Errorf("%s: %q", n.name, out)
		}
		c.eventually(20*time.Second, n.name+" answers clients", n.answers)
		c.eventually(20*time.Second, n.name+" lists the servers", func() error {
			if peers, err := n.listPeers(); err != nil || len(peers) != 3 {
				return fmt.Errorf("it lists %v, %v", peers, err)
			}
			return nil
		})
	}
	c.copied("test/after")
}

// givesUp says on each server that waits for a group of which nobody is left that it is
// lost, until they have formed another one, and returns that.
func (c *cluster) givesUp(lost string) (group string) {
	c.t.Helper()
	given := map[string]bool{}
	c.eventually(60*time.Second, "another group", func() (err error) {
		for _, n := range c.servers {
			if n.warns("cluster "+lost+" exists already, and none of its servers")() == nil {
				// Meanwhile it may have found others that wait no more.
				if _, err := n.run("raft", "recover"); err != nil {
					return err
				}
				given[n.name] = true
			}
		}
		group, err = c.one(c.servers...)
		return err
	})
	if len(given) == 0 {
		c.t.Error("nobody waited for the old group")
	}
	return group
}

// warns is nil when `fairlead raft status` complains of something.
func (n *storeNode) warns(of string) func() error {
	return func() error {
		if _, err := n.run("raft", "status"); err == nil || !strings.Contains(err.Error(), of) {
			return fmt.Errorf("%s says %v, want %q", n.name, err, of)
		}
		return nil
	}
}
