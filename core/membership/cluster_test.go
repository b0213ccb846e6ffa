package membership_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/membership/memtransport"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/test/transcript"
)

// cluster is some nodes on one network in memory, inside a synctest bubble.
type cluster struct {
	t     *testing.T
	net   *memtransport.Network
	nodes []*node // running
}

// node is a running Membership with what tests look at.
type node struct {
	*membership.Membership
	cfg     membership.Config
	addr    netip.AddrPort
	log     *transcript.Buffer
	metrics *prometheus.Registry
}

// inCluster runs f in a bubble and closes every node that is left.
func inCluster(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: memtransport.New(memtransport.Config{
			Seed: 1, MinDelay: 200 * time.Microsecond, MaxDelay: 2 * time.Millisecond,
		})}
		defer func() {
			for _, n := range c.nodes {
				if err := n.Close(); err != nil {
					t.Errorf("close %s: %v", n.cfg.Name, err)
				}
			}
		}()
		f(t, c)
	})
}

func host(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7400)
}

// start runs node n<i> at host(i), joining host(1) unless edit says otherwise.
func (c *cluster) start(i int, edit ...func(*membership.Config)) *node {
	c.t.Helper()
	n, err := c.tryStart(i, edit...)
	if err != nil {
		c.t.Fatalf("start node %d: %v", i, err)
	}
	return n
}

func (c *cluster) tryStart(i int, edit ...func(*membership.Config)) (*node, error) {
	end, err := c.net.Listen(host(i))
	if err != nil {
		return nil, err
	}
	n := &node{addr: host(i), log: &transcript.Buffer{}, metrics: prometheus.NewPedanticRegistry()}
	n.cfg = membership.Config{
		Name: fmt.Sprintf("n%d", i), Cluster: "test", Join: []string{host(1).String()}, Swim: swim.DefaultLocal(),
		Transport: end, Metrics: n.metrics,
		Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range edit {
		f(&n.cfg)
	}
	if n.Membership, err = membership.Start(n.cfg); err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, n)
	return n, nil
}

// startAll runs n nodes and waits until all see all alive.
func (c *cluster) startAll(n int) []*node {
	c.t.Helper()
	for i := 1; i <= n; i++ {
		c.start(i)
	}
	c.await(3*time.Second, "all see all alive", func() bool { return c.all(model.StateAlive, c.nodes...) })
	return append([]*node(nil), c.nodes...)
}

// kill stops a node without a good-bye.
func (c *cluster) kill(n *node) {
	c.t.Helper()
	if err := n.Close(); err != nil {
		c.t.Fatalf("close %s: %v", n.cfg.Name, err)
	}
	for i := range c.nodes {
		if c.nodes[i] == n {
			c.nodes = append(c.nodes[:i], c.nodes[i+1:]...)
			return
		}
	}
}

// await lets virtual time pass until cond holds, and fails after within.
func (c *cluster) await(within time.Duration, what string, cond func() bool) time.Duration {
	c.t.Helper()
	for start := time.Now(); ; <-time.After(20 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return time.Since(start)
		}
		if time.Since(start) > within {
			c.dump()
			c.t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// pass lets virtual time pass.
func (c *cluster) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *cluster) dump() {
	for _, n := range c.nodes {
		c.t.Logf("%s (%s):", n.cfg.Name, n.Snapshot().Silent)
		for _, m := range n.Snapshot().Members {
			c.t.Logf("  %s %v %v %v", m.Name, m.ID, m.Addr, m.Value)
		}
	}
}

// all reports whether every running node sees each of these in a state.
func (c *cluster) all(want model.State, of ...*node) bool {
	for _, viewer := range c.nodes {
		for _, n := range of {
			if got, ok := viewer.Snapshot().Find(n.id()); !ok || got.Value.State != want {
				return false
			}
		}
	}
	return true
}

func (n *node) id() model.NodeID { return n.Snapshot().Self.ID }

// history is every event so far, each checked to follow the one before.
func (n *node) history(t *testing.T) []membership.Event {
	t.Helper()
	var out []membership.Event
	for u, err := range n.Events(context.Background(), 0, false) {
		if err != nil || u.Reset != nil {
			t.Fatalf("events of %s: reset %v, error %v", n.cfg.Name, u.Reset, err)
		}
		if u.Event.Seq != uint64(len(out))+1 {
			t.Fatalf("event %d of %s has sequence number %d", len(out)+1, n.cfg.Name, u.Event.Seq)
		}
		out = append(out, u.Event)
	}
	return out
}

// saw reports whether n has an event of this kind about a member.
func (n *node) saw(t *testing.T, kind swim.EventKind, id model.NodeID) (membership.Event, bool) {
	t.Helper()
	for _, e := range n.history(t) {
		if e.Kind == kind && e.Member.ID == id {
			return e, true
		}
	}
	return membership.Event{}, false
}

// metric reads one metric by name and label values.
func (n *node) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return metric(t, n.metrics, name, labels...)
}

func metric(t *testing.T, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "fairlead_membership_"+name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetValue()] = true
			}
			for _, want := range labels {
				if !have[want] {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
