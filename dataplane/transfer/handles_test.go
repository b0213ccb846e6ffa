package transfer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// TestHandlesAreAMap compares with a map: handles in order, out of order, and
// removed.
func TestHandlesAreAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h handles
	twin, next := map[uint32]dataplane.Key{}, uint32(1)
	for i := range 20_000 {
		k := dataplane.Key{Namespace: "n", Name: fmt.Sprint(i)}
		switch handle := r.Uint32N(next + 3); r.IntN(4) {
		case 0:
			h.set(handle, k)
			twin[handle] = k
		case 1:
			h.set(next, k)
			twin[next] = k
			next++
		default:
			h.remove(handle)
			delete(twin, handle)
		}
		if i%1000 == 0 {
			h.trim()
		}
		for _, handle := range []uint32{0, r.Uint32N(next + 3), math.MaxUint32} {
			got, known := h.get(handle)
			want, has := twin[handle]
			if got != want || known != has {
				t.Fatalf("handle %d is %v %v, want %v %v", handle, got, known, want, has)
			}
		}
		if empty := len(h.list) - len(twin); empty > maxGaps+len(h.list)/2 {
			t.Fatalf("a list of %d for %d", len(h.list), len(twin))
		}
	}
}

// TestServicesThatAreGoneLeaveNoHandles covers a session without end in which
// services come and go.
func TestServicesThatAreGoneLeaveNoHandles(t *testing.T) {
	var h handles
	for i := range uint32(100_000) {
		h.set(i+1, dataplane.Key{Namespace: "n", Name: "x"})
		if i >= 10 {
			h.remove(i - 9)
		}
	}
	if len(h.list)+len(h.rest) > 2*maxGaps {
		t.Errorf("%d and %d are left of 10", len(h.list), len(h.rest))
	}
}
