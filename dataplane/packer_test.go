package dataplane

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestNewEndpointsAllocatesTwice: its buffer, and the list.
func TestNewEndpointsAllocatesTwice(t *testing.T) {
	var list []Endpoint
	for i := range uint64(10) {
		list = append(list, Endpoint{ID: i + 1, Addr: netip.MustParseAddrPort("10.9.0.1:9001"), Weight: 1, Zone: "zone-1", Name: "web-12"})
	}
	if n := testing.AllocsPerRun(100, func() { NewEndpoints(list...) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// TestPackerInAnyOrder packs endpoints in order, in disorder and twice, with
// one packer.
func TestPackerInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p Packer
	for round := range 2000 {
		last := map[uint64]Endpoint{}
		var list []Endpoint
		for range r.IntN(6) {
			list = append(list, Endpoint{ID: r.Uint64N(8), Weight: uint16(r.IntN(100)), Name: []string{"", "a"}[r.IntN(2)]})
		}
		if round%2 == 0 {
			slices.SortFunc(list, func(a, b Endpoint) int { return int(a.ID) - int(b.ID) })
		}
		for _, e := range list {
			p.Add(e)
			last[e.ID] = e
		}
		got := p.Done()
		if got != NewEndpoints(list...) || got.Len() != len(last) {
			t.Fatalf("%v becomes %v", list, got)
		}
		before := uint64(0)
		for e := range got.All() {
			if e != last[e.ID] || before > e.ID {
				t.Fatalf("%v becomes %v", list, got)
			}
			before = e.ID
		}
	}
}
