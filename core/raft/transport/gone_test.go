package transport

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// A process that ends is told of at once, although nobody sends it anything. One
// whose connections are cut is not, nor one that was never reached.
func TestGone(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	n.set(3, place{"127.0.0.1:1", "n3"})
	a.Send(heartbeat(1, 3, 1))
	next(t, "word of the loss", a.unreachable)
	for round := range uint64(3) {
		a.Send(heartbeat(1, 2, round))
		await.Within(t, time.Minute, "a message", func() bool {
			select {
			case <-b.received:
				return true
			case <-time.After(50 * time.Millisecond):
				a.Send(heartbeat(1, 2, round))
				return false
			}
		})
		opened := a.counted(a.metrics.opened.WithLabelValues("control"))
		b.proxy.cut()
		await.Within(t, time.Minute, "a new connection", func() bool {
			a.Send(heartbeat(1, 2, round))
			return a.counted(a.metrics.opened.WithLabelValues("control")) > opened
		})
	}
	if len(a.gone) > 0 {
		t.Fatalf("server %d is said to be gone", <-a.gone)
	}
	b.proxy.close()
	if got := next(t, "word that the server is gone", a.gone); got != 2 {
		t.Errorf("server %d is gone", got)
	}
}

// When the leader's process ends, another one leads well before an election timeout
// of silence; when its connections are cut, it goes on to lead.
func TestLeaderIsGone(t *testing.T) {
	g := newGroup(t, func(g *group) { g.election = time.Second })
	var took []time.Duration
	// On a busy machine the quickest of some has to be quicker than a wait for the
	// silence of the dead.
	quick := func() bool { return scale.Factor() >= 1 || len(took) > 0 && slices.Min(took) < g.election }
	slow, quickly := 0, 0
	for try := 1; try <= scale.N(30) || !quick() && try <= 10; try++ {
		leader := g.leader()
		g.put(leader, "a", "1")
		term := leader.State().Term
		cut := time.Now()
		for _, w := range g.wires {
			w.proxy.cut()
		}
		g.put(leader, "a", "2")
		deposed := func() bool { now := leader.State(); return !now.Leads() || now.Term != term }
		id := leader.ID()
		for _, h := range g.hosts {
			await.Within(t, time.Minute, "connections", func() bool {
				return deposed() || h.State().Leader == id && g.get(h, "a") == "2"
			})
		}
		if deposed() {
			// It may be silent for an election timeout where connections are made slowly, or
			// have been for most of one before.
			since := time.Since(cut)
			if slow++; since < g.election/2 {
				quickly++
			}
			if slow > 10 || quickly > 2 {
				t.Fatalf("cut off for a moment, %v ago, the leader of term %d is %+v", since, term, leader.State())
			}
			try--
			continue
		}
		began := time.Now()
		g.close(id)
		g.leader()
		took = append(took, time.Since(began))
		g.open(id)
	}
	slices.Sort(took)
	t.Logf("%v", took)
	if median := took[len(took)/2]; median > scale.Bound(300*time.Millisecond, time.Minute) || !quick() {
		t.Errorf("%v", took)
	}
}
