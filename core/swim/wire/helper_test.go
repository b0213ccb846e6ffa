package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

var codec = wire.NewCodec("test")

const (
	sender      = model.NodeID(0x0123456789abcdef)
	epoch       = 3
	incarnation = 1
)

// seal makes a packet of complete messages.
func seal(messages ...[]byte) []byte {
	return codec.Seal(append(codec.Begin(nil, sender, epoch, incarnation), bytes.Join(messages, nil)...))
}

// raw is a message built by hand, so that it may break the rules: a byte, a
// uint32 and an id of fixed width, a uint64 as varint, bytes as they are.
func raw(t wire.Type, fields ...any) []byte {
	body := join(fields...)
	return append(binary.AppendUvarint([]byte{byte(t)}, uint64(len(body))), body...)
}

func join(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		switch f := f.(type) {
		case byte:
			b = append(b, f)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case model.NodeID:
			b = binary.BigEndian.AppendUint64(b, uint64(f))
		case uint64:
			b = binary.AppendUvarint(b, f)
		case []byte:
			b = append(b, f...)
		case string:
			b = append(b, f...)
		default:
			panic(reflect.TypeOf(f))
		}
	}
	return b
}

// unhex reads hexadecimal digits with spaces between the fields.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mustOpen decodes all messages of a packet.
func mustOpen(t *testing.T, packet []byte) []wire.Message {
	t.Helper()
	p, err := codec.Open(packet)
	if err != nil {
		t.Fatalf("%v: % x", err, packet)
	}
	return messagesOf(&p)
}

func messagesOf(p *wire.Packet) []wire.Message {
	var list []wire.Message
	r := p.Reader()
	for {
		var m wire.Message
		if !r.Next(&m) {
			return list
		}
		list = append(list, m)
	}
}

// same compares messages by what they say: no bytes are no bytes.
func same(a, b wire.Message) bool {
	for _, m := range []*wire.Message{&a, &b} {
		if len(m.Name) == 0 {
			m.Name = nil
		}
		if len(m.Payload) == 0 {
			m.Payload = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

// appendMessage encodes m.
func appendMessage(buf []byte, m *wire.Message) []byte {
	switch m.Type {
	case wire.Ping:
		return wire.AppendPing(buf, m.Seq, m.Subject)
	case wire.Ack:
		return wire.AppendAck(buf, m.Seq)
	case wire.PingReq:
		return wire.AppendPingReq(buf, m.Seq, m.Subject, m.WaitMillis)
	case wire.Nack:
		return wire.AppendNack(buf, m.Seq, m.Reason)
	case wire.Claim:
		return wire.AppendClaim(buf, &wire.Claimed{
			Subject: m.Subject, Value: m.Value, Accusers: m.Accusers, Name: string(m.Name), Addr: m.Addr,
			HoldMillis: m.HoldMillis,
		})
	case wire.RecordOf:
		return wire.AppendRecord(buf, m.Subject, m.Epoch, m.RecordSeq, m.Payload)
	case wire.Exchange:
		return wire.AppendExchange(buf, m.Answer, m.Last)
	case wire.Pull:
		return wire.AppendPull(buf, m.Hash)
	case wire.Part:
		return wire.AppendPart(buf, m.Hash, m.Total, m.Offset, m.Payload)
	}
	panic(m.Type)
}

// types are all that this version knows.
func types() []wire.Type {
	var list []wire.Type
	for t := wire.Type(1); !strings.HasPrefix(t.String(), "type("); t++ {
		list = append(list, t)
	}
	return list
}

// source draws valid messages, their fields often at the ends of their range.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, seed))} }

// upTo draws from 0 to limit, small numbers and the limit more often.
func (s source) upTo(limit uint64) uint64 {
	switch s.IntN(4) {
	case 0:
		return limit
	case 1:
		return s.Uint64N(min(limit, 200) + 1)
	}
	return s.Uint64N(limit>>s.IntN(48) + 1)
}

func (s source) id() model.NodeID { return model.NodeID(s.Uint64N(1<<64-1) + 1) }

func (s source) bytes(limit int) []byte {
	b := make([]byte, s.upTo(uint64(limit)))
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

func (s source) addr() netip.AddrPort {
	b := make([]byte, 4+12*s.IntN(2))
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(s.Uint32()))
}

func (s source) name() []byte {
	name := make([]byte, s.upTo(wire.MaxNameBytes))
	for i := range name {
		name[i] = byte('!' + s.IntN('~'-'!'+1))
	}
	return name
}

func (s source) accusers(n int) wire.Accusers {
	var a wire.Accusers
	for a.Len() < n {
		a.Add(s.id())
	}
	return a
}

func (s source) message(t wire.Type) wire.Message {
	m := wire.Message{Type: t}
	switch t {
	case wire.Ping:
		m.Seq, m.Subject = s.Uint32(), s.id()
	case wire.Ack:
		m.Seq = s.Uint32()
	case wire.PingReq:
		m.Seq, m.Subject, m.WaitMillis = s.Uint32(), s.id(), uint32(s.upTo(wire.MaxWaitMillis))
	case wire.Nack:
		m.Seq, m.Reason = s.Uint32(), wire.NackReason(s.Uint32())
	case wire.Claim:
		m.Subject = s.id()
		m.Value = model.Value{Epoch: s.upTo(wire.MaxWord), Incarnation: s.upTo(wire.MaxWord), State: model.State(s.IntN(4))}
		m.Accusers = s.accusers(s.IntN(wire.MaxAccusers + 1))
		if m.HasMeta = s.IntN(2) == 0; m.HasMeta {
			m.Name, m.Addr = s.name(), s.addr()
		}
		if s.IntN(4) == 0 {
			m.HoldMillis = uint32(s.upTo(wire.MaxHoldMillis))
		}
	case wire.RecordOf:
		m.Subject, m.Epoch, m.RecordSeq = s.id(), s.upTo(wire.MaxWord), s.upTo(wire.MaxWord)
		m.Payload = s.bytes(wire.MaxRecordBytes)
	case wire.Exchange:
		m.Answer, m.Last = s.IntN(2) == 0, s.IntN(2) == 0
	case wire.Pull:
		copy(m.Hash[:], s.bytes(len(m.Hash)))
	case wire.Part:
		copy(m.Hash[:], s.bytes(len(m.Hash)))
		m.Payload = s.bytes(wire.MaxPartBytes)
		m.Offset = uint32(s.upTo(wire.MaxDefinition - uint64(len(m.Payload))))
		m.Total = m.Offset + uint32(len(m.Payload))
		m.Total += uint32(s.upTo(wire.MaxDefinition - uint64(m.Total)))
	default:
		panic(t)
	}
	return m
}
