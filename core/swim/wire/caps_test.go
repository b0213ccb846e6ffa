package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	someID   = model.NodeID(0xfedcba9876543210)
	zeroID   = model.NodeID(0)
	word     = uint64(1)
	maxWord  = uint64(wire.MaxWord)
	noFlags  = byte(0)
	accused  = byte(1)
	identity = byte(2)
	held     = byte(4)
)

var (
	hash      = bytes.Repeat([]byte{0xab}, 16)
	loopback4 = []byte{4, 127, 0, 0, 1, 0x1e, 0xdc}
	port      = []byte{0x1e, 0xdc}
)

// caps has a pair of messages for each cap: one at the cap, and one that
// differs in nothing but the field that breaks it.
var caps = []struct {
	name         string
	fits, breaks []byte
}{
	{
		"ping: target zero",
		raw(wire.Ping, uint32(1), someID),
		raw(wire.Ping, uint32(1), zeroID),
	},
	{
		"ping-req: target zero",
		raw(wire.PingReq, uint32(1), someID, uint64(500)),
		raw(wire.PingReq, uint32(1), zeroID, uint64(500)),
	},
	{
		"ping-req: wait",
		raw(wire.PingReq, uint32(1), someID, uint64(wire.MaxWaitMillis)),
		raw(wire.PingReq, uint32(1), someID, uint64(wire.MaxWaitMillis+1)),
	},
	{
		"ping-req: wait that 32 bits would wrap",
		raw(wire.PingReq, uint32(1), someID, uint64(500)),
		raw(wire.PingReq, uint32(1), someID, uint64(1<<32+500)),
	},
	{
		"claim: subject zero",
		raw(wire.Claim, someID, word, word, byte(0), noFlags),
		raw(wire.Claim, zeroID, word, word, byte(0), noFlags),
	},
	{
		"claim: epoch",
		raw(wire.Claim, someID, maxWord, word, byte(0), noFlags),
		raw(wire.Claim, someID, maxWord+1, word, byte(0), noFlags),
	},
	{
		"claim: incarnation",
		raw(wire.Claim, someID, word, maxWord, byte(0), noFlags),
		raw(wire.Claim, someID, word, maxWord+1, byte(0), noFlags),
	},
	{
		"claim: incarnation above 64 bits",
		raw(wire.Claim, someID, word, strings.Repeat("\x80", 9)+"\x00", byte(0), noFlags),
		raw(wire.Claim, someID, word, strings.Repeat("\x80", 10)+"\x00", byte(0), noFlags),
	},
	{
		"claim: state",
		raw(wire.Claim, someID, word, word, byte(model.StateLeft), noFlags),
		raw(wire.Claim, someID, word, word, byte(model.StateLeft+1), noFlags),
	},
	{
		"claim: accusers",
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(4), ids(1, 2, 3, 4)),
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(5), ids(1, 2, 3, 4, 5)),
	},
	{
		"claim: fewer accusers than counted",
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(3), ids(1, 2, 3)),
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(4), ids(1, 2, 3)),
	},
	{
		"claim: one accuser twice",
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(2), ids(7, 8)),
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(2), ids(7, 7)),
	},
	{
		"claim: accuser zero",
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(2), ids(7, 8)),
		raw(wire.Claim, someID, word, word, byte(1), accused, byte(2), ids(7, 0)),
	},
	{
		"claim: name length",
		named(strings.Repeat("n", 63)),
		named(strings.Repeat("n", 64)),
	},
	{
		"claim: hold",
		raw(wire.Claim, someID, word, word, byte(0), held, uint64(wire.MaxHoldMillis)),
		raw(wire.Claim, someID, word, word, byte(0), held, uint64(wire.MaxHoldMillis+1)),
	},
	{
		"claim: hold that 32 bits would wrap",
		raw(wire.Claim, someID, word, word, byte(0), held, uint64(15000)),
		raw(wire.Claim, someID, word, word, byte(0), held, uint64(1<<32+15000)),
	},
	{
		"claim: hold flagged and missing",
		raw(wire.Claim, someID, word, word, byte(0), held, uint64(0)),
		raw(wire.Claim, someID, word, word, byte(0), held),
	},
	{"claim: name with a space", named("db-1.a_B~!"), named("db 1.a_B~!")},
	{"claim: name with an escape", named("[2Jx"), named("\x1b[2J")},
	{"claim: name with a line end", named("dbx"), named("db\n")},
	{"claim: name with a zero byte", named("dbx"), named("db\x00")},
	{"claim: name with DEL", named("dbx"), named("db\x7f")},
	{"claim: name beyond ASCII", named("dbxx"), named("dbé")},
	{"claim: name of broken UTF-8", named("dbx"), named("db\xff")},
	{
		"claim: IPv4 address of five bytes",
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(4), "\x7f\x00\x00\x01", port),
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(5), "\x7f\x00\x00\x01\x01", port),
	},
	{
		"claim: IPv6 address of seventeen bytes",
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(16), strings.Repeat("\x01", 16), port),
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(17), strings.Repeat("\x01", 17), port),
	},
	{
		"claim: address of no bytes",
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(4), "\x7f\x00\x00\x01", port),
		raw(wire.Claim, someID, word, word, byte(0), identity, byte(1), "a", byte(0), "\x7f\x00\x00\x01", port),
	},
	{
		"record: owner zero",
		raw(wire.RecordOf, someID, word, word, "payload"),
		raw(wire.RecordOf, zeroID, word, word, "payload"),
	},
	{
		"record: epoch",
		raw(wire.RecordOf, someID, maxWord, word, "payload"),
		raw(wire.RecordOf, someID, maxWord+1, word, "payload"),
	},
	{
		"record: seq",
		raw(wire.RecordOf, someID, word, maxWord, "payload"),
		raw(wire.RecordOf, someID, word, maxWord+1, "payload"),
	},
	{
		"record: payload",
		raw(wire.RecordOf, someID, word, word, make([]byte, 512)),
		raw(wire.RecordOf, someID, word, word, make([]byte, 513)),
	},
	{
		"part: total",
		raw(wire.Part, hash, uint64(wire.MaxDefinition), uint64(0), "x"),
		raw(wire.Part, hash, uint64(wire.MaxDefinition+1), uint64(0), "x"),
	},
	{
		"part: offset",
		raw(wire.Part, hash, uint64(wire.MaxDefinition), uint64(wire.MaxDefinition)),
		raw(wire.Part, hash, uint64(wire.MaxDefinition), uint64(wire.MaxDefinition+1)),
	},
	{
		"part: offset that 32 bits would wrap",
		raw(wire.Part, hash, uint64(3), uint64(2), "x"),
		raw(wire.Part, hash, uint64(3), uint64(1<<32+2), "x"),
	},
	{
		"part: bytes",
		raw(wire.Part, hash, uint64(wire.MaxDefinition), uint64(0), make([]byte, wire.MaxPartBytes)),
		raw(wire.Part, hash, uint64(wire.MaxDefinition), uint64(0), make([]byte, wire.MaxPartBytes+1)),
	},
	{
		"part: end beyond the total",
		raw(wire.Part, hash, uint64(10), uint64(7), "xyz"),
		raw(wire.Part, hash, uint64(10), uint64(8), "xyz"),
	},
	{
		"length of a body beyond the packet",
		[]byte{byte(wire.Ack), 4, 0, 0, 0, 1},
		[]byte{byte(wire.Ack), 5, 0, 0, 0, 1},
	},
	{
		"length of a body beyond the packet, unknown type",
		[]byte{200, 4, 0, 0, 0, 1},
		[]byte{200, 5, 0, 0, 0, 1},
	},
	{
		"length of a body beyond any packet",
		join(byte(200), uint64(4), uint32(1)),
		join(byte(200), uint64(1<<62), uint32(1)),
	},
	{
		"length of a body above 64 bits",
		join(byte(200), strings.Repeat("\x80", 9)+"\x00"),
		join(byte(200), strings.Repeat("\xff", 10)+"\x01"),
	},
	{
		"type without a length",
		raw(200),
		[]byte{200},
	},
}

func ids(list ...model.NodeID) []byte {
	var b []byte
	for _, id := range list {
		b = append(b, join(id)...)
	}
	return b
}

func named(name string) []byte {
	return raw(wire.Claim, someID, word, word, byte(0), identity, byte(len(name)), name, loopback4)
}

func TestCaps(t *testing.T) {
	good := wire.AppendAck(nil, 1)
	for _, c := range caps {
		t.Run(c.name, func(t *testing.T) {
			if _, err := codec.Open(seal(good, c.fits, good)); err != nil {
				t.Errorf("at the cap: %v", err)
			}
			// Refused wherever it is, and the good ones with it.
			for _, packet := range [][]byte{seal(c.breaks), seal(good, c.breaks)} {
				if p, err := codec.Open(packet); !errors.Is(err, wire.ErrMalformed) {
					t.Errorf("beyond the cap: %+v, %v; want ErrMalformed", p, err)
				}
			}
		})
	}
}

func TestHeaderCaps(t *testing.T) {
	header := func(version byte, id model.NodeID, epoch, incarnation uint64) []byte {
		return codec.Seal(join(version, id, epoch, incarnation))
	}
	for _, tt := range []struct {
		name   string
		packet []byte
		want   error
	}{
		{"at the caps", header(1, 1<<64-1, maxWord, maxWord), nil},
		{"least", header(1, 1, 0, 0), nil},
		{"sender zero", header(1, 0, 1, 1), wire.ErrMalformed},
		{"epoch", header(1, 1, maxWord+1, 1), wire.ErrMalformed},
		{"incarnation", header(1, 1, 1, maxWord+1), wire.ErrMalformed},
		{"incarnation missing", codec.Seal(join(byte(1), someID, "\x80\x01")), wire.ErrMalformed},
		{"version before", header(0, 1, 1, 1), wire.ErrVersion},
		{"version after", header(2, 1, 1, 1), wire.ErrVersion},
	} {
		if _, err := codec.Open(tt.packet); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// The largest frame, and one byte more.
func TestMaxFrameBytes(t *testing.T) {
	const around = 1 + 8 + 1 + 1 + 1 + 3 + 8 // header, type, length of three bytes, checksum
	for size, want := range map[int]error{wire.MaxFrameBytes: nil, wire.MaxFrameBytes + 1: wire.ErrTooLarge} {
		packet := seal(raw(200, make([]byte, size-around)))
		if len(packet) != size {
			t.Fatalf("built %d bytes, want %d", len(packet), size)
		}
		if _, err := codec.Open(packet); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "a": true, "!~": true, strings.Repeat("n", 63): true,
		strings.Repeat("n", 64): false, " ": false, "a\tb": false, "\x7f": false, "é": false,
	} {
		if wire.ValidName(name) != want || wire.ValidName([]byte(name)) != want {
			t.Errorf("%q: want %t", name, want)
		}
	}
}
