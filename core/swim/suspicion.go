package swim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// suspect starts the clock of a suspicion that m's value has just begun.
func (n *Node) suspect(m *member, accusers wire.Accusers) {
	m.accusers = accusers
	m.suspectedAt = n.now
	n.setDeadline(m)
}

// accuse is this node's own verdict: m did not answer it, nor those helpers.
func (n *Node) accuse(m *member, accusers wire.Accusers) {
	if m.value.State == model.StateSuspect {
		n.confirm(m, accusers)
		return
	}
	v := m.value
	v.State = model.StateSuspect
	n.raise(m, v, accusers, netip.AddrPort{})
}

// confirm adds accusers to a suspicion. Each new one shortens it, and is news
// to spread.
func (n *Node) confirm(m *member, accusers wire.Accusers) {
	grew := false
	for _, id := range accusers.List() {
		grew = m.accusers.Add(id) || grew
	}
	if grew {
		n.setDeadline(m)
		n.spread(m, classClaim)
	}
}

// setDeadline fits the end of m's suspicion to its accusers.
func (n *Node) setDeadline(m *member) {
	live := n.liveCount()
	k := min(n.cfg.Confirmations, max(0, live-2)) // all but m and the first accuser
	m.deadline = m.suspectedAt.Add(n.cfg.suspicionWait(max(0, m.accusers.Len()-1), k, live))
	if n.nextVerdict.IsZero() || m.deadline.Before(n.nextVerdict) {
		n.nextVerdict = m.deadline
	}
}

// tickSuspicions declares dead whom nobody and nothing vouched for in time.
func (n *Node) tickSuspicions() {
	if n.nextVerdict.IsZero() || n.now.Before(n.nextVerdict) {
		return
	}
	n.nextVerdict = time.Time{}
	for _, m := range slices.Clone(n.live.list) {
		switch {
		case m.value.State != model.StateSuspect:
		case !n.now.Before(m.deadline):
			n.bury(m, "")
		case n.nextVerdict.IsZero() || m.deadline.Before(n.nextVerdict):
			n.nextVerdict = m.deadline
		}
	}
}

// bury declares m dead at the value that is stored of it.
func (n *Node) bury(m *member, why string) {
	was := m.value
	v := was
	v.State = model.StateDead
	accusers := m.accusers
	accusers.Add(n.self.id)
	m.value, m.accusers, m.since = v, accusers, n.now
	n.move(m, true, false)
	n.spread(m, classClaim)
	n.emit(Event{Kind: EventDied, Detail: why}, m, was)
}
