package swim

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// maxTells bounds the packets that answer stale claims in one gossip interval,
// so that nobody makes this node shout.
const maxTells = 32

// begin starts a packet of this node, in used memory if there is some.
func (n *Node) begin() []byte {
	var buf []byte
	if last := len(n.spare) - 1; last >= 0 {
		buf, n.spare = n.spare[last], n.spare[:last]
	} else {
		buf = make([]byte, 0, n.cfg.MTU)
	}
	return n.codec.Begin(buf, n.self.id, n.self.value.Epoch, n.self.value.Incarnation)
}

// send ends a packet and hands it out.
//
// Invariant: no packet exceeds the MTU.
func (n *Node) send(to netip.AddrPort, buf []byte) {
	n.ready.Packets = append(n.ready.Packets, Packet{To: to, Data: n.codec.Seal(buf)})
}

// room is how long a packet may be before it is sealed.
func (n *Node) room() int { return n.cfg.MTU - n.codec.Overhead() }

// appendClaim adds what we believe of m, so that m, reading it, can refute.
func (n *Node) appendClaim(buf []byte, m *member, identity bool) []byte {
	c := m.claimed(identity, n.now)
	return wire.AppendClaim(buf, &c)
}

// tell sends one claim about m to a member, beside the rumours' turn.
func (n *Node) tell(to netip.AddrPort, m *member) {
	if reachable(to) && n.mayTell() {
		n.send(to, n.appendClaim(n.begin(), m, isAlive(m)))
	}
}

// mayTell counts one more packet that answers a stale claim, and reports
// whether the bound allows it.
func (n *Node) mayTell() bool {
	if n.now.Sub(n.tellAt) >= n.cfg.GossipInterval {
		n.tellAt, n.tells = n.now, 0
	}
	if n.tells == maxTells {
		n.counters.TellsDropped++
		return false
	}
	n.tells++
	return true
}

// receive acts on an opened packet. What its header says of the sender comes
// first, so that its messages find the newest value.
func (n *Node) receive(from netip.AddrPort, p *wire.Packet) {
	sender := n.hear(from, p)
	unaware := sender != nil && (!isAlive(sender) || word(p).CompareWord(sender.value) < 0)
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) && !n.silent {
		switch m.Type {
		case wire.Ping:
			n.answer(from, sender, m.Seq, unaware)
		case wire.Ack:
			n.acked(from, p.Sender, m.Seq)
		case wire.PingReq:
			n.help(from, sender, &m)
		case wire.Nack:
			n.nacked(p.Sender, &m)
		case wire.Claim:
			n.claim(&m, from)
		case wire.RecordOf:
			n.recordOf(&m, from)
		}
	}
}

// hear takes the sender's own word from the header. It returns the sender's
// row, nil for a stranger and for this node itself.
func (n *Node) hear(from netip.AddrPort, p *wire.Packet) *member {
	word := word(p)
	if p.Sender == n.self.id {
		n.heardOfSelf(&wire.Message{Value: word}, from)
		return nil
	}
	m := n.byID[p.Sender]
	if m == nil {
		n.wantExchange(from) // somebody that our table lacks
		return nil
	}
	if word.CompareWord(m.value) > 0 && plausible(m.value, word) {
		n.raise(m, word, wire.Accusers{}, from)
		if m.metaEpoch != m.value.Epoch {
			n.wantExchange(from)
		}
	}
	return m
}

// word is the sender's own, as its packet's header says.
func word(p *wire.Packet) model.Value {
	return model.Value{Epoch: p.Epoch, Incarnation: p.Incarnation}
}

// answer acks a ping. Members get news with it. A sender unaware of what is
// held of it, an accusation or a newer word than its own, is told, so that it
// can refute, or find that its data directory is a copy; so is one that calls
// from elsewhere than the address held of it, since two copies may have spoken
// in one epoch. A stranger gets no more bytes than it sent.
func (n *Node) answer(from netip.AddrPort, sender *member, seq uint32, unaware bool) {
	buf := wire.AppendAck(n.begin(), seq)
	if sender != nil {
		if unaware && sender.addr == from || sender.addr != from && n.mayTell() {
			buf = n.appendClaim(buf, sender, isAlive(sender))
		}
		if n.departed() { // whoever still asks missed the good-bye
			buf = n.appendClaim(buf, n.self, false)
		}
		if sender.addr == from {
			buf = n.piggyback(buf, n.room())
		}
	}
	n.send(from, buf)
}
