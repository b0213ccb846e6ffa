package wire_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// maxAllocated is how many bytes opening any packet may allocate.
const maxAllocated = 64 << 10

// FuzzOpen: any bytes are refused with one of the four errors or are a packet
// whose messages say the same when they are written again. The input is tried
// as it is and with a valid checksum behind it, which no mutation finds alone.
func FuzzOpen(f *testing.F) {
	for _, packet := range golden {
		m := packet.m
		f.Add(appendMessage(codec.Begin(nil, sender, epoch, incarnation), &m))
	}
	for _, c := range caps {
		f.Add(append(codec.Begin(nil, sender, epoch, incarnation), c.fits...))
		f.Add(append(codec.Begin(nil, sender, epoch, incarnation), c.breaks...))
	}
	f.Add(seal(wire.AppendAck(nil, 1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		openAny(t, body)
		openAny(t, codec.Seal(append(make([]byte, 0, len(body)+codec.Overhead()), body...)))
	})
}

func openAny(t *testing.T, packet []byte) {
	before := allocated()
	p, err := codec.Open(packet)
	if allocated()-before > maxAllocated {
		if n := exactlyAllocated(func() { _, _ = codec.Open(packet) }); n > maxAllocated {
			t.Errorf("opening %d bytes allocated %d", len(packet), n)
		}
	}
	if err != nil {
		for _, known := range []error{wire.ErrMalformed, wire.ErrTooLarge, wire.ErrVersion, wire.ErrChecksum} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Fatalf("unknown error: %v", err)
	}

	if p.Sender == 0 || p.Epoch > wire.MaxWord || p.Incarnation > wire.MaxWord {
		t.Errorf("header beyond its caps: %+v", p)
	}
	messages := messagesOf(&p)
	again := codec.Begin(nil, p.Sender, p.Epoch, p.Incarnation)
	for i := range messages {
		again = appendMessage(again, &messages[i])
	}
	q, err := codec.Open(codec.Seal(again))
	if err != nil {
		t.Fatalf("written again: %v: %+v", err, messages)
	}
	if q.Sender != p.Sender || q.Epoch != p.Epoch || q.Incarnation != p.Incarnation {
		t.Errorf("header %+v, written again %+v", p, q)
	}
	got := messagesOf(&q)
	if len(got) != len(messages) {
		t.Fatalf("%d messages, written again %d", len(messages), len(got))
	}
	for i := range got {
		if !same(got[i], messages[i]) {
			t.Errorf("message\n%+v, written again\n%+v", messages[i], got[i])
		}
	}
}

// allocated is how many bytes this process ever allocated. It is cheap, and
// counts large objects at once, but small ones late and many together, so that
// an excess calls for exactlyAllocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// exactlyAllocated stops the world around do.
func exactlyAllocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzClaim: a claim of any fields is read as it was written if all of them
// are within their caps, and refused if one is not.
func FuzzClaim(f *testing.F) {
	f.Add(uint64(1), uint64(3), uint64(1), byte(0), []byte{}, "db-1", []byte{10, 0, 0, 1}, uint16(7900), uint32(15_000))
	f.Add(uint64(1), uint64(wire.MaxWord), uint64(wire.MaxWord+1), byte(1), ids(1, 2, 3, 4), "", make([]byte, 16), uint16(0), uint32(0))
	f.Add(uint64(0), uint64(0), uint64(0), byte(4), ids(1, 1), "a b", []byte{}, uint16(1), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, subject, epoch, incarnation uint64, state byte, accusers []byte, name string, addr []byte, port uint16, hold uint32) {
		claim := wire.Claimed{
			Subject: model.NodeID(subject), Name: name,
			Value:      model.Value{Epoch: epoch, Incarnation: incarnation, State: model.State(state)},
			HoldMillis: hold,
		}
		for ; len(accusers) >= 8; accusers = accusers[8:] {
			claim.Accusers.Add(model.NodeID(binary.BigEndian.Uint64(accusers)))
		}
		if ip, ok := netip.AddrFromSlice(addr); ok {
			claim.Addr = netip.AddrPortFrom(ip, port)
		}

		// What is to be read, and whether anything is.
		want := wire.Message{Type: wire.Claim, Subject: claim.Subject, Value: claim.Value, Accusers: claim.Accusers, HoldMillis: min(hold, wire.MaxHoldMillis)}
		valid := subject != 0 && epoch <= wire.MaxWord && incarnation <= wire.MaxWord && claim.Value.State <= model.StateLeft
		if claim.Addr.IsValid() {
			want.HasMeta = true
			want.Name = []byte(name[:min(len(name), wire.MaxNameBytes)])
			want.Addr = netip.AddrPortFrom(claim.Addr.Addr().Unmap(), port)
			valid = valid && wire.ValidName(want.Name)
		}
		p, err := codec.Open(seal(wire.AppendClaim(nil, &claim)))
		if !valid {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%+v: %v, want ErrMalformed", claim, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%+v: %v", claim, err)
		}
		if got := messagesOf(&p); len(got) != 1 || !same(got[0], want) {
			t.Errorf("read %+v, want %+v", got, want)
		}
	})
}
