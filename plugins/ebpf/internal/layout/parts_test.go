package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

func addrPort(a netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }

func TestShareIsExactForSmallWeights(t *testing.T) {
	for _, test := range []struct {
		weights []uint16
		want    []int
	}{
		{nil, nil},
		{[]uint16{7}, []int{1}},
		{[]uint16{1, 2, 7}, []int{1, 2, 7}},
		{[]uint16{100, 200, 700}, []int{1, 2, 7}},
		{[]uint16{65535, 65535}, []int{1, 1}},
	} {
		if got := Share(test.weights); !slices.Equal(got, test.want) {
			t.Errorf("Share(%v) = %v, want %v", test.weights, got, test.want)
		}
	}
}

// TestShareIsNear: every endpoint takes part, the set stays in bounds, and no share
// is off by more than one slot beside what the smallest must be given.
func TestShareIsNear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range scale.N(5000) {
		weights := make([]uint16, 1+r.IntN(40))
		sum := 0
		for i := range weights {
			weights[i] = uint16(1 + r.IntN(1<<(1+r.IntN(16))-1))
			sum += int(weights[i])
		}
		shares := Share(weights)
		total, raised := 0, 0
		for _, s := range shares {
			total += s
		}
		for i := range shares {
			if int(weights[i])*total < sum {
				raised++
			}
		}
		for i, s := range shares {
			exact := float64(weights[i]) * float64(total) / float64(sum)
			if s < 1 || float64(s) > max(1, exact+1.001) || float64(s) < exact-1.001-float64(raised) {
				t.Fatalf("Share(%v): %d of %d slots for weight %d of %d, exactly %.2f", weights, s, total, weights[i], sum, exact)
			}
		}
		if total > MaxCount {
			t.Fatalf("Share(%v) has %d slots", weights, total)
		}
	}
	if n := len(Share(make65535())); n != MaxCount {
		t.Errorf("%d endpoints have shares", n)
	}
}

func make65535() []uint16 {
	weights := make([]uint16, MaxCount)
	for i := range weights {
		weights[i] = uint16(1 + i)
	}
	return weights
}

// TestRegionsNeverOverlap against a list of taken slots.
func TestRegionsNeverOverlap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		const size = 256
		regions := NewRegions(size)
		taken := make([]bool, size)
		live := make(map[uint32]int)
		for range scale.N(3000) {
			if r.IntN(2) == 0 {
				n := 1 + r.IntN(20)
				at, ok := regions.Alloc(n)
				if !ok {
					continue
				}
				for i := at; i < at+RegionSlots(n); i++ {
					if i >= size || taken[i] {
						t.Fatalf("seed %d: slot %d was given out twice, or is outside", seed, i)
					}
					taken[i] = true
				}
				live[at] = n
			} else {
				for at, n := range live {
					regions.Free(at)
					for i := at; i < at+RegionSlots(n); i++ {
						taken[i] = false
					}
					delete(live, at)
					break
				}
			}
			if r.IntN(50) == 0 { // another process takes over
				fresh := NewRegions(size)
				if !fresh.Claim(live) {
					t.Fatalf("seed %d: regions that do not overlap could not be claimed", seed)
				}
				if fresh.Used() != regions.Used() {
					t.Fatalf("seed %d: %d slots are used, %d after a claim", seed, regions.Used(), fresh.Used())
				}
				regions = fresh
			}
		}
	}
	if NewRegions(8).Claim(map[uint32]int{0: 4, 2: 2}) || NewRegions(8).Claim(map[uint32]int{4: 8}) {
		t.Error("regions were claimed that overlap or do not fit")
	}
}

func TestIDsAreGivenOutOnce(t *testing.T) {
	ids := NewIDs(3)
	for want := range uint32(3) {
		if id, ok := ids.Alloc(); !ok || id != want {
			t.Fatalf("got %d, %v", id, ok)
		}
	}
	if id, ok := ids.Alloc(); ok {
		t.Fatalf("a fourth: %d", id)
	}
	ids.Free(1)
	if id, ok := ids.Alloc(); !ok || id != 1 {
		t.Fatalf("after 1 was free: %d, %v", id, ok)
	}
	claimed := NewIDs(4)
	if !claimed.Claim([]uint32{2, 0}) || NewIDs(4).Claim([]uint32{1, 1}) || NewIDs(4).Claim([]uint32{4}) {
		t.Fatal("Claim took what is wrong, or refused what is right")
	}
	var rest []uint32
	for id, ok := claimed.Alloc(); ok; id, ok = claimed.Alloc() {
		rest = append(rest, id)
	}
	slices.Sort(rest)
	if !slices.Equal(rest, []uint32{1, 3}) {
		t.Errorf("free beside 0 and 2 of 4: %v", rest)
	}
}

func TestWordsAndKeysComeBack(t *testing.T) {
	p := NewPublication(1<<31|5, MaxCount, Published|Sticky)
	if p.Set() != 1<<31|5 || p.Count() != MaxCount || p.Flags() != Published|Sticky {
		t.Errorf("%x: set %d count %d flags %d", uint64(p), p.Set(), p.Count(), p.Flags())
	}
	for _, text := range []string{"10.1.2.3:80", "[fd00::1]:65535"} {
		for _, proto := range []dataplane.Protocol{dataplane.TCP, dataplane.UDP} {
			b := dataplane.Binding{Addr: netip.MustParseAddrPort(text), Protocol: proto}
			f, k := FamilyOf(b.Addr.Addr()), keyOf(b)
			var key []byte
			for _, w := range k {
				key = binary.NativeEndian.AppendUint64(key, w)
			}
			if got, err := ParseKey(key[:f.KeyBytes()]); err != nil || got != b {
				t.Errorf("%v came back as %v, %v", b, got, err)
			}
		}
	}
	for _, bad := range [][]byte{nil, {1, 2, 3}, {1, 2, 3, 4, 0, 80, 99, 0}} {
		if b, err := ParseKey(bad); err == nil {
			t.Errorf("key % x is %v", bad, b)
		}
	}
}

func TestLongNamesAreRefused(t *testing.T) {
	name := make([]byte, NameBytes)
	for i := range name {
		name[i] = 'a'
	}
	if _, p := Compile(&dataplane.Service{Key: dataplane.Key{Namespace: "a", Name: string(name)}}); p == nil || p.Status != dataplane.StatusRejected {
		t.Errorf("a name of %d bytes: %+v", len(name)+2, p)
	}
	longest := dataplane.Key{Namespace: "a", Name: string(name[:NameBytes-3])}
	if _, p := Compile(&dataplane.Service{Key: longest}); p != nil {
		t.Errorf("a name of %d bytes: %+v", len(longest.String()), p)
	}
	if k, err := ParseService(written(Owned{ID: 7, AffinitySeconds: 9, Key: longest})); err != nil || k != (Owned{ID: 7, AffinitySeconds: 9, Key: longest}) {
		t.Errorf("%v came back as %+v, %v", longest, k, err)
	}
}

// written is the memory of a service.
func written(s Owned) []uint64 {
	w := make([]uint64, ServiceWords)
	putService(w, s)
	return w
}

// TestSlotsComeBack, and know their own whatever was counted in them.
func TestSlotsComeBack(t *testing.T) {
	for _, text := range []string{"10.1.2.3:80", "[fd00::1]:65535"} {
		s, o := Slot{Addr: netip.MustParseAddrPort(text), ID: 1<<63 | 5}, Owner{Service: 1<<31 | 3, Place: 9}
		f := FamilyOf(s.Addr.Addr())
		w := make([]uint64, f.SlotWords())
		putSlot(w, f, s, o)
		w[hitsWord(f)] += 12
		if got := ParseSlots(w, f); len(got) != 1 || got[0] != s || ParseOwner(w, f) != o {
			t.Errorf("%+v of %+v came back as %+v of %+v", s, o, got, ParseOwner(w, f))
		}
		if !sameSlot(w, f, s, o) || sameSlot(w, f, s, Owner{Service: 4, Place: 9}) || sameSlot(w, f, Slot{s.Addr, 6}, o) {
			t.Errorf("%+v does not know its own", s)
		}
	}
}

// TestIndexIsFoundInAndFree: what programs look up is where it was put, whatever was
// put and taken there before; and when all is taken they look no further than a bucket.
func TestIndexIsFoundInAndFree(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 4))
		size := Size{Frontends: [Families]uint32{64, 64}}
		k := newTwin(size)
		for f := range Families {
			x := NewIndex(f, k.entries[f], k.foreign[f])
			live := make(map[dataplane.Binding]uint32)
			for n := range scale.N(3000) {
				b := dataplane.Binding{Addr: addrPort(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(100))}), 80), Protocol: dataplane.TCP}
				if f == V6 {
					b.Addr = addrPort(netip.AddrFrom16([16]byte{0xfd, 15: byte(r.IntN(100))}), 80)
				}
				if entry, there := live[b]; there {
					x.Leave(entry)
					if _, is := k.find(b); is {
						t.Fatalf("seed %d: %v is found, and was left", seed, b)
					}
					x.Free(entry, b)
					delete(live, b)
				} else if entry, ok := x.Alloc(b); ok && len(live) < 64 {
					x.Publish(entry, Publication(n), Publication(n+1))
					x.Lead(entry, b)
					live[b] = entry
				} else if ok {
					x.Free(entry, b) // it was never led to
				}
				if found := k.frontends(); k.broken != nil || len(found) != len(live) {
					t.Fatalf("seed %d: %d are found of %d: %v", seed, len(found), len(live), k.broken)
				}
				if n%100 == 99 { // another process
					x = NewIndex(f, k.entries[f], k.foreign[f])
					if err := x.Adopt(func(entry uint32, b dataplane.Binding) error {
						if live[b] != entry {
							return fmt.Errorf("%v is at %d, not at %d", b, entry, live[b])
						}
						return nil
					}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for b, entry := range live {
				x.Leave(entry)
				x.Free(entry, b)
			}
			for entry := range uint32(len(k.foreign[f])) {
				if w := *x.decides(entry); w != entryFree {
					t.Fatalf("seed %d: %v entry %d of an empty table says %d", seed, f, entry, w)
				}
			}
		}
	}
}

// TestIndexHasRoom for as many as it is made for, of the addresses that pools give out.
func TestIndexHasRoom(t *testing.T) {
	const n = 50_000
	for f := range Families {
		buckets := f.Buckets(n)
		x := NewIndex(f, make([]uint64, buckets*bucketWords), make([]uint64, buckets*uint32(f.Ways())))
		if f.Frontends(buckets) < n {
			t.Errorf("%d buckets for %d %v frontends", buckets, n, f)
		}
		steps := 0
		for i := range int(f.Frontends(buckets)) {
			b := dataplane.Binding{Addr: addrPort(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80), Protocol: dataplane.TCP}
			if f == V6 {
				b.Addr = addrPort(netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}), 443)
			}
			entry, ok := x.Alloc(b)
			if !ok {
				t.Fatalf("no room for %v, the %d. of %d", b.Addr, i, f.Frontends(buckets))
			}
			steps += int((entry/uint32(f.Ways()) - x.home(keyOf(b))) & x.mask)
		}
		t.Logf("%v: %d buckets, %.3f beyond its own on average", f, buckets, float64(steps)/float64(f.Frontends(buckets)))
	}
}

func TestIndexRefusesWhatIsNotIts(t *testing.T) {
	b := dataplane.Binding{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Protocol: dataplane.TCP}
	k := newTwin(Size{Frontends: [Families]uint32{64, 64}})
	x := NewIndex(V4, k.entries[V4], k.foreign[V4])
	far := ((x.home(keyOf(b)) + reach) & x.mask) * uint32(V4.Ways())
	x.Lead(far, b)
	if err := x.Adopt(func(uint32, dataplane.Binding) error { return nil }); !errors.Is(err, ErrForeign) {
		t.Errorf("an address where no program looks for it: %v", err)
	}
	x.Leave(far)
	k.entries[V4][0] = 1 << 40 // some other thing
	if err := x.Adopt(func(uint32, dataplane.Binding) error { return nil }); !errors.Is(err, ErrForeign) {
		t.Errorf("what is no address: %v", err)
	}
}

// TestRepairMends what others wrote into the frontends.
func TestRepairMends(t *testing.T) {
	size := Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{512, 512}}
	for seed := range uint64(5) {
		w := newWorld(t, seed, size)
		for n := range scale.N(300) {
			w.generation()
			if len(w.table.frontends) == 0 {
				continue
			}
			f := Family(n % 2)
			switch n % 3 {
			case 0:
				clear(w.kernel.entries[f])
			case 1:
				for i := range w.kernel.entries[f] {
					w.kernel.entries[f][i] = w.r.Uint64N(4)
				}
			case 2:
				x, b := w.table.indexes[V4], dataplane.Binding{Addr: netip.MustParseAddrPort("10.9.9.9:80"), Protocol: dataplane.TCP}
				x.Lead(x.home(keyOf(b))*uint32(V4.Ways()), b)
			}
			w.kernel.running = nil // what they find is not ours
			w.table.Repair()
			w.check(fmt.Sprint("repaired ", n))
		}
	}
}
