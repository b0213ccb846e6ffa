package swim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Errors of the entry points of Node.
var (
	// ErrSelf is wrapped by every refusal of New to be somebody.
	ErrSelf = errors.New("swim: bad identity")
	// ErrSilent means that this node fell silent, see EventCloned and
	// EventAddressConflict, and takes no packets.
	ErrSilent = errors.New("swim: this node fell silent")
	// ErrRecord means that a state record is too large.
	ErrRecord = errors.New("swim: state record too large")
	// ErrUnexpected means that a valid frame makes no sense on its stream.
	ErrUnexpected = errors.New("swim: frame has no meaning on this stream")
)

// maxSpare bounds the packet buffers kept for use again.
const maxSpare = 64

// Self is who a node is. Addr is where others reach it, by UDP and TCP.
type Self struct {
	ID   model.NodeID
	Name string // 1 to wire.MaxNameBytes bytes
	Addr netip.AddrPort
}

// Node is one member's side of the protocol. It is not safe for concurrent
// use; see the package comment.
//
// Invariants: a member is in live exactly while its value is live, and in
// graves otherwise; self is in neither. self is never suspect or dead.
type Node struct {
	cfg   Config
	codec wire.Codec
	rng   *rand.Rand
	now   time.Time // of the last call

	self   *member
	byID   map[model.NodeID]*member // all but self
	live   rotation
	graves rotation
	queues [classes]queue

	probes    []*probe
	relays    []relay
	conflicts []conflict
	announced announcement
	streams   map[uint64]stream // that we asked for
	lastToken uint64
	contacts  []netip.AddrPort
	contact   int // next of contacts to try
	retryWait time.Duration

	// When the periodic work is due.
	nextProbe, nextGossip, nextExchange, nextContact, nextGrave, nextReap time.Time
	nextVerdict                                                           time.Time // no suspicion ends before; zero: there is none

	wantedAt time.Time // last exchange out of turn
	quiet    bool      // what is learned now is no news to the others

	exchanged bool      // see Exchanged
	tellAt    time.Time // start of the window that tells counts in
	tells     int
	leftAt    time.Time
	jumps     []time.Time // recent raises of our own epoch because it was heard
	startedAt time.Time
	senior    bool // ran undisturbed before the first of jumps
	silent    bool

	ready        Ready
	lent         []Packet // the caller's until the next call
	spare        [][]byte // packet memory to use again
	sent         []*rumour
	recordsFirst bool // see claimShare
	counters     Counters
}

// New returns the node's side of the protocol at epoch, which has to be higher
// than any it ever ran with, and persisted. It knows nobody until Join, or
// until others call. Errors wrap ErrConfig or ErrSelf.
func New(cfg Config, self Self, epoch uint64, rng *rand.Rand, now time.Time) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	switch {
	case self.ID == 0:
		return nil, fmt.Errorf("%w: the id is zero", ErrSelf)
	case len(self.Name) == 0 || !wire.ValidName(self.Name):
		return nil, fmt.Errorf("%w: name %q: want 1 to %d printable ASCII characters without spaces", ErrSelf, self.Name, wire.MaxNameBytes)
	case !reachable(self.Addr):
		return nil, fmt.Errorf("%w: nobody can reach the advertised address %v: want an address and a port of this node", ErrSelf, self.Addr)
	case epoch == 0 || epoch > wire.MaxWord:
		return nil, fmt.Errorf("%w: epoch %d: want 1 to %d", ErrSelf, epoch, uint64(wire.MaxWord))
	}
	n := &Node{
		cfg:       cfg,
		codec:     wire.NewCodec(cfg.Cluster),
		rng:       rng,
		now:       now,
		startedAt: now,
		byID:      make(map[model.NodeID]*member),
		streams:   make(map[uint64]stream),
		retryWait: cfg.JoinRetry,
		self: &member{
			id: self.ID, name: self.Name, addr: unmap(self.Addr), since: now,
			value: model.Value{Epoch: epoch}, metaEpoch: epoch,
		},
	}
	n.nextProbe = now.Add(n.jitter(cfg.ProbePeriod))
	n.nextExchange = now.Add(n.exchangeGap())
	n.nextGrave = now.Add(cfg.TombstoneProbeInterval)
	n.nextContact = now
	n.nextReap = now.Add(reapInterval)
	n.spread(n.self, classClaim)
	return n, nil
}

// Step takes one datagram. An error says why it was dropped, as a whole and
// without a trace: ErrSilent or one of package wire's.
func (n *Node) Step(from netip.AddrPort, packet []byte, now time.Time) error {
	n.advance(now)
	if n.silent {
		return ErrSilent
	}
	p, err := n.codec.Open(packet)
	if err != nil {
		return err
	}
	n.receive(unmap(from), &p)
	return nil
}

// Tick does what is due at now.
func (n *Node) Tick(now time.Time) {
	n.advance(now)
	if n.silent {
		return
	}
	n.tickRelays()
	if !n.departed() {
		n.tickProbes()
		n.tickSuspicions()
		n.tickHold()
		n.tickGraves()
		n.tickExchange()
		n.tickContacts()
	}
	n.tickGossip()
	n.tickReap()
}

// NextDeadline is when Tick has something to do.
func (n *Node) NextDeadline() time.Time {
	next := n.nextReap
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if n.silent {
		return n.now.Add(reapInterval) // Tick does nothing any more
	}
	for i := range n.relays {
		earlier(n.relays[i].due())
	}
	if n.gossipWaits() {
		earlier(n.nextGossip)
	}
	if n.departed() {
		if end := n.leaveEnd(); n.now.Before(end) {
			earlier(end)
		}
		return next
	}
	for _, p := range n.probes {
		earlier(p.due())
	}
	if len(n.announced.untold) > 0 {
		earlier(n.announced.next)
	}
	if len(n.live.list) > 0 {
		earlier(n.nextProbe)
		earlier(n.nextExchange)
		if !n.nextVerdict.IsZero() {
			earlier(n.nextVerdict)
		}
	}
	if len(n.graves.list) > 0 {
		earlier(n.nextGrave)
	}
	if len(n.contacts) > 0 {
		earlier(n.nextContact)
	}
	return next
}

// Ready drains what the node wants done. See Ready for the order.
func (n *Node) Ready() Ready {
	n.reclaim()
	r := n.ready
	n.ready = Ready{Packets: n.lent[:0]}
	n.lent = r.Packets
	return r
}

// reclaim takes back the packets of the last Ready.
func (n *Node) reclaim() {
	for _, p := range n.lent {
		if len(n.spare) < maxSpare {
			n.spare = append(n.spare, p.Data)
		}
	}
	n.lent = n.lent[:0]
}

// Members returns what is known of every member, self included, in no order.
func (n *Node) Members() []Member {
	all := make([]Member, 0, 1+len(n.byID))
	all = append(all, n.view(n.self))
	for _, r := range []*rotation{&n.live, &n.graves} {
		for _, m := range r.list {
			all = append(all, n.view(m))
		}
	}
	return all
}

// Self is this node's own row.
func (n *Node) Self() Member { return n.view(n.self) }

// Silent reports whether the node fell silent for good, because its identity
// or its address is somebody else's.
func (n *Node) Silent() bool { return n.silent }

// Header is what the header of a packet from this node says.
func (n *Node) Header() (id model.NodeID, epoch, incarnation uint64) {
	return n.self.id, n.self.value.Epoch, n.self.value.Incarnation
}

// SetRecord publishes payload as this node's state record, in place of the one
// before. It is kept, not copied. It returns ErrRecord if it is larger than
// wire.MaxRecordBytes.
func (n *Node) SetRecord(payload []byte, now time.Time) error {
	if len(payload) > wire.MaxRecordBytes {
		return fmt.Errorf("%w: %d bytes: at most %d travel as a rumour", ErrRecord, len(payload), wire.MaxRecordBytes)
	}
	n.advance(now)
	n.setRecord(payload)
	return nil
}

func (n *Node) setRecord(payload []byte) {
	var seq uint64
	if r := n.self.record; r != nil && r.Epoch == n.self.value.Epoch {
		seq = r.Seq
	}
	n.self.record = &Record{Epoch: n.self.value.Epoch, Seq: seq + 1, Payload: payload}
	n.spread(n.self, classRecord)
	n.emit(Event{Kind: EventRecord}, n.self, n.self.value)
}

// advance moves the node's clock. A caller that comes later than half a period
// after something was due was not running: answers may lie unread, so nobody
// is judged by that time.
func (n *Node) advance(now time.Time) {
	n.reclaim()
	if now.Before(n.now) {
		now = n.now
	}
	if late := now.Sub(n.NextDeadline()); late > n.cfg.ProbePeriod/2 {
		n.resume(late, now)
	}
	n.now = now
}

// resume forgets the probes that a pause of this process ran into, and gives
// suspects the lost time back.
func (n *Node) resume(late time.Duration, now time.Time) {
	n.counters.Pauses++
	n.probes = n.probes[:0]
	n.relays = n.relays[:0]
	for _, m := range n.live.list {
		if m.value.State == model.StateSuspect {
			m.suspectedAt = m.suspectedAt.Add(late)
			m.deadline = m.deadline.Add(late)
		}
	}
	if !n.nextVerdict.IsZero() {
		n.nextVerdict = n.nextVerdict.Add(late)
	}
	for _, t := range []*time.Time{&n.nextProbe, &n.nextGossip, &n.nextExchange, &n.nextContact, &n.nextGrave, &n.nextReap} {
		if t.Before(now) {
			*t = now
		}
	}
}

// wake keeps periodic work that had nothing to do until now from looking
// overdue.
func (n *Node) wake() {
	for _, t := range []*time.Time{&n.nextProbe, &n.nextGossip, &n.nextExchange, &n.nextGrave} {
		if t.Before(n.now) {
			*t = n.now
		}
	}
	if !n.nextVerdict.IsZero() && n.nextVerdict.Before(n.now) {
		n.nextVerdict = n.now // nobody looks at it while alone or departed
	}
}

// departed reports whether this node said good-bye.
func (n *Node) departed() bool { return n.self.value.State == model.StateLeft }

// liveCount is the number of live members, self included.
func (n *Node) liveCount() int { return len(n.live.list) + 1 }

func (n *Node) view(m *member) Member {
	v := Member{ID: m.id, Name: m.name, Addr: m.addr, Value: m.value, Since: m.since, Self: m == n.self, Record: m.record}
	if n.held(m) {
		v.HeldUntil = m.hold.endsAt
	}
	return v
}

func (n *Node) emit(e Event, m *member, was model.Value) {
	e.Member, e.Was, e.At = n.view(m), was, n.now
	n.ready.Events = append(n.ready.Events, e)
}

// jitter is a random part of d.
func (n *Node) jitter(d time.Duration) time.Duration {
	return time.Duration(n.rng.Int64N(int64(d)))
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// reachable reports whether a can be some member's address.
func reachable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}
