package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/model"
)

// Caps on what a packet may hold.
const (
	MaxFrameBytes  = 32 << 10  // one packet: a frame of a stream, and so any datagram
	MaxNameBytes   = 63        // a node name
	MaxAccusers    = 4         // distinct accusers that a claim carries
	MaxRecordBytes = 512       // payload of a state record
	MaxWord        = 1<<48 - 1 // an epoch or incarnation; 2^48 boots do not happen
	MaxWaitMillis  = 60_000    // how long a helper may be asked to try
	MaxHoldMillis  = 3_600_000 // a hold that a claim announces
	MaxPartBytes   = 30 << 10  // bytes of a definition in one message
	MaxDefinition  = 1 << 20   // a whole definition
	minPacket      = 1 + 8 + 1 + 1 + checksumBytes
	checksumBytes  = 8
	version        = 1
)

// Errors of Codec.Open. A packet is taken whole or not at all.
var (
	ErrChecksum  = errors.New("wire: checksum mismatch: damaged, or of another cluster")
	ErrVersion   = errors.New("wire: unknown format version")
	ErrMalformed = errors.New("wire: malformed packet")
	ErrTooLarge  = errors.New("wire: too large")
)

// Type numbers the messages; see the package comment.
type Type uint8

// The message types. Append only.
const (
	Ping     Type = 1
	Ack      Type = 2
	PingReq  Type = 3
	Nack     Type = 4
	Claim    Type = 5
	RecordOf Type = 6
	Exchange Type = 7
	Pull     Type = 8
	Part     Type = 9
)

// NackReason says why a helper has no ack to give.
type NackReason uint8

// The reasons. Append only.
const (
	NackNoAnswer NackReason = 0 // it was pinged and did not answer in time
	NackUnknown  NackReason = 1 // the helper knows no live member of that id
)

// Hash names a definition: the first 16 bytes of its SHA-256.
type Hash [16]byte

// Message is one message, decoded. Which fields count depends on Type. Name
// and Payload point into the packet.
type Message struct {
	Type Type

	Seq        uint32       // Ping, Ack, PingReq, Nack
	Subject    model.NodeID // Ping, PingReq: target; Claim: subject; RecordOf: owner
	WaitMillis uint32       // PingReq
	Reason     NackReason   // Nack

	Value    model.Value // Claim
	Accusers Accusers    // Claim, suspect or dead
	HasMeta  bool        // Claim: Name and Addr are those of Value.Epoch
	Name     []byte
	Addr     netip.AddrPort

	HoldMillis uint32 // Claim, alive: what is left of an announced restart; 0: none

	Epoch, RecordSeq uint64 // RecordOf
	Payload          []byte // RecordOf; Part

	Answer, Last bool // Exchange

	Hash          Hash // Pull, Part
	Total, Offset uint32
}

// ValidName reports whether a node name may travel: printable ASCII without
// spaces, at most MaxNameBytes. Names end up in logs, terminals and protobuf
// strings, none of which should meet control characters or broken UTF-8 that
// some peer made up. The empty name passes; it is the readers' to refuse.
func ValidName[T string | []byte](name T) bool {
	if len(name) > MaxNameBytes {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}

// Accusers is a small set of distinct node ids, in order of arrival.
//
// Invariant: ids[:n] are distinct and not 0.
type Accusers struct {
	ids [MaxAccusers]model.NodeID
	n   uint8
}

// Add puts id into the set and reports whether the set grew.
func (a *Accusers) Add(id model.NodeID) bool {
	if id == 0 || a.Has(id) || int(a.n) == MaxAccusers {
		return false
	}
	a.ids[a.n] = id
	a.n++
	return true
}

// Has reports whether id is in the set.
func (a *Accusers) Has(id model.NodeID) bool {
	for _, have := range a.ids[:a.n] {
		if have == id {
			return true
		}
	}
	return false
}

// Len is the number of accusers, 0 to MaxAccusers.
func (a *Accusers) Len() int { return int(a.n) }

// List returns the accusers; it shares the set's memory.
func (a *Accusers) List() []model.NodeID { return a.ids[:a.n] }

// String prints the name of the type.
func (t Type) String() string {
	names := [...]string{Ping: "ping", Ack: "ack", PingReq: "ping-req", Nack: "nack", Claim: "claim", RecordOf: "record", Exchange: "exchange", Pull: "pull", Part: "part"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}
