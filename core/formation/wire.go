package formation

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/core/model"
)

// The encoding of a message is protobuf's wire format, written by hand: fields in
// the order of their numbers, zero values left out. Numbers are never reused, and
// readers skip unknown ones.
//
//	Message  1 kind   2 from   3 to   4 Ballot   5 why   6 node   7 cluster   8 expect
//	Ballot   1 candidate   2 cluster   3 voter…   4 witness…
//
// Ids are fixed64, all else varints; a list is the ids one after the other.

// MaxMessage bounds an encoded message.
const MaxMessage = 8 << 10

const idBytes = 8

// EncodeMessage returns the bytes of a message.
func EncodeMessage(m Message) []byte {
	var b []byte
	b = appendNumber(b, 1, uint64(m.Kind))
	b = appendID(b, 2, uint64(m.From))
	b = appendID(b, 3, uint64(m.To))
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendBytes(b, encodeBallot(&m.Ballot))
	b = appendNumber(b, 5, uint64(m.Why))
	b = appendID(b, 6, uint64(m.Node))
	b = appendID(b, 7, uint64(m.Cluster))
	return appendNumber(b, 8, uint64(m.Expect))
}

func encodeBallot(ballot *Ballot) []byte {
	b := appendID(nil, 1, uint64(ballot.Candidate))
	b = appendID(b, 2, uint64(ballot.Cluster))
	b = appendIDs(b, 3, ballot.Voters)
	return appendIDs(b, 4, ballot.Witnesses)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendID(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

func appendIDs(b []byte, field protowire.Number, ids []model.NodeID) []byte {
	if len(ids) == 0 {
		return b
	}
	packed := make([]byte, 0, idBytes*len(ids))
	for _, id := range ids {
		packed = protowire.AppendFixed64(packed, uint64(id))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), packed)
}

// DecodeMessage reads what EncodeMessage wrote. The error wraps ErrDamaged.
func DecodeMessage(b []byte) (Message, error) {
	var m Message
	if len(b) > MaxMessage {
		return m, fmt.Errorf("%w: the message has %d bytes, at most %d", ErrDamaged, len(b), MaxMessage)
	}
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			m.Kind = Kind(f.small(math.MaxUint8))
		case 2:
			m.From = model.NodeID(f.id)
		case 3:
			m.To = model.NodeID(f.id)
		case 4:
			return decodeBallot(f.bytes, &m.Ballot)
		case 5:
			m.Why = Why(f.small(math.MaxUint8))
		case 6:
			m.Node = model.NodeID(f.id)
		case 7:
			m.Cluster = ClusterID(f.id)
		case 8:
			m.Expect = int(f.small(math.MaxInt32))
		}
		return nil
	})
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

func decodeBallot(b []byte, ballot *Ballot) error {
	return fields(b, func(f field) (err error) {
		switch f.number {
		case 1:
			ballot.Candidate = model.NodeID(f.id)
		case 2:
			ballot.Cluster = ClusterID(f.id)
		case 3:
			ballot.Voters, err = f.ids()
		case 4:
			ballot.Witnesses, err = f.ids()
		}
		return err
	})
}

// field is one field: its value is where its type says.
type field struct {
	number protowire.Number
	varint uint64
	id     uint64
	bytes  []byte
}

// small is a varint, or most if it is greater.
func (f field) small(most uint64) uint64 { return min(f.varint, most) }

func (f field) ids() ([]model.NodeID, error) {
	if len(f.bytes)%idBytes != 0 {
		return nil, fmt.Errorf("%w: a list of ids is cut off", ErrDamaged)
	}
	var ids []model.NodeID
	for b := f.bytes; len(b) > 0; b = b[idBytes:] {
		v, _ := protowire.ConsumeFixed64(b)
		ids = append(ids, model.NodeID(v))
	}
	return ids, nil
}

// fields calls do for each field.
func fields(b []byte, do func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrDamaged, protowire.ParseError(n))
		}
		b = b[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.id, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrDamaged, protowire.ParseError(n))
		}
		if err := do(f); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
