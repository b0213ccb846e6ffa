package transfer

import (
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/dataplane"
)

// message is what is left of an encoded message. It reads as generated code
// does: what is not known is passed over, also a known field in another form.
type message struct {
	raw      []byte
	text     string // the same bytes, parts of which are strings without a copy
	from, to int
}

// newMessage reads raw, which must not be written any more: its text is the same
// memory, as copies would cost as much as all else.
func newMessage(raw []byte) message {
	return message{raw, unsafe.String(unsafe.SliceData(raw), len(raw)), 0, len(raw)}
}

// part is one field as it came.
type part struct {
	tag      uint64 // number and form
	value    uint64 // of a varint or fixed64
	from, to int    // of bytes, a string or a message
}

// The forms that the contract uses. Groups and fixed32 are passed over.
const (
	varintForm  = uint64(protowire.VarintType)
	fixed64Form = uint64(protowire.Fixed64Type)
	bytesForm   = uint64(protowire.BytesType)
)

func (m *message) more() bool { return m.from < m.to }

// next takes a part.
func (m *message) next() (p part, err error) {
	b := m.raw[m.from:m.to]
	number, kind, head := protowire.ConsumeTag(b)
	if head < 0 || number > protowire.MaxValidNumber {
		return p, malformed(head)
	}
	p.tag = protowire.EncodeTag(number, kind)
	size := 0
	switch kind {
	case protowire.VarintType:
		p.value, size = protowire.ConsumeVarint(b[head:])
	case protowire.Fixed64Type:
		p.value, size = protowire.ConsumeFixed64(b[head:])
	case protowire.BytesType:
		var body []byte
		body, size = protowire.ConsumeBytes(b[head:])
		p.to = m.from + head + size
		p.from = p.to - len(body)
	default:
		size = protowire.ConsumeFieldValue(number, kind, b[head:])
	}
	if size < 0 {
		return p, malformed(size)
	}
	m.from += head + size
	return p, nil
}

func (m *message) bytes(p part) []byte { return m.raw[p.from:p.to] }

// string is a part that has to be text.
func (m *message) string(p part) (string, error) {
	s := m.text[p.from:p.to]
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("%w: a string of the message is no UTF-8 text", dataplane.ErrInvalid)
	}
	return s, nil
}

func (m *message) message(p part) message { return message{m.raw, m.text, p.from, p.to} }

func malformed(code int) error {
	err := protowire.ParseError(code)
	if code >= 0 {
		err = errors.New("invalid field number")
	}
	return fmt.Errorf("%w: the message is not as protobuf encodes one: %w", dataplane.ErrInvalid, err)
}
