package swim

import "slices"

// tickGraves pings one dead member after the other, slowly, each time with the
// accusation: when a partition heals, the first that hears refutes, and both
// sides find each other without an operator.
func (n *Node) tickGraves() {
	if n.now.Before(n.nextGrave) {
		return
	}
	n.nextGrave = n.now.Add(n.cfg.TombstoneProbeInterval)
	if m := n.graves.pick(n.rng, isDead); m != nil {
		n.probe(m, purposeRevive)
	}
}

// ask pings a dead member that somebody vouched for, at most once per gossip
// interval.
func (n *Node) ask(m *member) {
	if n.now.Before(m.retryAt) || n.departed() || !n.mayTell() {
		return
	}
	m.retryAt = n.now.Add(n.cfg.GossipInterval)
	n.probe(m, purposeRevive)
}

// tickReap forgets tombstones that are too old.
func (n *Node) tickReap() {
	if n.now.Before(n.nextReap) {
		return
	}
	n.nextReap = n.now.Add(reapInterval)
	for _, m := range slices.Clone(n.graves.list) {
		if n.now.Sub(m.since) >= n.cfg.TombstoneTTL {
			n.reap(m)
		}
	}
}

// entomb adds m to the tombstones, and makes room for it.
//
// Invariant: they number at most max(TombstonesMin, 4·live); the oldest go
// first.
func (n *Node) entomb(m *member) {
	limit := max(n.cfg.TombstonesMin, 4*n.liveCount())
	for len(n.graves.list) >= limit {
		n.reap(slices.MinFunc(n.graves.list, func(a, b *member) int { return a.since.Compare(b.since) }))
	}
	n.graves.add(m, n.rng)
}

func (n *Node) reap(m *member) {
	n.graves.remove(m)
	n.forget(m)
	delete(n.byID, m.id)
	n.probes = slices.DeleteFunc(n.probes, func(p *probe) bool { return p.target == m })
	n.emit(Event{Kind: EventReaped}, m, m.value)
}
