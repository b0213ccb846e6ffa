package swim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Ready is what a Node wants done since the last call of Node.Ready. The
// caller works it off in this order: persist, then send, then publish.
type Ready struct {
	// PersistEpoch, if not 0, is the boot counter to write durably before any
	// packet or frame of this Ready leaves: a node never speaks under an epoch
	// that it could forget.
	PersistEpoch uint64

	// Packets are datagrams to send, best effort. Their Data is valid until
	// the next call into the Node.
	Packets []Packet

	// Streams are connections to open.
	Streams []Stream

	// Events tell what changed, in order. Each is a change that Members shows.
	Events []Event
}

// Packet is one datagram of at most Config.MTU bytes.
type Packet struct {
	To   netip.AddrPort
	Data []byte
}

// StreamKind says what a stream is for.
type StreamKind uint8

// The kinds of streams a Node asks for.
const (
	StreamPing     StreamKind = 1 // one ping frame out, one ack frame back
	StreamExchange StreamKind = 2 // own table out, the peer's table back
)

// Stream is a reliable connection that the Node wants. The caller dials To,
// writes Frames, hands every frame that comes back to Node.StreamFrame and the
// end to Node.StreamClosed, all within Timeout. The caller may refuse at once
// by StreamClosed(StreamFailed), for example when too many are open.
type Stream struct {
	Token   uint64
	Kind    StreamKind
	To      netip.AddrPort
	Frames  [][]byte // owned by the receiver
	Timeout time.Duration
}

// StreamEnd says how a stream ended.
type StreamEnd uint8

// The ways a stream ends.
const (
	StreamOK      StreamEnd = 0 // the peer answered and closed
	StreamRefused StreamEnd = 1 // the host answered that nobody listens (RST)
	StreamFailed  StreamEnd = 2 // anything else: timeout, unreachable, reset
)

// Event is one change of the member table, or of this node's own standing.
// The events about one member form a legal word:
//
//	((Joined|Revived) (Updated|Suspected|Refuted|Held|Record)* (Died|Left))* Reaped?
type Event struct {
	Kind   EventKind
	Member Member         // after the change
	Was    model.Value    // before the change
	From   netip.AddrPort // who told; zero if this node saw it itself
	Detail string         // for conflicts: what clashes, and the remedy
	At     time.Time
}

// EventKind names a change. Append only: scripts match the names.
type EventKind uint8

// The kinds of events.
const (
	EventJoined          EventKind = 1  // a member unknown before
	EventUpdated         EventKind = 2  // a live member has a new epoch, name or address
	EventSuspected       EventKind = 3  // alive → suspect
	EventRefuted         EventKind = 4  // suspect → alive; of self: an accusation was answered
	EventDied            EventKind = 5  // suspected too long, or replaced at its address
	EventLeft            EventKind = 6  // said good-bye
	EventRevived         EventKind = 7  // dead or left → live
	EventReaped          EventKind = 8  // its tombstone is forgotten
	EventRecord          EventKind = 9  // a new state record
	EventNameConflict    EventKind = 10 // two live members share a name
	EventAddressConflict EventKind = 11 // two live members share an address
	EventEpochJumped     EventKind = 12 // own id was heard at a higher value: old data directory
	EventCloned          EventKind = 13 // own id is in use elsewhere: this node fell silent
	EventHeld            EventKind = 14 // announced a restart: nobody accuses it until HeldUntil
)

// String prints the name that users and scripts see.
func (k EventKind) String() string {
	names := [...]string{
		EventJoined: "joined", EventUpdated: "updated", EventSuspected: "suspected", EventRefuted: "refuted",
		EventDied: "died", EventLeft: "left", EventRevived: "revived", EventReaped: "reaped", EventRecord: "record",
		EventNameConflict: "name-conflict", EventAddressConflict: "address-conflict",
		EventEpochJumped: "epoch-jumped", EventCloned: "cloned", EventHeld: "held",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Member is what this node knows of one member.
type Member struct {
	ID    model.NodeID
	Name  string
	Addr  netip.AddrPort
	Value model.Value
	Since time.Time // when the state last changed, on this node's clock
	Self  bool

	// HeldUntil is when this node ends the hold of a restart that the member
	// announced; zero if none is in force.
	HeldUntil time.Time

	// Record is the newest state record of the member; nil before the first.
	Record *Record
}

// Record is a node's own account of its changing state: whole, newest
// replaces all. Payload is opaque to SWIM and shared: do not write to it.
type Record struct {
	Epoch   uint64
	Seq     uint64 // rises within an epoch
	Payload []byte // at most wire.MaxRecordBytes
}

// Newer reports whether r replaces o. A nil record is older than any.
func (r *Record) Newer(o *Record) bool {
	if r == nil || o == nil {
		return r != nil
	}
	return r.Epoch > o.Epoch || r.Epoch == o.Epoch && r.Seq > o.Seq
}
