package swim

import "time"

// reapInterval separates looks for tombstones that are old enough to forget.
const reapInterval = time.Minute

// gossipWaits reports whether there is news, and somebody to tell.
func (n *Node) gossipWaits() bool {
	return len(n.live.list) > 0 && n.queues[classClaim].count+n.queues[classRecord].count > 0
}

// tickGossip sends packets of nothing but rumours to some random members while
// there are unsent ones: the first at once after a quiet time, so that news
// does not wait for the next probe.
func (n *Node) tickGossip() {
	if !n.gossipWaits() || n.now.Before(n.nextGossip) {
		return
	}
	n.nextGossip = n.now.Add(n.cfg.GossipInterval)
	for _, m := range n.live.sample(n.cfg.GossipFanout, n.rng, isAny) {
		buf := n.begin()
		empty := len(buf)
		if buf = n.piggyback(buf, n.room()); len(buf) > empty {
			n.send(m.addr, buf)
		}
	}
}
