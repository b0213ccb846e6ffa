package swim

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// maxLeap is how far an epoch or an incarnation may run ahead of what we know.
// Honest ones rise by one; without the bound one forged claim near the end of
// the number space would silence a member for good.
const maxLeap = 1 << 20

// maxRecordLeap is the same for the number of a state record, which rises with
// every change of an instance and may do so unheard behind a partition.
const maxRecordLeap = 1 << 32

// plausible reports whether the step from one value of a member to another
// can have come about honestly.
func plausible(from, to model.Value) bool {
	base := uint64(0)
	if to.Epoch == from.Epoch {
		base = from.Incarnation
	}
	return to.Epoch <= from.Epoch+maxLeap && to.Incarnation <= base+maxLeap
}

// claim merges what somebody says of a member.
func (n *Node) claim(c *wire.Message, from netip.AddrPort) {
	if c.Subject == n.self.id {
		n.heardOfSelf(c, from)
		return
	}
	m := n.byID[c.Subject]
	if m == nil {
		n.insert(c, from)
		return
	}
	known := m.metaEpoch
	if !plausible(m.value, c.Value) {
		n.counters.Implausible++
		return
	}
	told := len(n.ready.Events)
	moved := n.adopt(m, c)
	held := n.held(m)
	n.hearHold(m, c)
	// A hold in force ranks above the accusations of its word.
	covered := m.hold.covers(m.value, n.now)
	switch order := c.Value.Compare(m.value); {
	case covered && accuses(m.value.State):
		n.raise(m, model.Value{Epoch: m.value.Epoch, Incarnation: m.value.Incarnation}, wire.Accusers{}, from)
	case covered && accuses(c.Value.State) && c.Value.CompareWord(m.value) <= 0:
		n.tell(from, m)
	case order > 0:
		n.raise(m, c.Value, c.Accusers, from)
	case order == 0 && m.value.State == model.StateSuspect:
		n.confirm(m, c.Accusers)
	case order < 0:
		n.stale(m, c.Value.State, from)
	}
	switch {
	case m.metaEpoch == known || !m.value.State.Live():
	case moved:
		if len(n.ready.Events) == told {
			n.emit(Event{Kind: EventUpdated, From: from}, m, m.value)
		}
		n.challenge(m)
	default:
		n.namesakes(m)
	}
	if !held && n.held(m) {
		n.spread(m, classClaim)
		n.emit(Event{Kind: EventHeld, From: from}, m, m.value)
	}
}

// insert adds a member heard of for the first time. Of strangers only live
// ones are learned, or tombstones would travel for ever.
func (n *Node) insert(c *wire.Message, from netip.AddrPort) {
	if !c.Value.State.Live() || !c.HasMeta || !reachable(c.Addr) || len(c.Name) == 0 {
		return
	}
	if len(n.live.list) >= n.cfg.MembersMax {
		n.counters.MembersRefused++
		return
	}
	m := &member{
		id: c.Subject, value: c.Value, since: n.now,
		name: string(c.Name), addr: c.Addr, metaEpoch: c.Value.Epoch,
	}
	n.byID[m.id] = m
	n.enlist(m)
	if m.value.State == model.StateSuspect {
		n.suspect(m, c.Accusers)
	}
	if !n.quiet {
		n.spread(m, classClaim)
	}
	n.emit(Event{Kind: EventJoined, From: from}, m, model.Value{})
	if n.hearHold(m, c); n.held(m) {
		n.emit(Event{Kind: EventHeld, From: from}, m, m.value)
	}
	n.challenge(m)
}

// adopt takes over the identity of a newer epoch and reports whether it did.
func (n *Node) adopt(m *member, c *wire.Message) bool {
	if !c.HasMeta || c.Value.Epoch <= m.metaEpoch || !reachable(c.Addr) || len(c.Name) == 0 {
		return false
	}
	m.metaEpoch = c.Value.Epoch
	changed := m.name != string(c.Name) || m.addr != c.Addr
	if m.addr != c.Addr {
		m.rtt = rtt{}
	}
	m.name, m.addr = string(c.Name), c.Addr
	n.spread(m, classClaim)
	return changed
}

// raise gives m a greater value, or takes an accusation of its word back, with
// all that follows.
func (n *Node) raise(m *member, v model.Value, accusers wire.Accusers, from netip.AddrPort) {
	was := m.value
	m.value = v
	m.accusers = wire.Accusers{}
	if was.State != v.State {
		m.since = n.now
	}
	if v.State == model.StateSuspect {
		n.suspect(m, accusers)
	} else if v.State == model.StateDead {
		m.accusers = accusers
	}
	n.move(m, was.State.Live(), v.State.Live())
	n.spread(m, classClaim)
	kind := transition(was, v)
	if kind != 0 {
		n.emit(Event{Kind: kind, From: from}, m, was)
	}
	if kind == EventRevived {
		n.namesakes(m)
	}
}

// move keeps m in the rotation that its value calls for.
func (n *Node) move(m *member, wasLive, isLive bool) {
	switch {
	case wasLive && !isLive:
		n.live.remove(m)
		n.entomb(m)
		n.queues[classRecord].remove(&m.rumours[classRecord])
		if len(n.live.list) == 0 {
			n.hush()
		}
		n.probes = slices.DeleteFunc(n.probes, func(p *probe) bool { return p.target == m })
	case !wasLive && isLive:
		n.graves.remove(m)
		n.enlist(m)
	}
}

// enlist makes m one of the live. Once a node is no longer alone it exchanges
// tables soon and once more: when many start at a time each misses a rumour or
// two, and would else find out half an interval later.
func (n *Node) enlist(m *member) {
	if len(n.live.list) == 0 {
		n.nextExchange = n.now.Add(n.cfg.ExchangeInterval/15 + n.jitter(n.cfg.ExchangeInterval/10))
	}
	n.live.add(m, n.rng)
	n.wake()
}

// transition names the event of a rise from one value to another; 0 if there
// is nothing that a reader would care about.
func transition(was, is model.Value) EventKind {
	switch {
	case !was.State.Live() && is.State.Live():
		return EventRevived
	case !was.State.Live():
		return 0 // still gone
	case is.State == model.StateDead:
		return EventDied
	case is.State == model.StateLeft:
		return EventLeft
	case is.State == model.StateSuspect:
		return EventSuspected
	case was.State == model.StateSuspect:
		return EventRefuted
	case is.Epoch > was.Epoch:
		return EventUpdated
	}
	return 0
}

// stale reacts to a claim about m that m's value overrides. A departure is
// final and is answered with itself. A death is not passed on to somebody who
// may know better: m itself is asked, with the accusation, and refutes it or
// does not answer.
func (n *Node) stale(m *member, said model.State, from netip.AddrPort) {
	switch {
	case !said.Live():
	case m.value.State == model.StateLeft:
		n.tell(from, m)
	case m.value.State == model.StateDead:
		n.ask(m)
	}
}

// recordOf merges a state record.
func (n *Node) recordOf(c *wire.Message, from netip.AddrPort) {
	m := n.byID[c.Subject]
	if m == nil || !m.value.State.Live() {
		return
	}
	r := Record{Epoch: c.Epoch, Seq: c.RecordSeq}
	if !r.Newer(m.record) {
		return
	}
	if old := m.record; r.Epoch > m.value.Epoch+maxLeap || old != nil && r.Epoch == old.Epoch && r.Seq > old.Seq+maxRecordLeap {
		n.counters.Implausible++
		return
	}
	r.Payload = slices.Clone(c.Payload)
	m.record = &r
	n.spread(m, classRecord)
	n.emit(Event{Kind: EventRecord, From: from}, m, m.value)
}
