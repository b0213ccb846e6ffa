package swim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// maxConflicts bounds the clashes that are looked into at a time.
const maxConflicts = 64

// conflict is a clash of two live members over a name or an address. A member
// that was installed anew leaves its old id behind for a moment, so both are
// asked before anything is said: one that is gone answers under its new id, or
// not at all.
type conflict struct {
	kind     EventKind
	members  [2]*member
	answered [2]bool
	endsAt   time.Time
}

// challenge looks whether m's identity clashes with another live member's.
func (n *Node) challenge(m *member) {
	n.clash(n.self, m)
	for _, o := range n.live.list {
		if o != m {
			n.clash(o, m)
		}
	}
}

// namesakes looks for live members that took m's name while m was gone. Who
// answers at its address is not asked: the probe of some period shows it, and a
// member whose address leads elsewhere would come and go as fast as it refutes.
func (n *Node) namesakes(m *member) {
	if m.metaEpoch != m.value.Epoch {
		return // it may have another name by now; its claim is still to come
	}
	if n.self.name == m.name {
		n.investigate(EventNameConflict, n.self, m)
	}
	for _, o := range n.live.list {
		if o != m && o.name == m.name {
			n.investigate(EventNameConflict, o, m)
		}
	}
}

func (n *Node) clash(o, m *member) {
	if o.name == m.name {
		n.investigate(EventNameConflict, o, m)
	}
	if o.addr == m.addr {
		n.investigate(EventAddressConflict, o, m)
	}
}

func (n *Node) investigate(kind EventKind, o, m *member) {
	n.conflicts = slices.DeleteFunc(n.conflicts, func(c conflict) bool { return c.endsAt.Before(n.now) })
	pair := [2]*member{o, m}
	if len(n.conflicts) >= maxConflicts || slices.ContainsFunc(n.conflicts, func(c conflict) bool { return c.kind == kind && c.members == pair }) {
		return
	}
	c := conflict{kind: kind, members: pair, endsAt: n.now.Add(10 * n.cfg.ProbePeriod)}
	// About our own name we are sure. Our own address is asked like another's:
	// it may lead elsewhere.
	c.answered[0] = o == n.self && kind == EventNameConflict
	n.conflicts = append(n.conflicts, c)
	for i, p := range pair {
		if !c.answered[i] {
			n.probe(p, purposeIdentify)
		}
	}
}

// stands reports whether the two still clash: one of them may have gone, or
// have started again under another name or at another address.
func (c *conflict) stands() bool {
	a, b := c.members[0], c.members[1]
	if !a.value.State.Live() || !b.value.State.Live() {
		return false
	}
	if c.kind == EventNameConflict {
		return a.name == b.name
	}
	return a.addr == b.addr
}

// identified notes that m answered as itself, and reports the clashes in which
// both sides did, in time and while they clash. Those that are over keep their
// place to the end, or the bound on clashes would bound nothing.
func (n *Node) identified(m *member) {
	open := n.conflicts[:0]
	for _, c := range n.conflicts {
		if c.endsAt.Before(n.now) || !c.stands() || n.witness(&c, m) {
			open = append(open, c)
		}
	}
	n.conflicts = open
}

// witness notes m's answer in c and reports whether c is still open.
func (n *Node) witness(c *conflict, m *member) bool {
	for i := range c.members {
		c.answered[i] = c.answered[i] || c.members[i] == m
	}
	if !c.answered[0] || !c.answered[1] {
		return true
	}
	a, b := c.members[0], c.members[1]
	detail := fmt.Sprintf("the name %q is used by two live nodes, %v at %v and %v at %v; set node.name of one of them", b.name, a.id, a.addr, b.id, b.addr)
	if c.kind == EventAddressConflict {
		detail = fmt.Sprintf("the address %v is advertised by two live nodes, %v (%s) and %v (%s); set node.advertise of one of them", b.addr, a.id, a.name, b.id, b.name)
	}
	n.emit(Event{Kind: c.kind, Detail: detail}, b, b.value)
	return false
}

// replaced reacts to an answer, under another id, from the address of the
// target of a probe. The target is gone from there: dead at its stored value.
// If the target is this node itself, others reach somebody else in its place,
// and taking part would only make it flap.
func (n *Node) replaced(p *probe, by model.NodeID) {
	n.probes = slices.DeleteFunc(n.probes, func(o *probe) bool { return o == p })
	switch {
	case p.target == n.self:
		n.fallSilent(Event{Kind: EventAddressConflict, Detail: fmt.Sprintf(
			"the advertised address %v of this node leads to node %v; set node.advertise to an address of this node and start again", n.self.addr, by)})
	case p.target.value.State.Live():
		n.spendHold(p.target)
		n.bury(p.target, fmt.Sprintf("its address %v is answered by node %v", p.target.addr, by))
	}
}
