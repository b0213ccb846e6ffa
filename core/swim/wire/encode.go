package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/core/model"
)

// Flags of claim and exchange.
const (
	claimAccusers  = 1 << 0
	claimMeta      = 1 << 1
	claimHold      = 1 << 2
	exchangeAnswer = 1 << 0
	exchangeLast   = 1 << 1
)

// HashOf names a definition.
func HashOf(definition []byte) Hash {
	sum := sha256.Sum256(definition)
	return Hash(sum[:len(Hash{})])
}

// AppendPing asks whether target is there.
func AppendPing(buf []byte, seq uint32, target model.NodeID) []byte {
	buf = append(buf, byte(Ping), 4+8)
	buf = binary.BigEndian.AppendUint32(buf, seq)
	return binary.BigEndian.AppendUint64(buf, uint64(target))
}

// AppendAck answers the ping numbered seq.
func AppendAck(buf []byte, seq uint32) []byte {
	return binary.BigEndian.AppendUint32(append(buf, byte(Ack), 4), seq)
}

// AppendPingReq asks a helper to ping target and to answer within waitMillis,
// at most MaxWaitMillis.
func AppendPingReq(buf []byte, seq uint32, target model.NodeID, waitMillis uint32) []byte {
	buf, body := beginBody(buf, PingReq)
	buf = binary.BigEndian.AppendUint32(buf, seq)
	buf = binary.BigEndian.AppendUint64(buf, uint64(target))
	buf = binary.AppendUvarint(buf, uint64(min(waitMillis, MaxWaitMillis)))
	return endBody(buf, body)
}

// AppendNack tells the asker that its ping-req numbered seq found nobody.
func AppendNack(buf []byte, seq uint32, reason NackReason) []byte {
	buf = binary.BigEndian.AppendUint32(append(buf, byte(Nack), 5), seq)
	return append(buf, byte(reason))
}

// Claimed is what AppendClaim says. Name and Addr are those of Value.Epoch;
// an invalid Addr leaves both out.
type Claimed struct {
	Subject  model.NodeID
	Value    model.Value
	Accusers Accusers
	Name     string // as ValidName wants it; cut at MaxNameBytes
	Addr     netip.AddrPort

	HoldMillis uint32 // 0: no hold; at most MaxHoldMillis
}

// AppendClaim states one member's value.
func AppendClaim(buf []byte, c *Claimed) []byte {
	buf, body := beginBody(buf, Claim)
	buf = binary.BigEndian.AppendUint64(buf, uint64(c.Subject))
	buf = binary.AppendUvarint(buf, c.Value.Epoch)
	buf = binary.AppendUvarint(buf, c.Value.Incarnation)
	var flags byte
	if c.Accusers.n > 0 {
		flags |= claimAccusers
	}
	if c.Addr.IsValid() {
		flags |= claimMeta
	}
	if c.HoldMillis > 0 {
		flags |= claimHold
	}
	buf = append(buf, byte(c.Value.State), flags)
	if flags&claimAccusers != 0 {
		buf = append(buf, c.Accusers.n)
		for _, id := range c.Accusers.ids[:c.Accusers.n] {
			buf = binary.BigEndian.AppendUint64(buf, uint64(id))
		}
	}
	if flags&claimMeta != 0 {
		name := c.Name[:min(len(c.Name), MaxNameBytes)]
		buf = append(buf, byte(len(name)))
		buf = append(buf, name...)
		buf = appendAddr(buf, c.Addr)
	}
	if flags&claimHold != 0 {
		buf = binary.AppendUvarint(buf, uint64(min(c.HoldMillis, MaxHoldMillis)))
	}
	return endBody(buf, body)
}

// AppendRecord carries owner's state record; payload is at most
// MaxRecordBytes.
func AppendRecord(buf []byte, owner model.NodeID, epoch, seq uint64, payload []byte) []byte {
	buf, body := beginBody(buf, RecordOf)
	buf = binary.BigEndian.AppendUint64(buf, uint64(owner))
	buf = binary.AppendUvarint(buf, epoch)
	buf = binary.AppendUvarint(buf, seq)
	return endBody(append(buf, payload...), body)
}

// AppendExchange opens a frame of a full exchange.
func AppendExchange(buf []byte, answer, last bool) []byte {
	var flags byte
	if answer {
		flags |= exchangeAnswer
	}
	if last {
		flags |= exchangeLast
	}
	return append(buf, byte(Exchange), 1, flags)
}

// AppendPull asks for the definition named h.
func AppendPull(buf []byte, h Hash) []byte {
	return append(append(buf, byte(Pull), byte(len(h))), h[:]...)
}

// AppendPart carries a piece, at most MaxPartBytes, of the definition named h,
// which has total bytes.
func AppendPart(buf []byte, h Hash, total, offset uint32, data []byte) []byte {
	buf, body := beginBody(buf, Part)
	buf = append(buf, h[:]...)
	buf = binary.AppendUvarint(buf, uint64(total))
	buf = binary.AppendUvarint(buf, uint64(offset))
	return endBody(append(buf, data...), body)
}

// beginBody appends the type and one byte for the length, which is enough for
// nearly all; it returns where the body starts.
func beginBody(buf []byte, t Type) ([]byte, int) {
	buf = append(buf, byte(t), 0)
	return buf, len(buf)
}

// endBody writes the length of the body that starts at body, moving it where
// the length needs more than the one byte kept for it.
func endBody(buf []byte, body int) []byte {
	n := len(buf) - body
	if n < 0x80 {
		buf[body-1] = byte(n)
		return buf
	}
	var length [binary.MaxVarintLen32]byte
	extra := binary.PutUvarint(length[:], uint64(n)) - 1
	buf = append(buf, length[:extra]...) // grow; the values do not matter
	copy(buf[body+extra:], buf[body:body+n])
	copy(buf[body-1:], length[:extra+1])
	return buf
}

func appendAddr(buf []byte, a netip.AddrPort) []byte {
	if ip := a.Addr().Unmap(); ip.Is4() {
		b := ip.As4()
		buf = append(append(buf, 4), b[:]...)
	} else {
		b := ip.As16()
		buf = append(append(buf, 16), b[:]...)
	}
	return binary.BigEndian.AppendUint16(buf, a.Port())
}
