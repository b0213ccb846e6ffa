package swim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/swim/wire"
)

// contactsAtOnce is how many contacts are tried in one round.
const contactsAtOnce = 3

// stream is a connection that this node asked for.
type stream struct {
	kind  StreamKind
	to    netip.AddrPort
	quiet bool // a newcomer's: what it learns is no news to the others
}

// Join sets the addresses at which this node looks for members: the join list,
// and those of the last run. While alone it tries some at each JoinRetry;
// later those that are no live member's address, ever more slowly down to
// ContactInterval, so that clusters which formed apart find each other.
func (n *Node) Join(contacts []netip.AddrPort, now time.Time) {
	n.advance(now)
	n.contacts = n.contacts[:0]
	for _, c := range contacts {
		if c = unmap(c); reachable(c) && c != n.self.addr && !slices.Contains(n.contacts, c) {
			n.contacts = append(n.contacts, c)
		}
	}
	n.contact, n.retryWait, n.nextContact = 0, n.cfg.JoinRetry, n.now
}

// ServeFrame takes one frame of a stream that a peer opened, and returns the
// frames to write back, which the caller owns; none while more of an exchange
// are to come. An error means that the stream is to be closed.
func (n *Node) ServeFrame(frame []byte, now time.Time) ([][]byte, error) {
	n.advance(now)
	if n.silent {
		return nil, ErrSilent
	}
	p, err := n.codec.Open(frame)
	if err != nil {
		return nil, err
	}
	switch p.First() {
	case wire.Ping:
		seq := n.pinged(&p)
		if n.silent {
			return nil, ErrSilent
		}
		return [][]byte{n.codec.Seal(wire.AppendAck(n.frame(), seq))}, nil
	case wire.Exchange:
		if last := n.absorb(&p); last && !n.silent {
			n.exchanged = n.exchanged || p.Sender != n.self.id
			return n.table(true), nil
		}
		return nil, nil
	}
	return nil, ErrUnexpected
}

// StreamFrame takes one frame that a peer answered on the stream of token.
func (n *Node) StreamFrame(token uint64, frame []byte, now time.Time) error {
	n.advance(now)
	if n.silent {
		return ErrSilent
	}
	p, err := n.codec.Open(frame)
	if err != nil {
		return err
	}
	s, known := n.streams[token]
	switch first := p.First(); {
	case !known:
	case s.kind == StreamPing && first == wire.Ack:
		if n.byID[p.Sender] != nil {
			n.hear(s.to, &p) // it may have refuted what the ping told it
		}
		r := p.Reader()
		var m wire.Message
		r.Next(&m)
		n.acked(s.to, p.Sender, m.Seq)
	case s.kind == StreamExchange && first == wire.Exchange:
		n.quiet = s.quiet
		last := n.absorb(&p)
		n.quiet = false
		n.exchanged = n.exchanged || last && p.Sender != n.self.id
		if p.Sender == n.self.id { // by another address than the advertised one
			n.contacts = slices.DeleteFunc(n.contacts, func(c netip.AddrPort) bool { return c == s.to })
		}
	default:
		return ErrUnexpected
	}
	return nil
}

// pinged takes the frame of a ping over a stream, with the accusation behind
// it if there is one, and returns the number to ack.
func (n *Node) pinged(p *wire.Packet) (seq uint32) {
	from := n.addressOf(p)
	if n.byID[p.Sender] != nil {
		n.hear(from, p)
	}
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) && !n.silent {
		switch m.Type {
		case wire.Ping:
			seq = m.Seq
		case wire.Claim:
			n.claim(&m, from)
		}
	}
	return seq
}

// Exchanged reports whether the whole table of another member was heard since
// the start: what is missing here was then missing there too.
func (n *Node) Exchanged() bool { return n.exchanged }

// StreamClosed tells how the stream of token ended.
func (n *Node) StreamClosed(token uint64, end StreamEnd, now time.Time) {
	n.advance(now)
	s, known := n.streams[token]
	delete(n.streams, token)
	if known && s.kind == StreamPing && end == StreamRefused && !n.departed() {
		n.refused(token)
	}
}

// want asks the caller for a stream.
func (n *Node) want(kind StreamKind, to netip.AddrPort, frames [][]byte, timeout time.Duration) uint64 {
	n.lastToken++
	n.streams[n.lastToken] = stream{kind: kind, to: to, quiet: len(n.live.list) == 0}
	n.ready.Streams = append(n.ready.Streams, Stream{Token: n.lastToken, Kind: kind, To: to, Frames: frames, Timeout: timeout})
	return n.lastToken
}

// wantExchange asks for an exchange out of turn, at most one per period.
func (n *Node) wantExchange(with netip.AddrPort) {
	if n.now.Sub(n.wantedAt) < n.cfg.ProbePeriod || n.departed() || with == n.self.addr || !reachable(with) {
		return
	}
	n.wantedAt = n.now
	n.exchange(with)
}

func (n *Node) exchange(with netip.AddrPort) {
	n.counters.Exchanges++
	n.want(StreamExchange, with, n.table(false), n.cfg.StreamTimeout)
}

func (n *Node) exchangeGap() time.Duration {
	return n.cfg.ExchangeInterval*3/4 + n.jitter(n.cfg.ExchangeInterval/2)
}

// tickExchange compares whole tables with one random member now and then:
// whatever rumours lost is found there. Digest sync will take its place.
func (n *Node) tickExchange() {
	if n.now.Before(n.nextExchange) {
		return
	}
	n.nextExchange = n.now.Add(n.exchangeGap())
	for _, m := range n.live.sample(1, n.rng, n.answers) {
		n.exchange(m.addr)
	}
}

// tickContacts looks for members at the contacts.
func (n *Node) tickContacts() {
	if len(n.contacts) == 0 || n.now.Before(n.nextContact) {
		return
	}
	alone := len(n.live.list) == 0
	if alone {
		n.retryWait = n.cfg.JoinRetry
	}
	n.nextContact = n.now.Add(n.retryWait*3/4 + n.jitter(n.retryWait/2))
	if !alone {
		n.retryWait = min(n.retryWait*3/2, n.cfg.ContactInterval)
	}
	live := make(map[netip.AddrPort]bool, len(n.live.list))
	for _, m := range n.live.list {
		live[m.addr] = true
	}
	tried := 0
	for range n.contacts {
		c := n.contacts[n.contact%len(n.contacts)]
		n.contact++
		if !live[c] {
			n.exchange(c)
			if tried++; tried == contactsAtOnce {
				return
			}
		}
	}
}

// absorb merges a frame of the peer's table and reports whether it was the
// last one.
func (n *Node) absorb(p *wire.Packet) (last bool) {
	from := n.addressOf(p)
	if p.Sender == n.self.id || n.byID[p.Sender] != nil {
		n.hear(from, p)
	}
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) && !n.silent {
		switch m.Type {
		case wire.Exchange:
			last = last || m.Last
		case wire.Claim:
			n.claim(&m, from)
		case wire.RecordOf:
			n.recordOf(&m, from)
		}
	}
	return last
}

// addressOf is where the sender of a frame takes packets, zero if unknown: its
// stream comes from a port of no meaning.
func (n *Node) addressOf(p *wire.Packet) netip.AddrPort {
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) {
		if m.Type == wire.Claim && m.Subject == p.Sender && m.HasMeta {
			return m.Addr
		}
	}
	if m := n.byID[p.Sender]; m != nil {
		return m.addr
	}
	return netip.AddrPort{}
}

// frame starts a frame of a stream, in memory of its own.
func (n *Node) frame() []byte {
	return n.codec.Begin(make([]byte, 0, 64), n.self.id, n.self.value.Epoch, n.self.value.Incarnation)
}

// table encodes this node and all live members, this node first. Tombstones
// stay behind: they travel as rumours only.
func (n *Node) table(answer bool) [][]byte {
	const most = wire.MaxFrameBytes - wire.MaxRecordBytes - 256 // one member more fits
	var frames [][]byte
	buf := n.appendRow(wire.AppendExchange(n.frame(), answer, false), n.self)
	for _, m := range n.live.list {
		if len(buf) > most {
			frames = append(frames, n.codec.Seal(buf))
			buf = wire.AppendExchange(n.frame(), answer, false)
		}
		buf = n.appendRow(buf, m)
	}
	return append(frames, n.codec.Seal(wire.AppendExchange(buf, answer, true)))
}

func (n *Node) appendRow(buf []byte, m *member) []byte {
	if m.metaEpoch != m.value.Epoch {
		return buf // whose identity we do not know, we cannot introduce
	}
	buf = n.appendClaim(buf, m, true)
	if m.record != nil {
		buf = appendRecord(buf, m)
	}
	return buf
}
