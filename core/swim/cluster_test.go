package swim_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// cluster runs nodes in virtual time on a perfect network with a delay of one
// millisecond. down cuts a node off, as a crash does.
type cluster struct {
	now   time.Time
	nodes map[netip.AddrPort]*swim.Node
	down  map[netip.AddrPort]bool
	mail  []mail
	log   []string
}

type mail struct {
	at  time.Time
	run func()
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)}), 7400)
}

func newCluster() *cluster {
	return &cluster{now: time.Unix(1_000_000, 0), nodes: map[netip.AddrPort]*swim.Node{}, down: map[netip.AddrPort]bool{}}
}

func lan() swim.Config {
	c := swim.DefaultLAN()
	c.Cluster = "test"
	return c
}

func (c *cluster) start(t *testing.T, i int, epoch uint64, contacts ...int) *swim.Node {
	t.Helper()
	n, err := swim.New(lan(), swim.Self{ID: model.NodeID(i), Name: fmt.Sprintf("n%d", i), Addr: addr(i)}, epoch, rand.New(rand.NewPCG(uint64(i), epoch)), c.now)
	if err != nil {
		t.Fatal(err)
	}
	delete(c.down, addr(i))
	c.nodes[addr(i)] = n
	var to []netip.AddrPort
	for _, j := range contacts {
		to = append(to, addr(j))
	}
	n.Join(to, c.now)
	c.pump()
	return n
}

func (c *cluster) later(run func()) { c.mail = append(c.mail, mail{c.now.Add(time.Millisecond), run}) }

func (c *cluster) up(a netip.AddrPort) *swim.Node {
	if c.down[a] {
		return nil
	}
	return c.nodes[a]
}

func (c *cluster) pump() {
	for _, a := range c.order() {
		n := c.nodes[a]
		r := n.Ready()
		for _, e := range r.Events {
			c.log = append(c.log, fmt.Sprintf("%.3f %v %v %v %v %s", c.now.Sub(time.Unix(1_000_000, 0)).Seconds(), a.Addr(), e.Kind, e.Member.Name, e.Member.Value, e.Detail))
		}
		if c.down[a] {
			continue
		}
		for _, p := range r.Packets {
			data, to := slices.Clone(p.Data), p.To
			c.later(func() {
				if n := c.up(to); n != nil {
					if err := n.Step(a, data, c.now); err != nil {
						panic(err)
					}
				}
			})
		}
		for _, s := range r.Streams {
			c.later(func() {
				peer := c.up(s.To)
				if peer == nil {
					n.StreamClosed(s.Token, swim.StreamFailed, c.now)
					return
				}
				for _, f := range s.Frames {
					reply, err := peer.ServeFrame(f, c.now)
					if err != nil {
						panic(err)
					}
					for _, f := range reply {
						if err := n.StreamFrame(s.Token, f, c.now); err != nil {
							panic(err)
						}
					}
				}
				n.StreamClosed(s.Token, swim.StreamOK, c.now)
			})
		}
	}
}

func (c *cluster) order() []netip.AddrPort {
	var all []netip.AddrPort
	for a := range c.nodes {
		all = append(all, a)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// run moves time on by d.
func (c *cluster) run(d time.Duration) {
	end := c.now.Add(d)
	for {
		next := end
		for _, m := range c.mail {
			if m.at.Before(next) {
				next = m.at
			}
		}
		for _, a := range c.order() {
			if n := c.up(a); n != nil {
				if t := n.NextDeadline(); t.Before(next) {
					next = t
				}
			}
		}
		if next.After(c.now) {
			c.now = next
		}
		due := c.mail
		c.mail = nil
		for _, m := range due {
			if m.at.After(c.now) {
				c.mail = append(c.mail, m)
			} else {
				m.run()
			}
		}
		for _, a := range c.order() {
			if n := c.up(a); n != nil && !n.NextDeadline().After(c.now) {
				n.Tick(c.now)
			}
		}
		c.pump()
		if !c.now.Before(end) {
			return
		}
	}
}

func TestSmoke(t *testing.T) {
	c := newCluster()
	for i := 1; i <= 5; i++ {
		c.start(t, i, 1, 1)
	}
	c.run(60 * time.Second)
	for _, a := range c.order() {
		t.Log(a, len(c.nodes[a].Members()), fmt.Sprintf("%+v", c.nodes[a].Inspect()))
	}
	t.Log("kill 3 at", c.now.Sub(time.Unix(1_000_000, 0)))
	c.down[addr(3)] = true
	c.run(30 * time.Second)
	t.Log("start 3")
	c.start(t, 3, 2, 1)
	c.run(5 * time.Second)
	t.Log("leave 2")
	c.nodes[addr(2)].Leave(c.now)
	c.run(2 * time.Second)
	t.Log(c.nodes[addr(2)].LeaveDone())
	c.down[addr(2)] = true
	c.run(10 * time.Second)
	t.Log("freeze 4")
	c.down[addr(4)] = true
	c.run(10 * time.Second)
	delete(c.down, addr(4))
	c.run(10 * time.Second)
	for _, l := range c.log {
		t.Log(l)
	}
}
