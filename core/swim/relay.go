package swim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// relay is a ping on behalf of another member. The asker hears ack or nack
// before its own deadline, and an ack that comes after the nack as well.
type relay struct {
	seq      uint32 // of our ping, even
	asker    netip.AddrPort
	askerSeq uint32
	target   model.NodeID
	nackAt   time.Time // zero once sent
	endsAt   time.Time
}

// nackShare of the asker's wait passes before the nack, so that it arrives in
// time (Lifeguard §IV-A).
const nackShare = 0.8

func (r *relay) due() time.Time {
	if r.nackAt.IsZero() {
		return r.endsAt
	}
	return r.nackAt
}

// help pings a member for one that asks. Only members may ask, and only
// members are pinged, at the address that we know: a forged request moves no
// packet to where it likes.
func (n *Node) help(from netip.AddrPort, sender *member, m *wire.Message) {
	if sender == nil || sender.addr != from {
		return
	}
	if m.Subject == n.self.id {
		n.answer(from, sender, m.Seq, false)
		return
	}
	target := n.byID[m.Subject]
	if target == nil || !target.value.State.Live() {
		n.nack(from, m.Seq, wire.NackUnknown)
		return
	}
	if len(n.relays) >= n.cfg.RelayMax {
		n.counters.RelaysRefused++
		return
	}
	wait := time.Duration(m.WaitMillis) * time.Millisecond
	r := relay{
		seq: n.rng.Uint32() &^ 1, asker: from, askerSeq: m.Seq, target: m.Subject,
		nackAt: n.now.Add(time.Duration(nackShare * float64(wait))), endsAt: n.now.Add(wait),
	}
	n.relays = append(n.relays, r)
	n.ping(r.seq, target)
}

func (n *Node) nack(to netip.AddrPort, seq uint32, why wire.NackReason) {
	n.send(to, wire.AppendNack(n.begin(), seq, why))
}

// relayOf returns the index of the relay whose ping is numbered seq, or -1.
func (n *Node) relayOf(seq uint32) int {
	return slices.IndexFunc(n.relays, func(r relay) bool { return r.seq == seq })
}

// relayed passes an ack of the target on.
func (n *Node) relayed(i int, sender model.NodeID) {
	r := n.relays[i]
	if sender != r.target {
		return
	}
	n.relays = slices.Delete(n.relays, i, i+1)
	n.send(r.asker, n.piggyback(wire.AppendAck(n.begin(), r.askerSeq), n.room()))
}

// tickRelays sends the nacks that are due and forgets what is over.
func (n *Node) tickRelays() {
	for i := range n.relays {
		if r := &n.relays[i]; !r.nackAt.IsZero() && !n.now.Before(r.nackAt) {
			r.nackAt = time.Time{}
			n.nack(r.asker, r.askerSeq, wire.NackNoAnswer)
		}
	}
	n.relays = slices.DeleteFunc(n.relays, func(r relay) bool { return !n.now.Before(r.endsAt) })
}
