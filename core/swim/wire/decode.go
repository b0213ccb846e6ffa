package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/core/model"
)

// decoder consumes b. The first field that does not fit sets bad, and all
// later ones read as zero.
type decoder struct {
	b   []byte
	bad bool
}

// message decodes the body of m.Type and reports whether the type is known.
func (d *decoder) message(m *Message) bool {
	switch m.Type {
	case Ping:
		m.Seq, m.Subject = d.uint32(), d.id()
	case Ack:
		m.Seq = d.uint32()
	case PingReq:
		m.Seq, m.Subject = d.uint32(), d.id()
		m.WaitMillis = uint32(d.uvarint(MaxWaitMillis))
	case Nack:
		m.Seq, m.Reason = d.uint32(), NackReason(d.byte())
	case Claim:
		d.claim(m)
	case RecordOf:
		m.Subject, m.Epoch, m.RecordSeq = d.id(), d.word(), d.word()
		m.Payload = d.rest(MaxRecordBytes)
	case Exchange:
		flags := d.byte()
		m.Answer, m.Last = flags&exchangeAnswer != 0, flags&exchangeLast != 0
	case Pull:
		d.hash(&m.Hash)
	case Part:
		d.hash(&m.Hash)
		m.Total, m.Offset = uint32(d.uvarint(MaxDefinition)), uint32(d.uvarint(MaxDefinition))
		m.Payload = d.rest(MaxPartBytes)
		if uint64(m.Offset)+uint64(len(m.Payload)) > uint64(m.Total) {
			d.bad = true
		}
	default:
		return false
	}
	return true
}

func (d *decoder) claim(m *Message) {
	m.Subject = d.id()
	m.Value = model.Value{Epoch: d.word(), Incarnation: d.word(), State: model.State(d.byte())}
	if m.Value.State > model.StateLeft {
		d.bad = true
	}
	flags := d.byte()
	if flags&claimAccusers != 0 {
		n := int(d.byte())
		if n > MaxAccusers {
			d.bad = true
			return
		}
		for range n {
			if !m.Accusers.Add(d.id()) {
				d.bad = true
			}
		}
	}
	if flags&claimMeta != 0 {
		m.HasMeta = true
		m.Name = d.take(int(d.byte()))
		if !ValidName(m.Name) {
			d.bad = true
		}
		m.Addr = d.addr()
	}
	if flags&claimHold != 0 {
		m.HoldMillis = uint32(d.uvarint(MaxHoldMillis))
	}
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) rest(limit int) []byte {
	if len(d.b) > limit {
		d.bad = true
	}
	return d.take(len(d.b))
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// uvarint reads a varint of at most limit.
func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > limit {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length reads the length of a message's body.
func (d *decoder) length() int { return int(d.uvarint(MaxFrameBytes)) }

// word reads an epoch, incarnation or record number.
func (d *decoder) word() uint64 { return d.uvarint(MaxWord) }

// id reads a node id, which is never 0.
func (d *decoder) id() model.NodeID {
	b := d.take(8)
	if b == nil {
		return 0
	}
	id := model.NodeID(binary.BigEndian.Uint64(b))
	if id == 0 {
		d.bad = true
	}
	return id
}

func (d *decoder) hash(h *Hash) { copy(h[:], d.take(len(h))) }

func (d *decoder) addr() netip.AddrPort {
	n := int(d.byte())
	if n != 4 && n != 16 {
		d.bad = true
		return netip.AddrPort{}
	}
	ip, port := d.take(n), d.take(2)
	if d.bad {
		return netip.AddrPort{}
	}
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
