package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/fairlead/fairlead/core/model"
)

// Codec frames and checks packets of one cluster. It is a value without state;
// AEAD will take the place of the checksum here.
type Codec struct {
	seed uint64
}

// NewCodec returns the codec of the named cluster.
func NewCodec(cluster string) Codec {
	sum := sha256.Sum256([]byte("fairlead gossip v1\x00" + cluster))
	return Codec{seed: binary.BigEndian.Uint64(sum[:8])}
}

// Overhead is how many bytes Seal adds.
func (c Codec) Overhead() int { return checksumBytes }

// Begin starts a packet in the memory of buf and returns it with the header;
// Append… add messages, Seal ends it.
func (c Codec) Begin(buf []byte, sender model.NodeID, epoch, incarnation uint64) []byte {
	buf = append(buf[:0], version)
	buf = binary.BigEndian.AppendUint64(buf, uint64(sender))
	buf = binary.AppendUvarint(buf, epoch)
	return binary.AppendUvarint(buf, incarnation)
}

// Seal ends the packet: nothing may be appended after it.
func (c Codec) Seal(packet []byte) []byte {
	return binary.BigEndian.AppendUint64(packet, c.sum(packet))
}

// Open checks a packet: version, checksum, and every field of every message
// against its cap, so that a Reader over the result cannot fail and nobody
// acts on half a packet. It does not allocate, but for the text of an error.
// Errors are, in the order of the checks, ErrMalformed (shorter than any
// packet), ErrTooLarge (above MaxFrameBytes), ErrVersion, ErrChecksum, and
// ErrMalformed again for what the body holds.
func (c Codec) Open(packet []byte) (Packet, error) {
	switch {
	case len(packet) < minPacket:
		return Packet{}, ErrMalformed
	case len(packet) > MaxFrameBytes:
		return Packet{}, ErrTooLarge
	case packet[0] != version:
		return Packet{}, ErrVersion
	}
	body := packet[:len(packet)-checksumBytes]
	if binary.BigEndian.Uint64(packet[len(body):]) != c.sum(body) {
		return Packet{}, ErrChecksum
	}
	d := decoder{b: body[1:]}
	p := Packet{Sender: d.id(), Epoch: d.word(), Incarnation: d.word()}
	if d.bad {
		return Packet{}, ErrMalformed
	}
	p.messages = d.b
	r := p.Reader()
	var m Message
	for r.Next(&m) {
	}
	return p, r.err
}

// sum is the keyed checksum of b.
func (c Codec) sum(b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(c.seed)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}

// Packet is an opened packet. It shares the memory of what Open was given.
type Packet struct {
	Sender             model.NodeID
	Epoch, Incarnation uint64

	messages []byte
}

// Reader iterates over the messages of the packet.
func (p *Packet) Reader() Reader { return Reader{d: decoder{b: p.messages}} }

// First is the type of the first message, 0 in an empty packet. On a stream it
// tells what the stream is for.
func (p *Packet) First() Type {
	if len(p.messages) == 0 {
		return 0
	}
	return Type(p.messages[0])
}

// Reader yields the messages of a packet one by one.
type Reader struct {
	d   decoder
	err error
}

// Next decodes the next message into m and reports whether there was one.
// Types that this version does not know are skipped. After Codec.Open
// succeeded it cannot fail.
func (r *Reader) Next(m *Message) bool {
	for r.err == nil && len(r.d.b) > 0 {
		t := Type(r.d.byte())
		body := decoder{b: r.d.take(r.d.length())}
		if r.d.bad {
			r.err = fmt.Errorf("%w: %v is cut short", ErrMalformed, t)
			return false
		}
		*m = Message{Type: t}
		if !body.message(m) {
			continue // from a later version
		}
		if body.bad {
			r.err = fmt.Errorf("%w: in a %v", ErrMalformed, t)
			return false
		}
		return true
	}
	return false
}
