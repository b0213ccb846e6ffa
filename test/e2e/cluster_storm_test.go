package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestClusterFormsInStorm: while four servers form a group of three, packets are lost, in
// one direction too, processes are killed and stand still, all at once also, secrets
// rotate. When it is calm again there is one group, and nobody had to do anything.
func TestClusterFormsInStorm(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, 0, 3)
	for trial := range scale.N(40) {
		c.up(c.servers...)
		lasts(c.draw.upTo(2500 * time.Millisecond))
		var did []string
		for range 2 + c.draw.IntN(5) {
			did = append(did, c.formationFault())
			lasts(c.draw.upTo(900 * time.Millisecond))
		}
		t.Logf("%d: %v", trial, did)
		c.topo.Heal()
		c.oneGroup()
		c.killAll(c.servers...)
		for _, n := range c.servers {
			n.wipe()
			n.secrets(c.secret)
		}
	}
}

// formationFault does one thing to servers that form a group.
func (c *cluster) formationFault() string {
	a, b := c.servers[c.draw.IntN(len(c.servers))], c.servers[c.draw.IntN(len(c.servers))]
	switch c.draw.IntN(8) {
	case 0:
		c.topo.Loss(10 + 30*c.draw.Float64())
		return "loss"
	case 1:
		if a != b {
			c.topo.Cut(a.node, b.node)
		}
		return "cut of " + a.name + " to " + b.name
	case 2:
		c.topo.Isolate(a.node)
		lasts(c.draw.upTo(3 * time.Second))
		c.topo.Heal()
		return a.name + " alone"
	case 3:
		a.kill()
		lasts(c.draw.upTo(time.Second))
		a.up()
		return a.name + " killed"
	case 4:
		c.killAll(c.servers...)
		for _, k := range c.draw.Perm(len(c.servers)) {
			c.servers[k].up()
			lasts(c.draw.upTo(300 * time.Millisecond))
		}
		return "all killed"
	case 5:
		a.proc.Stop()
		lasts(c.draw.upTo(3 * time.Second))
		a.proc.Cont()
		return a.name + " stopped"
	case 6:
		for range 4 {
			b.kill()
			lasts(c.draw.upTo(400 * time.Millisecond))
			b.up()
		}
		return b.name + " again and again"
	}
	next := newSecret()
	for _, lines := range [][]string{{c.secret, next}, {next, c.secret}} {
		for _, n := range c.servers {
			n.secrets(lines...)
			// A process that has not come that far yet would be ended by the signal.
			n.eventually(time.Minute, "it runs", func() error { return n.printed("membership started") })
			n.proc.Signal(syscall.SIGHUP)
			lasts(c.draw.upTo(200 * time.Millisecond))
		}
	}
	return "secrets rotated"
}

// TestClusterStorm: five servers, of which three vote, are killed, stopped, cut off,
// moved, wiped, removed and told to leave or to lead, also while that changes who votes.
// After each, three vote, all of them there; and nothing is lost.
func TestClusterStorm(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 6, 2, 3)
	for _, n := range c.nodes {
		n.join = []string{c.others[0].node.Addr().String() + ":7400"}
	}
	c.up(c.others...)
	c.up(c.servers[:3]...)
	c.nodes = c.others // who is asked stays
	_, group := c.formed(c.servers[:3]...)
	c.up(c.servers[3:5]...)
	c.servers = c.servers[:5]
	l := c.load(300, 0.6)
	c.calm(group)
	faults := c.faults()
	var order []int
	for i := range scale.N(6 * len(faults)) {
		if i%len(faults) == 0 {
			order = c.draw.Perm(len(faults))
		}
		f := faults[order[i%len(faults)]]
		t.Logf("%d: %s", i, f.what)
		f.do()
		c.calm(group)
		l.writesOn()
	}
	c.endOn(l, c.servers...)
}

// calm waits until three servers vote that all run, and the others wait, all of one
// group.
func (c *cluster) calm(group string) {
	c.t.Helper()
	c.eventually(90*time.Second, "three vote", func() error {
		ids := map[string]*storeNode{}
		for _, n := range c.servers {
			id, err := n.identity()
			switch {
			case err != nil:
				return err
			case id.Group != group:
				return fmt.Errorf("%s is of group %s, want %s", n.name, id.Group, group)
			case !n.runs():
				return fmt.Errorf("%s does not run", n.name)
			}
			ids[id.ID] = n
		}
		voters, err := c.others[0].voters()
		if err != nil {
			return err
		}
		for _, id := range voters {
			if ids[id] == nil {
				return fmt.Errorf("%s votes, and is none of %v", id, ids)
			}
		}
		if len(voters) != 3 {
			return fmt.Errorf("%d vote", len(voters))
		}
		return nil
	})
}

// voters are the ids of those who vote, as a client is told.
func (n *storeNode) voters() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := pb.NewClusterClient(n.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	var ids []string
	for _, m := range r.GetMembers() {
		if !m.IsLearner {
			ids = append(ids, fmt.Sprintf("%016x", m.ID))
		}
	}
	return ids, err
}

// voting are the servers that vote.
func (c *cluster) voting() []*storeNode {
	c.t.Helper()
	var out []*storeNode
	c.eventually(30*time.Second, "the voters", func() (err error) {
		out, err = c.three()
		return err
	})
	return out
}

// leading is the one of the servers that vote which leads. One of them may be about to be
// replaced by another, so who votes is asked anew each time.
func (c *cluster) leading() *storeNode {
	c.t.Helper()
	var leader *storeNode
	c.eventually(30*time.Second, "a voter leads", func() error {
		among, err := c.three()
		if err == nil {
			leader, err = c.leads(among...)
		}
		return err
	})
	return leader
}

// three returns the servers that vote now, if there are three.
func (c *cluster) three() ([]*storeNode, error) {
	ids, err := c.others[0].voters()
	var out []*storeNode
	for _, n := range c.servers {
		if id, e := n.identity(); e == nil && slices.Contains(ids, id.ID) {
			out = append(out, n)
		}
	}
	if len(out) != 3 {
		err = errors.Join(err, fmt.Errorf("%v vote", ids))
	}
	return out, err
}

// tries runs a command that may fail or take too long.
func (n *storeNode) tries(d time.Duration, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	out, err := exec.CommandContext(ctx, fairlead, append(args, "--api", n.socket())...).CombinedOutput()
	n.t.Logf("%s: %v: %s, %v", n.name, args, out, err)
}

type clusterFault struct {
	what string
	do   func()
}

func (c *cluster) faults() []clusterFault {
	one := func(of []*storeNode) *storeNode { return of[c.draw.IntN(len(of))] }
	mixed := func(of []*storeNode) []*storeNode {
		of = slices.Clone(of)
		c.draw.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		return of
	}
	again := func(n *storeNode) { n.kill(); n.up() }
	removing := func(n *storeNode, meanwhile func()) {
		done := make(chan struct{})
		asks := n
		for asks == n {
			asks = one(c.servers)
		}
		go func() {
			defer close(done)
			asks.tries(20*time.Second, "raft", "remove", n.name)
		}()
		lasts(c.draw.upTo(1500 * time.Millisecond))
		meanwhile()
		<-done
	}
	return []clusterFault{
		{"the leader is killed while another is removed", func() {
			removing(one(c.voting()), func() { again(c.leading()) })
		}},
		{"the leader is removed", func() { removing(c.leading(), func() {}) }},
		{"one is removed that is cut off", func() {
			goes := one(c.voting())
			c.topo.Isolate(goes.node)
			removing(goes, func() { lasts(c.draw.upTo(3 * time.Second)) })
			c.topo.Heal()
		}},
		{"one that is removed is killed, and back without its disk", func() {
			goes := one(c.voting())
			removing(goes, func() { goes.kill(); goes.wipe(); goes.up() })
		}},
		{"one is killed, and back without its disk, while the leader is killed again and again", func() {
			leader := c.leading()
			goes := one(slices.DeleteFunc(c.voting(), func(n *storeNode) bool { return n == leader }))
			goes.kill()
			goes.wipe()
			goes.up()
			for range 4 {
				lasts(2*time.Second + c.draw.upTo(2*time.Second))
				again(leader)
			}
		}},
		{"spares come while the group is cut", func() {
			v := c.voting()
			waits := slices.DeleteFunc(slices.Clone(c.servers), func(n *storeNode) bool { return slices.Contains(v, n) })
			for _, n := range waits {
				n.kill()
				n.wipe()
			}
			c.topo.Partition([]*netns.Node{v[0].node}, []*netns.Node{v[1].node}, []*netns.Node{v[2].node})
			c.up(waits...)
			lasts(3 * time.Second)
			c.topo.Heal()
		}},
		{"all are killed and start in some order", func() {
			all := mixed(c.servers)
			c.killAll(all...)
			for _, n := range all {
				n.up()
				lasts(c.draw.upTo(time.Second))
			}
		}},
		{"they are killed one by one, and start in some order", func() {
			for _, n := range mixed(c.servers) {
				n.kill()
				lasts(c.draw.upTo(time.Second))
			}
			c.up(mixed(c.servers)...)
		}},
		{"all move to other addresses", func() {
			c.killAll(c.servers...)
			for _, n := range c.servers {
				n.moves(n.node.Addr().Next().Next().Next().Next().Next().Next().Next().Next())
			}
			c.up(mixed(c.servers)...)
		}},
		{"the leadership goes round", func() {
			for range 8 {
				one(c.servers).tries(5*time.Second, "raft", "transfer", one(c.voting()).name)
			}
		}},
		{"the leader leaves, and is back", func() {
			goes := c.leading()
			goes.tries(40*time.Second, "leave")
			c.eventually(20*time.Second, goes.name+" has ended", func() error {
				if goes.runs() {
					return errNotYet
				}
				return nil
			})
			goes.up()
		}},
		{"the leader stands still", func() {
			leader := c.leading()
			leader.proc.Stop()
			lasts(500*time.Millisecond + c.draw.upTo(9*time.Second))
			leader.proc.Cont()
		}},
		{"a follower stands still", func() {
			n := one(c.voting())
			n.proc.Stop()
			lasts(500*time.Millisecond + c.draw.upTo(9*time.Second))
			n.proc.Cont()
		}},
		{"two of the voters are cut off one way", func() {
			v := mixed(c.voting())
			c.topo.Cut(v[0].node, v[1].node)
			c.topo.Cut(v[1].node, v[2].node)
			lasts(c.draw.upTo(4 * time.Second))
			c.topo.Heal()
		}},
		{"many packets are lost while one is replaced", func() {
			c.topo.Loss(20)
			removing(one(c.voting()), func() { lasts(c.draw.upTo(6 * time.Second)) })
			c.topo.Heal()
		}},
	}
}
