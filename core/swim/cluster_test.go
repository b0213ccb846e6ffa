package swim_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// cluster runs nodes in virtual time on a network with a delay of one
// millisecond. Nodes that are down neither run nor hear, as after a crash or a
// stop; cut severs one way between two addresses.
type cluster struct {
	now   time.Time
	nodes map[netip.AddrPort]*swim.Node
	down  map[netip.AddrPort]bool
	cut   func(from, to netip.AddrPort) bool
	mail  []mail
	log   []seen
	sent  int // packets
}

// seen is an event at the node of an address.
type seen struct {
	swim.Event
	by netip.AddrPort
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

// seeded is a source of chance for node i.
func seeded(i uint64) *rand.Rand { return rand.New(rand.NewPCG(i, 1)) }

func lan() swim.Config {
	c := swim.DefaultLAN()
	c.Cluster = "test"
	return c
}

// boot starts node i at its address, which asks contacts.
func (c *cluster) boot(t *testing.T, i int, epoch uint64, contacts ...int) *swim.Node {
	t.Helper()
	return c.bootAt(t, i, i, epoch, contacts...)
}

func (c *cluster) bootAt(t *testing.T, i, at int, epoch uint64, contacts ...int) *swim.Node {
	t.Helper()
	self := swim.Self{ID: model.NodeID(i), Name: fmt.Sprintf("n%d", i), Addr: addr(at)}
	n, err := swim.New(lan(), self, epoch, rand.New(rand.NewPCG(uint64(at), epoch)), c.now)
	if err != nil {
		t.Fatal(err)
	}
	delete(c.down, addr(at))
	c.nodes[addr(at)] = n
	var to []netip.AddrPort
	for _, j := range contacts {
		to = append(to, addr(j))
	}
	n.Join(to, c.now)
	c.pump()
	return n
}

// formed returns a cluster of nodes 1 to n that know each other.
func formed(t *testing.T, n int) *cluster {
	t.Helper()
	c := newCluster()
	for i := 1; i <= n; i++ {
		c.boot(t, i, 1, 1)
	}
	within := 2 * time.Second
	if n > 10 { // chance leaves out a few of n² rumours: the second exchange finds them
		within = 8 * time.Second
	}
	c.mustAgree(t, within, n)
	return c
}

// agreed reports whether all nodes that are up hold each other, and nobody
// else, for alive at the same values.
func (c *cluster) agreed(n int) bool {
	var first []swim.Member
	for _, a := range c.order() {
		if c.up(a) == nil || c.up(a).Silent() {
			continue
		}
		var live []swim.Member
		for _, m := range c.nodes[a].Members() {
			if m.Value.State == model.StateAlive {
				live = append(live, m)
			} else if m.Value.State == model.StateSuspect {
				return false
			}
		}
		slices.SortFunc(live, func(a, b swim.Member) int { return cmp.Compare(a.ID, b.ID) })
		if first == nil {
			first = live
		}
		if len(live) != n || !slices.EqualFunc(live, first, func(a, b swim.Member) bool {
			return a.ID == b.ID && a.Value == b.Value && a.Addr == b.Addr && a.Name == b.Name
		}) {
			return false
		}
	}
	return true
}

// mustAgree runs until n members are agreed upon and returns how long it took.
func (c *cluster) mustAgree(t *testing.T, within time.Duration, n int) time.Duration {
	t.Helper()
	start := c.now
	for !c.agreed(n) {
		if c.now.Sub(start) > within {
			for _, a := range c.order() {
				t.Log(a, c.down[a], c.nodes[a].Members())
			}
			t.Fatalf("no agreement upon %d members after %v", n, within)
		}
		c.run(50 * time.Millisecond)
	}
	return c.now.Sub(start)
}

// first returns the first event of a kind about id, at any node.
func (c *cluster) first(k swim.EventKind, id model.NodeID) *seen {
	for i := range c.log {
		if c.log[i].Kind == k && c.log[i].Member.ID == id {
			return &c.log[i]
		}
	}
	return nil
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
			c.log = append(c.log, seen{e, a})
		}
		if c.down[a] {
			continue
		}
		for _, p := range r.Packets {
			data, to := slices.Clone(p.Data), p.To
			c.sent++
			c.later(func() {
				if n := c.up(to); n != nil && !c.severed(a, to) {
					if err := n.Step(a, data, c.now); err != nil && !errors.Is(err, swim.ErrSilent) {
						panic(err)
					}
				}
			})
		}
		for _, s := range r.Streams {
			c.later(func() {
				peer := c.up(s.To)
				if peer == nil || peer.Silent() || n.Silent() || c.severed(a, s.To) || c.severed(s.To, a) {
					n.StreamClosed(s.Token, swim.StreamFailed, c.now)
					return
				}
				for _, f := range s.Frames {
					reply, err := peer.ServeFrame(f, c.now)
					if err != nil && !errors.Is(err, swim.ErrSilent) {
						panic(err)
					}
					for _, f := range reply {
						if err := n.StreamFrame(s.Token, f, c.now); err != nil && !errors.Is(err, swim.ErrSilent) {
							panic(err)
						}
					}
				}
				n.StreamClosed(s.Token, swim.StreamOK, c.now)
			})
		}
	}
}

func (c *cluster) severed(from, to netip.AddrPort) bool { return c.cut != nil && c.cut(from, to) }

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
