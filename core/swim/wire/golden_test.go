package wire_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// golden pins the format: append rows, never change one. A node of any version
// has to read the packets of every other.
//
//	type  length  fields as in the package comment
//	01    0c      00000007 fedcba9876543210
var golden = []struct {
	name string
	hex  string
	m    wire.Message
}{
	{
		"ping",
		"01 0c  00000007 fedcba9876543210",
		wire.Message{Type: wire.Ping, Seq: 7, Subject: 0xfedcba9876543210},
	},
	{
		"ack",
		"02 04  01020304",
		wire.Message{Type: wire.Ack, Seq: 0x01020304},
	},
	{
		//               seq      target           wait: 300 = 2·128 + 44
		"ping-req",
		"03 0e  00000008 fedcba9876543210 ac02",
		wire.Message{Type: wire.PingReq, Seq: 8, Subject: 0xfedcba9876543210, WaitMillis: 300},
	},
	{
		"nack, no answer",
		"04 05  ffffffff 00",
		wire.Message{Type: wire.Nack, Seq: 1<<32 - 1, Reason: wire.NackNoAnswer},
	},
	{
		"nack, unknown",
		"04 05  00000000 01",
		wire.Message{Type: wire.Nack, Reason: wire.NackUnknown},
	},
	{
		//               subject          epoch incarnation state flags
		"claim, alive",
		"05 0c  fedcba9876543210 03 01 00 00",
		wire.Message{Type: wire.Claim, Subject: 0xfedcba9876543210, Value: model.Value{Epoch: 3, Incarnation: 1}},
	},
	{
		//                                            accusers
		"claim, suspect",
		"05 1d  fedcba9876543210 03 01 01 01  02 0000000000000001 0000000000000002",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210, Accusers: accusers(1, 2),
			Value: model.Value{Epoch: 3, Incarnation: 1, State: model.StateSuspect},
		},
	},
	{
		"claim, dead, greatest words",
		"05 18  fedcba9876543210 ffffffffffff3f ffffffffffff3f 02 00",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210,
			Value: model.Value{Epoch: wire.MaxWord, Incarnation: wire.MaxWord, State: model.StateDead},
		},
	},
	{
		//                                            name         address
		"claim, left, IPv4",
		"05 19  fedcba9876543210 80 01 02 03 02  04 64622d31  04 0a000001 1edc",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210, HasMeta: true,
			Value: model.Value{Epoch: 128, Incarnation: 2, State: model.StateLeft},
			Name:  []byte("db-1"), Addr: netip.MustParseAddrPort("10.0.0.1:7900"),
		},
	},
	{
		"claim, accusers, IPv6",
		"05 2a  fedcba9876543210 01 00 01 03  01 0000000000000009  01 61  10 fd000000000000000000000000000001 0050",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210, HasMeta: true, Accusers: accusers(9),
			Value: model.Value{Epoch: 1, State: model.StateSuspect},
			Name:  []byte("a"), Addr: netip.MustParseAddrPort("[fd00::1]:80"),
		},
	},
	{
		//                                            hold: 15000 = 117·128 + 24
		"claim, held",
		"05 0e  fedcba9876543210 03 02 00 04  9875",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210, Value: model.Value{Epoch: 3, Incarnation: 2}, HoldMillis: 15000,
		},
	},
	{
		"claim, IPv4, held",
		"05 19  fedcba9876543210 03 02 00 06  04 64622d31  04 0a000001 1edc  64",
		wire.Message{
			Type: wire.Claim, Subject: 0xfedcba9876543210, HasMeta: true, HoldMillis: 100,
			Value: model.Value{Epoch: 3, Incarnation: 2},
			Name:  []byte("db-1"), Addr: netip.MustParseAddrPort("10.0.0.1:7900"),
		},
	},
	{
		//               owner            epoch seq  payload
		"record",
		"06 0e  fedcba9876543210 03 ac02  00ff7f",
		wire.Message{Type: wire.RecordOf, Subject: 0xfedcba9876543210, Epoch: 3, RecordSeq: 300, Payload: []byte{0, 0xff, 0x7f}},
	},
	{
		// a body of 128 bytes or more has a length of two
		"record, long",
		"06 8a02  fedcba9876543210 03 07 " + strings.Repeat("55", 256),
		wire.Message{Type: wire.RecordOf, Subject: 0xfedcba9876543210, Epoch: 3, RecordSeq: 7, Payload: bytes.Repeat([]byte{0x55}, 256)},
	},
	{"exchange", "07 01  00", wire.Message{Type: wire.Exchange}},
	{"exchange, answer", "07 01  01", wire.Message{Type: wire.Exchange, Answer: true}},
	{"exchange, end", "07 01  02", wire.Message{Type: wire.Exchange, Last: true}},
	{"exchange, end of the answer", "07 01  03", wire.Message{Type: wire.Exchange, Answer: true, Last: true}},
	{
		"pull",
		"08 10  ba7816bf8f01cfea414140de5dae2223",
		wire.Message{Type: wire.Pull, Hash: wire.HashOf([]byte("abc"))}, // the example of FIPS 180
	},
	{
		//               hash                             total offset bytes
		"part",
		"09 14  ba7816bf8f01cfea414140de5dae2223 03 01  6263",
		wire.Message{Type: wire.Part, Hash: wire.HashOf([]byte("abc")), Total: 3, Offset: 1, Payload: []byte("bc")},
	},
}

func accusers(ids ...model.NodeID) wire.Accusers {
	var a wire.Accusers
	for _, id := range ids {
		a.Add(id)
	}
	return a
}

func TestGoldenMessages(t *testing.T) {
	seen := map[wire.Type]bool{}
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			seen[g.m.Type] = true
			want := unhex(t, g.hex)
			if got := appendMessage(nil, &g.m); !bytes.Equal(got, want) {
				t.Errorf("written\n% x, want\n% x", got, want)
			}
			if got := mustOpen(t, seal(want)); len(got) != 1 || !same(got[0], g.m) {
				t.Errorf("read\n%+v, want\n%+v", got, g.m)
			}
		})
	}
	for _, typ := range types() {
		if !seen[typ] {
			t.Errorf("no row pins %v", typ)
		}
	}
}

// The whole packet: version, sender, epoch 300, incarnation, a ping and an
// ack, checksum. The last was computed by another implementation of XXH64, with
// the seed that the package comment gives the cluster "test".
func TestGoldenPacket(t *testing.T) {
	want := unhex(t, `
		01 0123456789abcdef ac02 01
		01 0c 00000007 fedcba9876543210
		02 04 01020304
		0640a53653d2a8db`)
	got := codec.Begin([]byte("is overwritten"), sender, 300, 1)
	got = wire.AppendPing(got, 7, 0xfedcba9876543210)
	got = wire.AppendAck(got, 0x01020304)
	if got = codec.Seal(got); !bytes.Equal(got, want) {
		t.Errorf("written\n%s, want\n%s", hex.EncodeToString(got), hex.EncodeToString(want))
	}
	p, err := codec.Open(want)
	if err != nil {
		t.Fatal(err)
	}
	if p.Sender != sender || p.Epoch != 300 || p.Incarnation != 1 || p.First() != wire.Ping {
		t.Errorf("read %+v, first %v", p, p.First())
	}
	if list := messagesOf(&p); len(list) != 2 || list[1].Seq != 0x01020304 {
		t.Errorf("read %+v", list)
	}
}

func TestTypesKeepTheirNames(t *testing.T) {
	want := []string{"ping", "ack", "ping-req", "nack", "claim", "record", "exchange", "pull", "part"}
	for i, name := range want {
		if got := wire.Type(i + 1).String(); got != name {
			t.Errorf("type %d prints as %q, want %q", i+1, got, name)
		}
	}
	if len(types()) != len(want) {
		t.Errorf("%d types, %d names pinned", len(types()), len(want))
	}
	for _, unknown := range []wire.Type{0, wire.Type(len(want) + 1), 255} {
		if got := unknown.String(); !strings.HasPrefix(got, "type(") {
			t.Errorf("unknown type %d prints as %q", uint8(unknown), got)
		}
	}
}

func TestCapsKeepTheirValues(t *testing.T) {
	for name, v := range map[string][2]uint64{
		"MaxFrameBytes":  {wire.MaxFrameBytes, 32768},
		"MaxNameBytes":   {wire.MaxNameBytes, 63},
		"MaxAccusers":    {wire.MaxAccusers, 4},
		"MaxRecordBytes": {wire.MaxRecordBytes, 512},
		"MaxWord":        {wire.MaxWord, 281474976710655},
		"MaxWaitMillis":  {wire.MaxWaitMillis, 60000},
		"MaxHoldMillis":  {wire.MaxHoldMillis, 3600000},
		"MaxPartBytes":   {wire.MaxPartBytes, 30720},
		"MaxDefinition":  {wire.MaxDefinition, 1048576},
	} {
		if v[0] != v[1] {
			t.Errorf("%s is %d, want %d: nodes that hold on to another cap refuse the packet", name, v[0], v[1])
		}
	}
}
