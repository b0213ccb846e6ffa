package layout

import (
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
			key := AppendKey(nil, b)
			if f := FamilyOf(b.Addr.Addr()); len(key) != f.KeyBytes() {
				t.Errorf("the key of %v has %d bytes, want %d", b, len(key), f.KeyBytes())
			}
			if got, err := ParseKey(key); err != nil || got != b {
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
	if k, err := ParseName(AppendName(nil, longest)); err != nil || k != longest {
		t.Errorf("%v came back as %v, %v", longest, k, err)
	}
}
