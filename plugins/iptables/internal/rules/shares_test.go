package rules

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

// shares follows every way through a service's chains.
func shares(t *testing.T, svc *dataplane.Service) (map[netip.AddrPort]float64, *kernel) {
	t.Helper()
	plan := Build(IPv4, slices.Values([]*dataplane.Service{svc}), fleetOptions(), nil)
	k := newKernel()
	if err := k.restore(Repair(must(Parse([]byte(k.save()))), plan)); err != nil {
		t.Fatal(err)
	}
	got := make(map[netip.AddrPort]float64)
	for _, way := range k.trace(packet{hook: out, to: svc.Frontends[0].Binding()}) {
		got[way.addr] += way.chance
	}
	return got, k
}

// TestShares: each of n endpoints has a chance of 1/n, to the grain of the kernel's
// 31 bits at each of the few draws on its way.
func TestShares(t *testing.T) {
	step := max(1, 10/scale.N(10))
	for n := 1; n <= 1000; n += step {
		got, _ := shares(t, plain(1, netip.MustParseAddrPort("10.200.0.1:80"), n))
		if len(got) != n {
			t.Fatalf("%d endpoints, %d are led to", n, len(got))
		}
		for addr, share := range got {
			if math.Abs(share-1/float64(n)) > 1e-8 {
				t.Fatalf("%v, one of %d: %v, want %v", addr, n, share, 1/float64(n))
			}
		}
	}
}

// TestWeights: a share follows the weight, also the least beside the most.
func TestWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range scale.N(300) {
		svc := *plain(1, netip.MustParseAddrPort("10.200.0.1:80"), 1+r.IntN(60))
		list, sum := svc.Endpoints.Slice(), 0.0
		for i := range list {
			list[i].Weight = []uint16{0, 1, 2, 7, 100, 65535}[r.IntN(6)]
			sum += float64(list[i].Weight)
		}
		svc.Endpoints = dataplane.NewEndpoints(list...)
		got, _ := shares(t, &svc)
		for _, e := range list {
			if want := float64(e.Weight) / sum; sum > 0 && math.Abs(got[e.Addr]-want) > 1e-8 {
				t.Fatalf("%v has %v, want %v", e, got[e.Addr], want)
			}
			if e.Weight > 0 && got[e.Addr] == 0 {
				t.Fatalf("%v is never led to", e)
			}
		}
	}
}

// TestChiSquare draws as the kernel does.
func TestChiSquare(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8, 9, 17, 100, 319, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			svc := plain(1, netip.MustParseAddrPort("10.200.0.1:80"), n)
			_, k := shares(t, svc)
			r := rand.New(rand.NewPCG(uint64(n), 5))
			draws := n * scale.N(1000)
			counts := make(map[netip.AddrPort]int)
			p := packet{hook: out, to: svc.Frontends[0].Binding(), draw: func() uint32 { return r.Uint32() >> 1 }}
			for range draws {
				counts[k.trace(p)[0].addr]++
			}
			expected, square := float64(draws)/float64(n), 0.0
			for _, e := range svc.Endpoints.Slice() {
				d := float64(counts[e.Addr]) - expected
				square += d * d / expected
			}
			// Of n-1 degrees of freedom the sum is about normal: mean n-1, variance
			// 2(n-1). Six deviations are beyond any doubt.
			if limit := float64(n-1) + 6*math.Sqrt(2*float64(n-1)) + 10; square > limit {
				t.Errorf("chi-square is %.1f, above %.1f", square, limit)
			}
		})
	}
}
