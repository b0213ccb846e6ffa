package sim

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/scale"
)

// Invariant 1: the same seed gives a byte-identical trace.
func TestInvariant01SameSeedSameTrace(t *testing.T) {
	traces := map[uint64]uint64{}
	for seed := uint64(1); seed <= uint64(scale.N(20)); seed++ {
		a, b := Run(seed), Run(seed)
		if a.Trace != b.Trace || a.Records != b.Records {
			t.Errorf("seed %d: traces %x of %d records and %x of %d", seed, a.Trace, a.Records, b.Trace, b.Records)
		}
		if other, twice := traces[a.Trace]; twice {
			t.Errorf("seeds %d and %d have the same trace: the seed decides nothing", seed, other)
		}
		traces[a.Trace] = seed
	}
}

// merge is what core/swim does with two values of one member.
func merge(a, b model.Value) model.Value {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}

// Invariant 7: merge is commutative, associative and idempotent, and at one
// word alive < suspect < dead < left. A later word beats any state.
func TestInvariant07MergeIsALattice(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	value := func() model.Value {
		return model.Value{Epoch: rng.Uint64N(3), Incarnation: rng.Uint64N(3), State: model.State(rng.IntN(4))}
	}
	for range scale.N(100_000) {
		a, b, c := value(), value(), value()
		switch {
		case merge(a, b) != merge(b, a):
			t.Fatalf("%v and %v: the order matters", a, b)
		case merge(merge(a, b), c) != merge(a, merge(b, c)):
			t.Fatalf("%v, %v and %v: the grouping matters", a, b, c)
		case merge(a, a) != a || merge(merge(a, b), b) != merge(a, b):
			t.Fatalf("%v and %v: repeating matters", a, b)
		case a.Epoch > b.Epoch && merge(a, b) != a,
			a.Epoch == b.Epoch && a.Incarnation > b.Incarnation && merge(a, b) != a,
			a.CompareWord(b) == 0 && a.State > b.State && merge(a, b) != a:
			t.Fatalf("%v does not beat %v", a, b)
		}
	}
}

// Invariant 21: any bytes give an error or a value, and memory is bounded. The
// bytes are valid packets with damage behind a valid checksum, so that they
// reach every decoder.
func TestInvariant21DecoderIsTotal(t *testing.T) {
	const perPacket = 64 << 10
	rng := rand.New(rand.NewPCG(21, 21))
	cfg := swim.DefaultLAN()
	cfg.Cluster = "sim"
	codec := wire.NewCodec(cfg.Cluster)
	samples := samplePackets(cfg)
	addr := netip.MustParseAddrPort("10.1.0.1:7400")
	node, err := swim.New(cfg, swim.Self{ID: 1, Name: "n1", Addr: addr}, 1, rng, Epoch())
	if err != nil {
		t.Fatal(err)
	}
	opened, refused := 0, 0
	var before, after runtime.MemStats
	for range scale.N(20_000) {
		data := slices.Clone(samples[rng.IntN(len(samples))])
		data = data[:len(data)-codec.Overhead()]
		for range 1 + rng.IntN(4) {
			switch i := rng.IntN(len(data)); rng.IntN(4) {
			case 0:
				data[i] = byte(rng.IntN(256))
			case 1:
				data = slices.Insert(data, i, byte(rng.IntN(256)), byte(rng.IntN(256)))
			case 2:
				data = append(data[:i], data[min(len(data), i+1+rng.IntN(8)):]...)
			case 3:
				data = append(data, data[i:]...)
			}
			if len(data) == 0 {
				data = []byte{1}
			}
		}
		data = codec.Seal(data)
		now := Epoch()
		if rng.IntN(100) == 0 { // measuring stops the world, so now and then
			runtime.ReadMemStats(&before)
			err = node.Step(addr, data, now)
			runtime.ReadMemStats(&after)
			if grew := after.TotalAlloc - before.TotalAlloc; grew > perPacket {
				t.Fatalf("a packet of %d bytes took %d bytes of memory: at most %d", len(data), grew, perPacket)
			}
		} else {
			err = node.Step(addr, data, now)
		}
		if err != nil {
			refused++
		} else {
			opened++
		}
		_, _ = node.ServeFrame(data, now) // any answer will do, but one
		for _, p := range node.Ready().Packets {
			if len(p.Data) > cfg.MTU {
				t.Fatalf("%d bytes leave at once", len(p.Data))
			}
		}
	}
	t.Logf("%d packets opened, %d refused", opened, refused)
	if opened == 0 || refused == 0 {
		t.Error("want both")
	}
}

// samplePackets are real packets and frames of a small cluster in trouble.
func samplePackets(cfg swim.Config) [][]byte {
	var samples [][]byte
	w := NewWorld(21, cfg, NewTally())
	w.invariants = append(w.invariants, Invariant{Name: "collect", Check: func(o *Observation) error {
		for _, p := range o.Ready.Packets {
			samples = append(samples, slices.Clone(p.Data))
		}
		for _, f := range o.Frames {
			samples = append(samples, slices.Clone(f))
		}
		return nil
	}})
	first := w.Join("n1", nil)
	for _, name := range []string{"n2", "n3", "n4"} {
		w.SetRecord(w.Join(name, []netip.AddrPort{first.Addr}), 40)
	}
	w.Run(3e9)
	w.Crash(first, true)
	w.Run(10e9)
	return samples
}

// TestCheckersCanFail shows those that no mutant provokes what they look for.
func TestCheckersCanFail(t *testing.T) {
	cfg := swim.DefaultLAN()
	cfg.Cluster = "sim"
	w := NewWorld(1, cfg, NewTally())
	a := w.Join("a", nil)
	b := w.Join("b", []netip.AddrPort{a.Addr})
	c := w.Join("c", []netip.AddrPort{a.Addr})
	if Invariant15LiveAgree(w) == nil {
		t.Error("Invariant15LiveAgree holds before anybody met")
	}
	w.Run(20e9)
	for name, check := range map[string]func(*World) error{
		"Invariant15LiveAgree": Invariant15LiveAgree, "Invariant10QueuesDrain": Invariant10QueuesDrain,
		"Invariant18OneWayLinkKillsNobody": Invariant18OneWayLinkKillsNobody, "Invariant22NothingRunsOn": Invariant22NothingRunsOn,
	} {
		if err := check(w); err != nil {
			t.Errorf("%s in a quiet cluster: %v", name, err)
		}
	}
	w.SetRecord(b, 10)
	if Invariant10QueuesDrain(w) == nil {
		t.Error("Invariant10QueuesDrain holds beside a new record")
	}
	w.Partition([]*Process{c})
	w.Run(Detection(&cfg, 3))
	if Invariant18OneWayLinkKillsNobody(w) == nil {
		t.Error("Invariant18OneWayLinkKillsNobody holds although c was cut off both ways")
	}
	if Invariant14LeaveIsNoFailure(w, c) == nil {
		t.Error("Invariant14LeaveIsNoFailure holds although c died")
	}
	if Invariant14CrashIsDetected(w, b) == nil {
		t.Error("Invariant14CrashIsDetected holds although b lives")
	}
	w.MendAll()
	w.Run(1500e6)
	w.Crash(c, true)
	w.Run(2500e6)
	if w.Finding() != nil {
		t.Fatal(w.Finding())
	}
}
