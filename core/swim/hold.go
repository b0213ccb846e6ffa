package swim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// MaxHold is how long the others wait at most for a node that announced a
// restart, whatever it announced.
const MaxHold = 30 * time.Second

// ErrHold is wrapped by every refusal of Node.Hold.
var ErrHold = errors.New("swim: no hold")

// hold is what a node knows of the restart that a member announced: that at
// this word, until then, nobody accuses it. The claim that carries it says how
// much of it is left, so that no clocks are compared and passing it on does not
// renew it.
//
// Invariant: within an epoch endsAt never rises, so an epoch has one hold, which
// ends MaxHold after it was first heard of at the latest.
type hold struct {
	epoch, incarnation uint64
	endsAt             time.Time // on this node's clock
}

// merge joins what two claims say: the newer epoch counts, and of one epoch the
// newest word and the earliest end.
//
// Invariant: merge is commutative, associative and idempotent.
func (h hold) merge(o hold) hold {
	switch {
	case o.epoch > h.epoch:
		return o
	case o.epoch < h.epoch:
		return h
	}
	h.incarnation = max(h.incarnation, o.incarnation)
	if o.endsAt.Before(h.endsAt) {
		h.endsAt = o.endsAt
	}
	return h
}

// covers reports whether the hold is in force for a member of that value.
func (h hold) covers(v model.Value, now time.Time) bool {
	return h.epoch == v.Epoch && h.incarnation == v.Incarnation && now.Before(h.endsAt)
}

// announcement is this node's own hold on its way: who did not ack it yet.
type announcement struct {
	seq    uint32 // of its pings, even
	at     time.Time
	next   time.Time // when those are pinged again
	untold []*member
}

// Hold announces that this node is about to restart and will be back within d,
// at most MaxHold. The others keep it alive for so long: a probe without answer
// starts no suspicion, and accusations by those who did not hear are answered
// with the hold. It ends when d is over, with the next epoch, or by Rejoin.
//
// One epoch has one hold, so that no node escapes detection by asking for more.
// Errors wrap ErrHold; a node that fell silent returns ErrSilent.
func (n *Node) Hold(d time.Duration, now time.Time) error {
	n.advance(now)
	v := &n.self.value
	switch {
	case n.silent:
		return ErrSilent
	case d < time.Millisecond || d > MaxHold:
		return fmt.Errorf("%w of %v: want 1ms to %v", ErrHold, d, MaxHold)
	case n.departed():
		return fmt.Errorf("%w: this node said good-bye", ErrHold)
	case n.self.hold.epoch == v.Epoch:
		return fmt.Errorf("%w: this node announced one since its start, and has one for each start", ErrHold)
	}
	was := *v
	v.Incarnation++
	n.self.hold = hold{epoch: v.Epoch, incarnation: v.Incarnation, endsAt: n.now.Add(d)}
	n.spread(n.self, classClaim)
	n.emit(Event{Kind: EventHeld}, n.self, was)
	n.announce()
	return nil
}

// HoldDone reports whether the announcement has spread as far as this node
// takes it: a small cluster acked it, in a large one the rumour was sent out
// and the receivers had time to pass it on.
func (n *Node) HoldDone() bool {
	a := &n.announced
	switch {
	case n.silent || len(n.live.list) == 0:
		return true
	case slices.ContainsFunc(a.untold, isAlive):
		return false
	case len(n.live.list) <= maxTells:
		return true
	}
	return !n.self.rumours[classClaim].queued && !n.now.Before(a.at.Add(3*n.cfg.GossipInterval))
}

// announce tells members of this node's own hold by pings that carry it, until
// they ack: whoever misses it would accuse a healthy node. Rumour reaches the
// rest.
func (n *Node) announce() {
	n.announced = announcement{seq: n.rng.Uint32() &^ 1, at: n.now, next: n.now, untold: n.live.sample(maxTells, n.rng, isAlive)}
	n.tickHold()
}

// tickHold pings those who did not ack the announcement.
func (n *Node) tickHold() {
	a := &n.announced
	if len(a.untold) == 0 || n.now.Before(a.next) {
		return
	}
	a.untold = slices.DeleteFunc(a.untold, func(m *member) bool { return !isAlive(m) })
	if !n.held(n.self) {
		a.untold = nil
	}
	a.next = n.now.Add(n.cfg.GossipInterval)
	for _, m := range a.untold {
		buf := n.appendClaim(n.begin(), n.self, true)
		n.send(m.addr, n.piggyback(wire.AppendPing(buf, a.seq, m.id), n.room()))
	}
}

// ackedHold reports whether seq numbers the announcement, and notes who read it.
func (n *Node) ackedHold(sender model.NodeID, seq uint32) bool {
	a := &n.announced
	if len(a.untold) == 0 || seq != a.seq {
		return false
	}
	a.untold = slices.DeleteFunc(a.untold, func(m *member) bool { return m.id == sender })
	return true
}

// held reports whether nobody is to accuse m now.
//
// Invariant: a member whose hold covers its value is neither suspect nor dead.
func (n *Node) held(m *member) bool { return isAlive(m) && m.hold.covers(m.value, n.now) }

// answers reports whether m can be expected to answer.
func (n *Node) answers(m *member) bool { return isAlive(m) && !n.held(m) }

// hearHold merges the hold that a claim carries. What is announced beyond
// MaxHold is not heard.
func (n *Node) hearHold(m *member, c *wire.Message) {
	if c.HoldMillis == 0 || c.Value.State != model.StateAlive {
		return
	}
	left := min(time.Duration(c.HoldMillis)*time.Millisecond, MaxHold)
	m.hold = m.hold.merge(hold{epoch: c.Value.Epoch, incarnation: c.Value.Incarnation, endsAt: n.now.Add(left)})
}

// foreignHold reports whether c says that this node announced a hold that it
// did not announce. It is refuted: only the owner can ask for one.
func (n *Node) foreignHold(c *wire.Message) bool {
	own := n.self.hold.epoch == n.self.value.Epoch && n.self.hold.incarnation == n.self.value.Incarnation
	return c.HoldMillis > 0 && !own
}

// spendHold ends m's hold on this node for good, since m is known to be gone.
func (n *Node) spendHold(m *member) {
	if m.hold.endsAt.After(n.now) {
		m.hold.endsAt = n.now
	}
}

// left is what a claim says of the hold; 0 if it is not in force.
func (h hold) left(v model.Value, now time.Time) uint32 {
	if v.State != model.StateAlive || !h.covers(v, now) {
		return 0
	}
	return uint32(h.endsAt.Sub(now).Milliseconds())
}

// accuses reports whether a claim of that state is an accusation.
func accuses(s model.State) bool { return s == model.StateSuspect || s == model.StateDead }
