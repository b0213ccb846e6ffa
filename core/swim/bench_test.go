package swim_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// idle is a node among n members that has nothing to say any more.
func idle(tb testing.TB, n int) (*swim.Node, wire.Codec, time.Time) {
	tb.Helper()
	cfg := lan()
	now := time.Unix(1_000_000, 0)
	node, err := swim.New(cfg, swim.Self{ID: 1, Name: "n1", Addr: addr(1)}, 1, seeded(1), now)
	if err != nil {
		tb.Fatal(err)
	}
	codec := wire.NewCodec(cfg.Cluster)
	for i := 2; i <= n; i++ {
		packet := codec.Seal(wire.AppendClaim(codec.Begin(nil, model.NodeID(i), 1, 0), &wire.Claimed{
			Subject: model.NodeID(i), Value: model.Value{Epoch: 1}, Name: "n" + model.NodeID(i).String(), Addr: addr(i),
		}))
		if err := node.Step(addr(i), packet, now); err != nil {
			tb.Fatal(err)
		}
		node.Ready()
	}
	for len(node.Inspect().Rumours) > 0 {
		now = node.NextDeadline()
		node.Tick(now)
		for _, p := range node.Ready().Packets { // all answer
			open, err := codec.Open(p.Data)
			if err != nil {
				tb.Fatal(err)
			}
			var m wire.Message
			for r := open.Reader(); r.Next(&m); {
				if m.Type == wire.Ping {
					if err := node.Step(p.To, codec.Seal(wire.AppendAck(codec.Begin(nil, m.Subject, 1, 0), m.Seq)), now); err != nil {
						tb.Fatal(err)
					}
				}
			}
		}
	}
	node.Ready()
	return node, codec, now
}

// BenchmarkStepPing measures what a ping costs a node of 1,000 members that is
// idle otherwise: read it, answer it, hand the ack out.
func BenchmarkStepPing(b *testing.B) {
	node, codec, now := idle(b, 1000)
	packet := codec.Seal(wire.AppendPing(codec.Begin(nil, 77, 1, 0), 5, 1))
	b.ReportAllocs()
	for b.Loop() {
		if err := node.Step(addr(77), packet, now); err != nil {
			b.Fatal(err)
		}
		if len(node.Ready().Packets) != 1 {
			b.Fatal("no ack")
		}
	}
}

// BenchmarkStepPingFlooded is the same while 5,000 members started anew wait to
// be told of: what a packet carries costs, what it has no room for must not.
func BenchmarkStepPingFlooded(b *testing.B) {
	node, codec, now := idle(b, 10)
	ping := codec.Seal(wire.AppendPing(codec.Begin(nil, 7, 1, 0), 5, 1))
	b.ReportAllocs()
	for epoch, left := uint64(0), 0; b.Loop(); left-- {
		if left == 0 {
			b.StopTimer()
			epoch, left = epoch+1, 1000
			for i := model.NodeID(100); i < 5100; i++ {
				start := wire.Claimed{Subject: i, Value: model.Value{Epoch: epoch}, Name: "n" + i.String(), Addr: addr(int(i))}
				if err := node.Step(addr(7), codec.Seal(wire.AppendClaim(codec.Begin(nil, 7, 1, 0), &start)), now); err != nil {
					b.Fatal(err)
				}
			}
			node.Ready()
			b.StartTimer()
		}
		if err := node.Step(addr(7), ping, now); err != nil {
			b.Fatal(err)
		}
		if len(node.Ready().Packets) != 1 {
			b.Fatal("no ack")
		}
	}
}

// BenchmarkTickIdle measures a period of a node of 1,000 members: a ping out,
// its ack in.
func BenchmarkTickIdle(b *testing.B) {
	node, codec, _ := idle(b, 1000)
	reply := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		now := node.NextDeadline()
		node.Tick(now)
		for _, p := range node.Ready().Packets {
			open, err := codec.Open(p.Data)
			if err != nil {
				b.Fatal(err)
			}
			var m wire.Message
			for r := open.Reader(); r.Next(&m); {
				if m.Type == wire.Ping {
					reply = codec.Seal(wire.AppendAck(codec.Begin(reply, m.Subject, 1, 0), m.Seq))
					if err := node.Step(p.To, reply, now); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	}
}

// TestPingAllocatesNothing holds the hot path to what the benchmark shows.
func TestPingAllocatesNothing(t *testing.T) {
	node, codec, now := idle(t, 100)
	packet := codec.Seal(wire.AppendPing(codec.Begin(nil, 77, 1, 0), 5, 1))
	got := testing.AllocsPerRun(1000, func() {
		if err := node.Step(addr(77), packet, now); err != nil {
			t.Fatal(err)
		}
		node.Ready()
	})
	if got != 0 {
		t.Fatalf("%v allocations for a ping and its ack", got)
	}
}
