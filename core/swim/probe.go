package swim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// probe is one question "are you there?" under way. Its ping is numbered seq,
// an even number, its ping-req seq+1.
//
//	direct ── ack ──► done (removed)
//	  │ wait over
//	indirect ── ack by target, helper or TCP ──► done
//	  │ period over, or TCP refused
//	accused: kept to the end of the period, for the nacks still to come
type probe struct {
	seq     uint32
	target  *member
	word    model.Value // the target's value at the start
	purpose purpose
	sentAt  time.Time
	askAt   time.Time // when helpers are asked
	endsAt  time.Time
	asked   bool
	accused bool
	nackers wire.Accusers // helpers that tried and got no answer
	helpers []model.NodeID
	token   uint64 // of the TCP ping
}

// purpose says what an answer, or none, means.
type purpose uint8

const (
	purposeDetect   purpose = 0 // the protocol's probe: no answer makes a suspect
	purposeRevive   purpose = 1 // of a tombstone: an answer shows a healed partition
	purposeIdentify purpose = 2 // of a clash: who answers at this address
)

// due is when the probe wants a tick.
func (p *probe) due() time.Time {
	if p.purpose == purposeDetect && !p.asked {
		return p.askAt
	}
	return p.endsAt
}

// tickProbes starts the probe that is due and moves those under way.
func (n *Node) tickProbes() {
	for _, p := range slices.Clone(n.probes) {
		switch {
		case !n.now.Before(p.endsAt):
			n.conclude(p)
		case !n.now.Before(p.due()):
			n.askHelpers(p)
		}
	}
	if n.now.Before(n.nextProbe) {
		return
	}
	// The beat is kept whatever became of the probes before.
	n.nextProbe = n.nextProbe.Add(n.cfg.ProbePeriod)
	if n.nextProbe.Before(n.now) {
		n.nextProbe = n.now.Add(n.cfg.ProbePeriod)
	}
	if m := n.live.pick(n.rng, isAny); m != nil {
		n.probe(m, purposeDetect)
	}
}

// probe pings m. A suspect or dead member finds the accusation in the packet,
// before the ping, so that its ack already carries the refutation.
func (n *Node) probe(m *member, why purpose) {
	p := &probe{
		seq: n.rng.Uint32() &^ 1, target: m, word: m.value, purpose: why,
		sentAt: n.now, endsAt: n.now.Add(n.cfg.ProbePeriod),
		askAt: n.now.Add(m.rtt.wait(n.cfg.ProbeTimeoutFloor, n.cfg.ProbeTimeout)),
	}
	n.probes = append(n.probes, p)
	n.counters.Probes++
	n.ping(p.seq, m)
}

func (n *Node) ping(seq uint32, m *member) {
	buf := n.begin()
	if !isAlive(m) && m != n.self {
		buf = n.appendClaim(buf, m, false)
	}
	buf = wire.AppendPing(buf, seq, m.id)
	n.send(m.addr, n.piggyback(buf, n.room()))
}

// askHelpers is the second half of a probe (SWIM §3.1): k distinct members
// ping in our stead, and TCP goes the way that only UDP may have lost.
func (n *Node) askHelpers(p *probe) {
	p.asked = true
	n.counters.IndirectProbes++
	left := p.endsAt.Sub(n.now)
	helpers := n.live.sample(n.cfg.Helpers, n.rng, func(m *member) bool { return m != p.target && n.answers(m) })
	for _, h := range helpers {
		p.helpers = append(p.helpers, h.id)
		buf := wire.AppendPingReq(n.begin(), p.seq+1, p.target.id, uint32(left.Milliseconds()))
		n.send(h.addr, n.piggyback(buf, n.room()))
	}
	frame := wire.AppendPing(n.frame(), p.seq, p.target.id)
	if !isAlive(p.target) {
		frame = n.appendClaim(frame, p.target, false)
	}
	p.token = n.want(StreamPing, p.target.addr, [][]byte{n.codec.Seal(frame)}, left)
}

// acked takes an ack: from the target itself, from whoever has its address
// now, or, numbered as our ping-req, from a helper.
func (n *Node) acked(from netip.AddrPort, sender model.NodeID, seq uint32) {
	if i := n.relayOf(seq); i >= 0 {
		n.relayed(i, sender)
		return
	}
	if n.ackedHold(sender, seq) {
		return
	}
	i := slices.IndexFunc(n.probes, func(p *probe) bool { return p.seq == seq&^1 })
	if i < 0 {
		n.counters.LateAcks++
		return
	}
	p := n.probes[i]
	direct := seq == p.seq
	switch {
	case direct && sender != p.target.id:
		if from == p.target.addr {
			n.replaced(p, sender)
		}
		return
	case !direct && !slices.Contains(p.helpers, sender):
		return
	}
	if direct && !p.asked && p.purpose == purposeDetect {
		p.target.rtt.sample(n.now.Sub(p.sentAt))
	}
	n.probes = slices.Delete(n.probes, i, i+1)
	n.answered(p)
}

// answered ends a probe that found its target.
func (n *Node) answered(p *probe) {
	switch p.purpose {
	case purposeRevive:
		n.wantExchange(p.target.addr) // the other side of a partition, or what is left of it
	default:
		if len(n.conflicts) > 0 {
			n.identified(p.target)
		}
	}
}

// nacked notes a helper that tried in vain: its own failed ping makes it a
// witness as good as we are.
func (n *Node) nacked(sender model.NodeID, m *wire.Message) {
	i := slices.IndexFunc(n.probes, func(p *probe) bool { return p.seq == m.Seq&^1 })
	if i < 0 || m.Reason != wire.NackNoAnswer {
		return
	}
	p := n.probes[i]
	if !slices.Contains(p.helpers, sender) {
		return
	}
	p.nackers.Add(sender)
	if p.accused && p.target.value.State == model.StateSuspect && p.target.value.CompareWord(p.word) == 0 {
		n.confirm(p.target, p.nackers)
	}
}

// conclude ends a probe at the end of its period.
func (n *Node) conclude(p *probe) {
	n.probes = slices.DeleteFunc(n.probes, func(o *probe) bool { return o == p })
	if p.purpose == purposeDetect && !p.accused {
		n.fail(p)
	}
}

// fail turns a probe without answer into an accusation, unless the target has
// spoken anew in the meantime, or announced that it would not answer.
func (n *Node) fail(p *probe) {
	p.accused = true
	n.counters.FailedProbes++
	if !p.target.value.State.Live() || p.target.value.CompareWord(p.word) != 0 || n.held(p.target) {
		return
	}
	var accusers wire.Accusers
	accusers.Add(n.self.id)
	for _, id := range p.nackers.List() {
		accusers.Add(id)
	}
	n.accuse(p.target, accusers)
}

// refused ends the wait of a probe whose TCP ping the host turned away: there
// is a host, and nobody listens at the address.
func (n *Node) refused(token uint64) {
	for _, p := range n.probes {
		if p.token == token && p.purpose == purposeDetect && !p.accused {
			n.fail(p)
			return
		}
	}
}
