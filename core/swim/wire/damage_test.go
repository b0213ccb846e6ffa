package wire_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/scale"
)

// samples are one packet per golden message, and one of all.
func samples(t *testing.T) [][]byte {
	var packets, all [][]byte
	for _, g := range golden {
		b := unhex(t, g.hex)
		all = append(all, b)
		packets = append(packets, seal(b))
	}
	return append(packets, seal(all...), seal())
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for _, packet := range samples(t) {
		for bit := range 8 * len(packet) {
			packet[bit/8] ^= 1 << (bit % 8)
			want := wire.ErrChecksum
			if bit < 8 {
				want = wire.ErrVersion
			}
			if _, err := codec.Open(packet); !errors.Is(err, want) {
				t.Fatalf("bit %d of % x: %v, want %v", bit, packet, err, want)
			}
			packet[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestEveryTruncatedPacketIsFound(t *testing.T) {
	for _, packet := range samples(t) {
		for n := range packet {
			want := wire.ErrChecksum
			if n < 19 { // the shortest packet: version, sender, two words, checksum
				want = wire.ErrMalformed
			}
			if _, err := codec.Open(packet[:n]); !errors.Is(err, want) {
				t.Fatalf("%d of %d bytes: %v, want %v", n, len(packet), err, want)
			}
		}
		if _, err := codec.Open(append(slices.Clone(packet), 0)); !errors.Is(err, wire.ErrChecksum) {
			t.Fatalf("a byte more: %v, want ErrChecksum", err)
		}
	}
}

// A sender that knows the cluster and cuts its messages short: by what the
// packet holds, and by what their length says.
func TestEveryTruncatedMessageIsFound(t *testing.T) {
	for _, g := range golden {
		message := unhex(t, g.hex)
		for n := 1; n < len(message); n++ {
			if _, err := codec.Open(seal(message[:n])); !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%s, %d of %d bytes: %v, want ErrMalformed", g.name, n, len(message), err)
			}
		}

		body := message[2:]
		if len(body) >= 0x80 {
			body = message[3:]
		}
		least := len(body) - len(g.m.Payload) // a payload may have any length
		for n := range body {
			p, err := codec.Open(seal(raw(g.m.Type, body[:n])))
			switch {
			case n < least && !errors.Is(err, wire.ErrMalformed):
				t.Fatalf("%s, body of %d instead of %d bytes: %v, want ErrMalformed", g.name, n, len(body), err)
			case n >= least && err != nil:
				t.Fatalf("%s, payload of %d bytes: %v", g.name, n-least, err)
			case n >= least && len(messagesOf(&p)[0].Payload) != n-least:
				t.Fatalf("%s: payload of %d bytes, want %d", g.name, len(messagesOf(&p)[0].Payload), n-least)
			}
		}
	}
}

// The header, cut by somebody who knows the cluster.
func TestEveryTruncatedHeaderIsFound(t *testing.T) {
	header := codec.Begin(nil, sender, wire.MaxWord, wire.MaxWord)
	for n := 1; n < len(header); n++ {
		if _, err := codec.Open(codec.Seal(slices.Clone(header[:n]))); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%d of %d bytes: %v, want ErrMalformed", n, len(header), err)
		}
	}
}

func TestPacketsOfAnotherClusterAreRefused(t *testing.T) {
	for _, packet := range samples(t) {
		for _, name := range []string{"", "tes", "test ", "Test", "test\x00"} {
			other := wire.NewCodec(name)
			if _, err := other.Open(packet); !errors.Is(err, wire.ErrChecksum) {
				t.Fatalf("cluster %q opened a packet of %q: %v", name, "test", err)
			}
		}
	}
	same := wire.NewCodec("test")
	if _, err := same.Open(seal()); err != nil {
		t.Errorf("the same name: %v", err)
	}
}

// What else arrives on a UDP port: noise of any length, also with our version
// in front, and nothing but zeros or ones.
func TestOtherTrafficIsRefused(t *testing.T) {
	s := newSource(4)
	for n := range 1500 {
		b := make([]byte, n)
		for range scale.N(40) {
			for i := range b {
				b[i] = byte(s.Uint32())
			}
			refused(t, b)
			if n > 0 {
				b[0] = 1
				refused(t, b)
			}
		}
		for _, fill := range []byte{0, 1, 0xff} {
			for i := range b {
				b[i] = fill
			}
			refused(t, b)
		}
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x04mesh\x08internal\x00\x00\x01\x00\x01",
	} {
		refused(t, []byte(text))
	}
	refused(t, nil)
}

func refused(t *testing.T, b []byte) {
	t.Helper()
	if p, err := codec.Open(b); err == nil {
		t.Fatalf("opened %d bytes as %+v: % x", len(b), p, b)
	}
}

func TestUnknownTypesAreSkipped(t *testing.T) {
	ping, ack := wire.AppendPing(nil, 7, someID), wire.AppendAck(nil, 8)
	for typ := range 256 {
		if slices.Contains(types(), wire.Type(typ)) {
			continue
		}
		for _, body := range []string{"", "\x00", "a body of a later version"} {
			unknown := raw(wire.Type(typ), body)
			got := mustOpen(t, seal(unknown, ping, unknown, unknown, ack, unknown))
			if len(got) != 2 || got[0].Type != wire.Ping || got[0].Subject != someID || got[1].Type != wire.Ack || got[1].Seq != 8 {
				t.Fatalf("type %d: read %+v, want the ping and the ack", typ, got)
			}
			if got := mustOpen(t, seal(unknown)); len(got) != 0 {
				t.Fatalf("type %d: read %+v", typ, got)
			}
		}
	}
}

// Fields that a later version appends to a message do not disturb this one;
// record and part cannot get any, since their payload takes the rest.
func TestTrailingBytesAreSkipped(t *testing.T) {
	for _, g := range golden {
		if g.m.Type == wire.RecordOf || g.m.Type == wire.Part {
			continue
		}
		body := unhex(t, g.hex)[2:]
		for _, more := range []string{"\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "later"} {
			got := mustOpen(t, seal(raw(g.m.Type, body, more), wire.AppendAck(nil, 1)))
			if len(got) != 2 || !same(got[0], g.m) || got[1].Type != wire.Ack {
				t.Errorf("%s with %q behind: read %+v, want %+v and an ack", g.name, more, got, g.m)
			}
		}
	}
}

// Flags that a later version adds do not disturb this one.
func TestUnknownFlagsAreSkipped(t *testing.T) {
	for bit := byte(4); bit != 0; bit <<= 1 {
		got := mustOpen(t, seal(
			raw(wire.Exchange, bit|1),
			raw(wire.Claim, someID, word, word, byte(0), max(bit, 2*held), "later"),
		))
		exchange := wire.Message{Type: wire.Exchange, Answer: true}
		claim := wire.Message{Type: wire.Claim, Subject: someID, Value: model.Value{Epoch: 1, Incarnation: 1}}
		if len(got) != 2 || !same(got[0], exchange) || !same(got[1], claim) {
			t.Errorf("flag %#x: read %+v", bit, got)
		}
	}
}
