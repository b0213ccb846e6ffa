package wire_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/scale"
)

func TestEveryMessageRoundTrips(t *testing.T) {
	for _, typ := range types() {
		t.Run(typ.String(), func(t *testing.T) {
			s := newSource(uint64(typ))
			for range scale.N(5_000) {
				want := s.message(typ)
				message := appendMessage(nil, &want)
				got := mustOpen(t, seal(message))
				if len(got) != 1 || !same(got[0], want) {
					t.Fatalf("read\n%+v, want\n%+v\nfrom % x", got, want, message)
				}
			}
		})
	}
}

// Messages of all types in one packet, after any header.
func TestEveryPacketRoundTrips(t *testing.T) {
	s := newSource(1)
	for range scale.N(5_000) {
		id, epoch, incarnation := s.id(), s.upTo(wire.MaxWord), s.upTo(wire.MaxWord)
		packet := codec.Begin(nil, id, epoch, incarnation)
		var want []wire.Message
		for range s.IntN(12) {
			m := s.message(types()[s.IntN(len(types()))])
			if next := appendMessage(packet, &m); len(next)+codec.Overhead() <= wire.MaxFrameBytes {
				packet, want = next, append(want, m)
			}
		}
		body := len(packet)
		packet = codec.Seal(packet)
		if len(packet) != body+codec.Overhead() {
			t.Fatalf("Seal added %d bytes, Overhead is %d", len(packet)-body, codec.Overhead())
		}
		before := bytes.Clone(packet)
		p, err := codec.Open(packet)
		if err != nil {
			t.Fatal(err)
		}
		if p.Sender != id || p.Epoch != epoch || p.Incarnation != incarnation {
			t.Fatalf("header reads %+v, want %v %d %d", p, id, epoch, incarnation)
		}
		got := messagesOf(&p)
		if len(got) != len(want) {
			t.Fatalf("%d messages, want %d", len(got), len(want))
		}
		for i := range want {
			if !same(got[i], want[i]) {
				t.Fatalf("message %d reads\n%+v, want\n%+v", i, got[i], want[i])
			}
		}
		if first := p.First(); len(want) > 0 && first != want[0].Type || len(want) == 0 && first != 0 {
			t.Fatalf("First is %v of %+v", first, want)
		}
		if !bytes.Equal(before, packet) {
			t.Fatal("reading changed the packet")
		}
	}
}

// A reader hands its memory out; who appends to a name must not write over
// what follows it in the packet.
func TestDecodedBytesAreClipped(t *testing.T) {
	packet := seal(appendMessage(nil, &wire.Message{
		Type: wire.Claim, Subject: 1, HasMeta: true, Name: []byte("a"), Addr: netip.MustParseAddrPort("127.0.0.1:1"),
	}), wire.AppendRecord(nil, 1, 1, 1, []byte("x")), wire.AppendAck(nil, 1))
	before := bytes.Clone(packet)
	for _, m := range mustOpen(t, packet) {
		_, _ = append(m.Name, "overwrites"...), append(m.Payload, "overwrites"...)
	}
	if !bytes.Equal(before, packet) {
		t.Error("appending to a decoded field changed the packet")
	}
}

// The encoders of fields with a cap clamp what would be refused everywhere.
func TestEncodersClamp(t *testing.T) {
	long := bytes.Repeat([]byte("n"), wire.MaxNameBytes+1)
	claim := wire.Claimed{Subject: 1, Name: string(long), Addr: netip.MustParseAddrPort("127.0.0.1:1")}
	if got := mustOpen(t, seal(wire.AppendClaim(nil, &claim))); len(got[0].Name) != wire.MaxNameBytes {
		t.Errorf("a name of %d bytes travels as %q", len(long), got[0].Name)
	}
	if got := mustOpen(t, seal(wire.AppendPingReq(nil, 1, 1, 1<<31))); got[0].WaitMillis != wire.MaxWaitMillis {
		t.Errorf("a wait of 2^31 ms travels as %d", got[0].WaitMillis)
	}
	if got := mustOpen(t, seal(wire.AppendClaim(nil, &wire.Claimed{Subject: 1, HoldMillis: 1 << 31}))); got[0].HoldMillis != wire.MaxHoldMillis {
		t.Errorf("a hold of 2^31 ms travels as %d", got[0].HoldMillis)
	}
}

// An IPv4 address in IPv6 form is the IPv4 address, however it was written.
func TestMappedAddressesAreIPv4(t *testing.T) {
	want := netip.MustParseAddrPort("10.0.0.1:80")
	mapped := netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")
	b := mapped.Addr().As16()
	for how, message := range map[string][]byte{
		"encoder": wire.AppendClaim(nil, &wire.Claimed{Subject: 1, Name: "a", Addr: mapped}),
		"by hand": raw(wire.Claim, model.NodeID(1), uint64(1), uint64(0), byte(0), byte(2), byte(1), "a", byte(16), b[:], []byte{0, 80}),
	} {
		if got := mustOpen(t, seal(message)); got[0].Addr != want {
			t.Errorf("%s: got %v, want %v", how, got[0].Addr, want)
		}
	}
}

// A claim without an address says nothing of the name.
func TestClaimWithoutAddressHasNoName(t *testing.T) {
	got := mustOpen(t, seal(wire.AppendClaim(nil, &wire.Claimed{Subject: 1, Name: "a"})))
	if got[0].HasMeta || got[0].Name != nil || got[0].Addr.IsValid() {
		t.Errorf("got %+v", got[0])
	}
}

// The set against a dumb twin: a slice that is searched.
func TestAccusersAreASmallSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range scale.N(5_000) {
		var set wire.Accusers
		var twin []model.NodeID
		for range rng.IntN(12) {
			id := model.NodeID(rng.Uint64N(7))
			grows := id != 0 && len(twin) < wire.MaxAccusers
			for _, have := range twin {
				grows = grows && have != id
			}
			if grows {
				twin = append(twin, id)
			}
			if set.Add(id) != grows {
				t.Fatalf("Add(%v) to %v: want %t", id, twin, grows)
			}
			for probe := range model.NodeID(8) {
				has := false
				for _, have := range twin {
					has = has || have == probe
				}
				if set.Has(probe) != has {
					t.Fatalf("Has(%v) of %v: want %t", probe, twin, has)
				}
			}
			if set.Len() != len(twin) || len(set.List()) != len(twin) {
				t.Fatalf("%d, %v; want %v", set.Len(), set.List(), twin)
			}
			for i, have := range set.List() {
				if have != twin[i] {
					t.Fatalf("%v; want the order of arrival, %v", set.List(), twin)
				}
			}
		}
	}
}

func TestHashOfIsTheStartOfSHA256(t *testing.T) {
	empty := wire.Hash(unhex(t, "e3b0c44298fc1c149afbf4c8996fb924"))
	if got := wire.HashOf(nil); got != empty {
		t.Errorf("of nothing: %x, want %x", got, empty)
	}
}
