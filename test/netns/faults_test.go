package netns

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestCutStopsOneDirection(t *testing.T) {
	topo := New(t, Options{Nodes: 3})
	s := sockets(t, topo)
	a, b, c := topo.Node(0).Addr(), topo.Node(1).Addr(), topo.Node(2).Addr()
	for round := range 2 { // saying it twice changes nothing, healing ends both
		topo.Cut(topo.Node(0), topo.Node(1))
		topo.Cut(topo.Node(0), topo.Node(1))
		s[0].refuse(t, topo, s[1], b, fmt.Sprintf("cut %d", round))
		s[1].expect(t, s[0], a, fmt.Sprintf("way back %d", round))
		s[0].expect(t, s[2], c, fmt.Sprintf("third %d", round))
		topo.Heal()
		topo.Heal()
		s[0].expect(t, s[1], b, fmt.Sprintf("healed %d", round))
	}
}

func TestPartitionStopsBothDirections(t *testing.T) {
	topo := New(t, Options{Nodes: 4})
	s := sockets(t, topo)
	addr := func(i int) netip.Addr { return topo.Node(i).Addr() }
	topo.Partition(topo.Nodes()[:2], topo.Nodes()[2:3])
	for i := range 2 {
		s[i].refuse(t, topo, s[2], addr(2), "over")
		s[2].refuse(t, topo, s[i], addr(i), "back")
	}
	s[0].expect(t, s[1], addr(1), "within the group")
	for i := range 3 { // the last node is in no group
		s[i].expect(t, s[3], addr(3), "outside")
		s[3].expect(t, s[i], addr(i), "from outside")
	}
	topo.Isolate(topo.Node(3))
	s[3].refuse(t, topo, s[0], addr(0), "isolated")
	topo.Heal()
	for i := range s {
		for j := range s {
			s[i].expect(t, s[j], addr(j), fmt.Sprintf("healed %d %d", i, j))
		}
	}
}

func TestPartitionIsIPv6Too(t *testing.T) {
	topo := New(t, Options{Nodes: 2})
	a, b := topo.Node(0), topo.Node(1)
	if !a.Addr6().IsValid() {
		t.Skip("netns: skipped: no IPv6 in this kernel")
	}
	sa, sb := open(t, a, a.Addr6()), open(t, b, b.Addr6())
	topo.Cut(a, b)
	sa.refuse(t, topo, sb, b.Addr6(), "cut")
	sb.expect(t, sa, a.Addr6(), "back")
}

func TestLossIsAboutRight(t *testing.T) {
	topo := New(t, Options{Nodes: 2})
	s := sockets(t, topo)
	b := topo.Node(1).Addr()
	s[0].expect(t, s[1], b, "warm")
	const count, percent = 4000, 25.0
	// Five standard deviations: a false alarm in two million runs.
	const slack = 5 * 27.4 // sqrt(count × 0.25 × 0.75)
	topo.Loss(percent)
	arrived := 0
	for i := range count {
		s[0].send(t, b, fmt.Sprint(i))
		if i%100 == 99 { // before the receive buffer of the socket is full
			Eventually(t, patient, func() bool {
				for {
					select {
					case <-s[1].heard:
						arrived++
					default:
						_, lost := topo.Dropped()
						return arrived+int(lost) > i
					}
				}
			}, "%d packets heard or lost", i+1)
		}
	}
	if lost := count - arrived; float64(lost) < count*percent/100-slack || float64(lost) > count*percent/100+slack {
		t.Errorf("lost %d of %d packets, want about %v %%", lost, count, percent)
	}

	topo.Loss(0)
	_, before := topo.Dropped() // the kernel's own packets are lost, too, until then
	for i := range 200 {
		s[0].expect(t, s[1], b, fmt.Sprintf("none %d", i))
	}
	if _, after := topo.Dropped(); after != before {
		t.Errorf("lost %d packets at 0 %% loss", after-before)
	}

	topo.LossBetween(topo.Node(0), topo.Node(1), 100)
	s[1].expect(t, s[0], topo.Node(0).Addr(), "the other direction")
	s[0].send(t, b, "none arrives")
	Eventually(t, patient, func() bool { _, lost := topo.Dropped(); return lost > before }, "a packet lost at 100 %%")
}

func TestLinkDown(t *testing.T) {
	topo := New(t, Options{Nodes: 3})
	s := sockets(t, topo)
	a, b := topo.Node(0), topo.Node(1)
	for round := range 2 {
		s[0].expect(t, s[1], b.Addr(), fmt.Sprintf("up %d", round))
		b.LinkDown()
		b.LinkDown()
		before := b.Traffic("eth0")
		s[0].send(t, b.Addr(), "lost")
		s[0].expect(t, s[2], topo.Node(2).Addr(), fmt.Sprintf("others %d", round))
		if got := b.Traffic("eth0").Sub(before).RxPackets; got != 0 {
			t.Errorf("%d packets came in while the link was down", got)
		}
		b.LinkUp()
		b.LinkUp()
		s[1].expect(t, s[0], a.Addr(), fmt.Sprintf("up again %d", round))
	}
}
