package e2e

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestStoreLeaderKilled: kill -9 of the leader under 200 writes a second, again and
// again. Nothing that was acknowledged is lost, and writes go on soon. It measures
// time, so it runs beside no other test.
func TestStoreLeaderKilled(t *testing.T) {
	f := startStore(t, underTest())
	l := f.load(330, 0.6) // 200 of them write
	var gaps []time.Duration
	const most = 1500 * time.Millisecond
	// On a busy machine the quickest of some has to be that quick.
	quick := func() bool { return scale.Factor() >= 1 || slices.Min(gaps) <= most }
	for try := 1; try <= max(2, scale.N(20)) || !quick() && try <= 10; try++ {
		leader := f.leader()
		l.writesOn()
		leader.kill()
		gaps = append(gaps, l.writesOn())
		leader.up()
		f.eventually(30*time.Second, "it is back", f.led)
	}
	l.end()
	slices.Sort(gaps)
	t.Logf("the first write after a leader's death was acknowledged after %v", gaps)
	if median := gaps[(len(gaps)-1)/2]; median > scale.Bound(most, time.Minute) || !quick() {
		t.Errorf("the median is %v, want %v at most", median, most)
	}
}

// TestStoreAllKilled: all servers are killed at once, under load, and started again:
// all that was acknowledged is there.
func TestStoreAllKilled(t *testing.T) {
	t.Parallel()
	f := startStore(t, underTest())
	l := f.load(400, 0.6)
	l.compacts()
	for range scale.N(10) {
		l.writesOn()
		lasts(loadLasts() / 10)
		for _, n := range f.nodes {
			n.proc.Signal(9)
		}
		for _, n := range f.nodes {
			n.kill()
		}
		f.upAll()
	}
	l.writesOn()
	l.end()
}

// TestStoreLeaderStopped: the leader stands still for three election timeouts, and
// believes that it leads when it goes on: nobody reads from it what is old.
func TestStoreLeaderStopped(t *testing.T) {
	t.Parallel()
	f := startStore(t, underTest())
	l := f.load(500, 0.5)
	l.compacts()
	for range scale.N(6) {
		leader := f.leader()
		l.writesOn()
		leader.proc.Stop()
		lasts(3 * electionTimeout)
		f.leader(f.besides(leader)...)
		leader.proc.Cont()
		f.eventually(30*time.Second, "it follows", f.led)
	}
	l.end()
}

// TestStoreAsymmetric: packets are lost in one direction only. Whatever direction
// that is, the others or all go on, and all agree in the end.
func TestStoreAsymmetric(t *testing.T) {
	t.Parallel()
	f := startStore(t, underTest())
	l := f.load(500, 0.5)
	l.compacts()
	type cut struct {
		what string
		do   func(leader, one, other *netns.Node)
	}
	cuts := []cut{
		{"nobody hears the leader", func(leader, one, other *netns.Node) { f.topo.Cut(leader, one); f.topo.Cut(leader, other) }},
		{"the leader hears nobody", func(leader, one, other *netns.Node) { f.topo.Cut(one, leader); f.topo.Cut(other, leader) }},
		{"one does not hear the leader", func(leader, one, _ *netns.Node) { f.topo.Cut(leader, one) }},
		{"the leader does not hear one", func(leader, one, _ *netns.Node) { f.topo.Cut(one, leader) }},
		{"the leader is alone", func(leader, _, _ *netns.Node) { f.topo.Isolate(leader) }},
	}
	for i := range max(2, scale.N(2*len(cuts))) {
		c := cuts[i%len(cuts)]
		leader := f.leader()
		others := f.besides(leader)
		began := time.Now()
		c.do(leader.node, others[0].node, others[1].node)
		took := l.writesOn()
		lasts(2 * electionTimeout)
		l.writesOn()
		f.topo.Heal()
		f.eventually(30*time.Second, "all follow one again", f.led)
		t.Logf("%s: the first write after %v, all in all %v", c.what, took, time.Since(began))
		if took > scale.Bound(5*electionTimeout, 20*electionTimeout) {
			t.Errorf("%s: writes stood still for %v", c.what, took)
		}
	}
	if cut, _ := f.topo.Dropped(); cut == 0 {
		t.Error("no packet was lost")
	}
	l.end()
}

// TestStoreMajorityGone: without a majority nothing is acknowledged, and no read is
// answered by what may be old; with it all goes on.
func TestStoreMajorityGone(t *testing.T) {
	t.Parallel()
	f := startStore(t, underTest())
	l := f.load(400, 0.5)
	l.writesOn()
	leader := f.leader()
	for _, n := range f.besides(leader) {
		n.kill()
	}
	lasts(callTimeout) // what was under way
	since := time.Now()
	lasts(3 * electionTimeout)
	if took := l.firstAck(since); took != 0 {
		t.Errorf("a write was acknowledged %v after the majority was gone", took)
	}
	for _, n := range f.besides(leader) {
		n.up()
	}
	f.eventually(30*time.Second, "all follow one", f.led)
	l.writesOn()
	l.end()
}

var errNotYet = errors.New("not yet")
