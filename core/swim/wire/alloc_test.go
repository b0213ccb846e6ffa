package wire_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// paths are the packets of the hot path, as their encoders are called.
var paths = []struct {
	name  string
	write func(buf []byte) []byte
}{
	{"Ping", func(buf []byte) []byte { return wire.AppendPing(buf, 7, someID) }},
	{"Ack", func(buf []byte) []byte { return wire.AppendAck(buf, 7) }},
	{"10Claims", func(buf []byte) []byte {
		for i := range tenClaims {
			buf = wire.AppendClaim(buf, &tenClaims[i])
		}
		return buf
	}},
}

// tenClaims are what a busy packet carries: half of them with a name and an
// address, and one suspicion with all accusers.
var tenClaims = func() [10]wire.Claimed {
	var claims [10]wire.Claimed
	for i := range claims {
		claims[i] = wire.Claimed{Subject: model.NodeID(i + 1), Value: model.Value{Epoch: 300, Incarnation: uint64(i)}}
		if i%2 == 0 {
			claims[i].Name = fmt.Sprintf("node-with-a-long-name-that-no-small-buffer-holds-%02d", i)
			claims[i].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7900)
		}
	}
	claims[3].Value.State = model.StateSuspect
	claims[3].Accusers = accusers(1, 2, 3, 4)
	return claims
}()

func encode(buf []byte, write func([]byte) []byte) []byte {
	return codec.Seal(write(codec.Begin(buf, sender, epoch, incarnation)))
}

// decode reads a whole packet, the way a node does.
func decode(packet []byte) (messages int, err error) {
	p, err := codec.Open(packet)
	if err != nil {
		return 0, err
	}
	r := p.Reader()
	var m wire.Message
	for r.Next(&m) {
		messages++
	}
	return messages, nil
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			buf := make([]byte, 0, 1400)
			if n := testing.AllocsPerRun(100, func() { buf = encode(buf, path.write) }); n != 0 {
				t.Errorf("encoding allocates %v times", n)
			}
			messages := 0
			n := testing.AllocsPerRun(100, func() { messages, _ = decode(buf) })
			if n != 0 {
				t.Errorf("decoding allocates %v times", n)
			}
			if messages == 0 {
				t.Error("decoding read nothing")
			}
		})
	}
}

// Noise must not make work for the collector either.
func TestRefusingDoesNotAllocate(t *testing.T) {
	noise := encode(nil, paths[0].write)
	noise[len(noise)-1]++
	if n := testing.AllocsPerRun(100, func() { _, _ = codec.Open(noise) }); n != 0 {
		t.Errorf("refusing a checksum allocates %v times", n)
	}
}

func BenchmarkEncodePing(b *testing.B)     { benchmarkEncode(b, 0) }
func BenchmarkDecodePing(b *testing.B)     { benchmarkDecode(b, 0) }
func BenchmarkEncodeAck(b *testing.B)      { benchmarkEncode(b, 1) }
func BenchmarkDecodeAck(b *testing.B)      { benchmarkDecode(b, 1) }
func BenchmarkEncode10Claims(b *testing.B) { benchmarkEncode(b, 2) }
func BenchmarkDecode10Claims(b *testing.B) { benchmarkDecode(b, 2) }

func benchmarkEncode(b *testing.B, path int) {
	buf := make([]byte, 0, 1400)
	b.ReportAllocs()
	for b.Loop() {
		buf = encode(buf, paths[path].write)
	}
	b.SetBytes(int64(len(buf)))
}

func benchmarkDecode(b *testing.B, path int) {
	packet := encode(nil, paths[path].write)
	b.SetBytes(int64(len(packet)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(packet); err != nil {
			b.Fatal(err)
		}
	}
}
