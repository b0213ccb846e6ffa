package swim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Three raises of our epoch because somebody else used a higher one, within a
// minute, are no restored backup: another node runs with our id.
const (
	cloneJumps  = 3
	cloneWindow = time.Minute
)

// seniorAfter is how many periods a node ran before its epoch was first heard
// elsewhere, to be taken for the original of two copies. It may jump once more:
// the copy starts at the higher epoch, so the original jumps first, and would
// always be the one to fall silent.
const seniorAfter = 5

// heardOfSelf reacts to what others say of this node.
//
//	their word is     state           then
//	above ours        any             we forgot an epoch: take the next one
//	ours              alive           nothing, unless another identity speaks it
//	ours              suspect, dead   refute: one incarnation up
//	ours              alive, held     the same, unless we announced that hold
//	ours              left            we never said so: as above ours
//	below ours        not alive       they miss our newest: tell them
func (n *Node) heardOfSelf(c *wire.Message, from netip.AddrPort) {
	if n.departed() || !plausible(n.self.value, c.Value) {
		return
	}
	switch order := c.Value.CompareWord(n.self.value); {
	case order > 0, order == 0 && c.Value.State == model.StateLeft, order == 0 && n.otherSelf(c):
		n.jump(c.Value.Epoch, from)
	case order == 0 && (c.Value.State != model.StateAlive || n.foreignHold(c)):
		n.refute(c.Value, from)
	case order < 0 && c.Value.State != model.StateAlive:
		n.tell(from, n.self)
	}
}

// otherSelf reports whether a claim under our id and epoch comes from a node
// with another name or address.
func (n *Node) otherSelf(c *wire.Message) bool {
	return c.HasMeta && (c.Addr != n.self.addr || string(c.Name) != n.self.name)
}

// refute answers an accusation at our own word (SWIM §4.2): only we may raise
// our incarnation, and the accuser hears of it first.
func (n *Node) refute(accusation model.Value, from netip.AddrPort) {
	held := n.held(n.self)
	n.self.value.Incarnation++
	n.spread(n.self, classClaim)
	if held { // it goes on under the new word
		n.self.hold.incarnation++
		n.announce()
	}
	n.tell(from, n.self)
	n.emit(Event{Kind: EventRefuted, From: from}, n.self, accusation)
}

// jump takes the epoch after heard, which somebody spoke under our id.
func (n *Node) jump(heard uint64, from netip.AddrPort) {
	was := n.self.value
	recent := n.jumps[:0]
	for _, at := range n.jumps {
		if n.now.Sub(at) < cloneWindow {
			recent = append(recent, at)
		}
	}
	if len(recent) == 0 {
		n.senior = n.now.Sub(n.startedAt) >= seniorAfter*n.cfg.ProbePeriod
	}
	limit := cloneJumps
	if n.senior {
		limit++
	}
	n.jumps = append(recent, n.now)
	if len(n.jumps) >= limit || heard >= wire.MaxWord {
		n.fallSilent(Event{Kind: EventCloned, From: from, Detail: fmt.Sprintf(
			"another node runs with this node's id %v: its data directory is a copy; stop the copy, and give it a new data directory: with only node.json gone it would still be the same server of the store", n.self.id)})
		return
	}
	n.begins(heard + 1)
	n.emit(Event{Kind: EventEpochJumped, From: from, Detail: fmt.Sprintf(
		"own id was heard at epoch %d: this data directory is older than the last run, or in use twice", heard)}, n.self, was)
}

// begins starts a new epoch of this node. It is persisted before anything is
// sent under it.
func (n *Node) begins(epoch uint64) {
	n.self.value = model.Value{Epoch: epoch}
	n.self.metaEpoch = epoch
	n.self.since = n.now
	n.ready.PersistEpoch = epoch
	n.spread(n.self, classClaim)
	if n.self.record != nil {
		n.setRecord(n.self.record.Payload)
	}
}

// fallSilent ends this node's part in the protocol: nothing leaves it any more.
func (n *Node) fallSilent(e Event) {
	n.silent = true
	n.ready = Ready{Events: n.ready.Events}
	n.probes, n.relays = nil, nil
	clear(n.streams) // those wanted just now are never opened
	n.emit(e, n.self, n.self.value)
}

// Leave says good-bye. The node goes on answering and spreading the news, but
// probes nobody; LeaveDone tells when the caller may stop.
func (n *Node) Leave(now time.Time) {
	n.advance(now)
	if n.silent || n.departed() {
		return
	}
	was := n.self.value
	n.self.value.Incarnation++
	n.self.value.State = model.StateLeft
	n.self.since, n.leftAt = n.now, n.now
	n.probes, n.announced.untold = n.probes[:0], nil
	n.spread(n.self, classClaim)
	n.emit(Event{Kind: EventLeft}, n.self, was)
	// The few that fit are told at once, so that a small cluster never sees a
	// departed member unanswering; rumour reaches the rest.
	for _, m := range n.live.sample(maxTells, n.rng, isAny) {
		n.send(m.addr, n.appendClaim(n.begin(), n.self, false))
	}
}

// LeaveDone reports whether the good-bye has spread as far as this node takes
// it: the rumour was sent out, and the receivers had time to pass it on.
func (n *Node) LeaveDone() bool {
	switch {
	case n.silent || len(n.live.list) == 0 && len(n.streams) == 0:
		return true
	case !n.departed() || n.now.Before(n.leaveEnd()):
		return false // an exchange under way may still show to whom we are known
	}
	return len(n.live.list) == 0 || !n.self.rumours[classClaim].queued
}

// leaveEnd is when those that heard the good-bye had time to pass it on.
func (n *Node) leaveEnd() time.Time { return n.leftAt.Add(3 * n.cfg.GossipInterval) }

// Rejoin takes a departure back, under a new epoch, and a hold, under a new
// incarnation.
func (n *Node) Rejoin(now time.Time) {
	n.advance(now)
	switch {
	case n.silent:
		return
	case n.held(n.self):
		n.self.value.Incarnation++
		n.spread(n.self, classClaim)
		return
	case !n.departed():
		return
	}
	was := n.self.value
	n.probes = n.probes[:0] // those of clashes; nobody ended them since
	n.begins(was.Epoch + 1)
	n.nextProbe, n.nextContact, n.nextExchange = n.now, n.now, n.now
	n.emit(Event{Kind: EventRevived}, n.self, was)
}
