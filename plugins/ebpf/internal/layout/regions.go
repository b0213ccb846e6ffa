package layout

import (
	"math/bits"
	"slices"
)

// Regions gives out runs of slots of an array. Their sizes are powers of two, so
// that a set which grows a little finds the place that another left. It does not
// know of graces: what is freed may be given out at once.
type Regions struct {
	size uint32            // of the array
	tail uint32            // where nothing was given out yet
	free [33][]uint32      // by the logarithm of the size
	live map[uint32]uint32 // start → size; Invariant: disjoint, below tail
	used uint64            // slots that are given out
}

// NewRegions returns an array of so many slots, all free.
func NewRegions(size uint32) *Regions {
	return &Regions{size: size, live: make(map[uint32]uint32)}
}

// RegionSlots is the size of the region for so many slots, at least one.
func RegionSlots(slots int) uint32 { return 1 << order(slots) }

func order(slots int) int { return bits.Len32(uint32(max(slots, 1)) - 1) }

// Alloc returns the start of a region of at least so many slots; false: none is
// left in one piece.
func (r *Regions) Alloc(slots int) (uint32, bool) {
	o := order(slots)
	size := uint32(1) << o
	at, ok := pop(&r.free[o])
	if !ok && r.size-r.tail >= size {
		at, ok = r.tail, true
		r.tail += size
	}
	for larger := o + 1; !ok && larger < len(r.free); larger++ {
		if at, ok = pop(&r.free[larger]); ok {
			for split := larger - 1; split >= o; split-- {
				r.free[split] = append(r.free[split], at+1<<split)
			}
		}
	}
	if ok {
		r.live[at] = size
		r.used += uint64(size)
	}
	return at, ok
}

// Free takes a region back.
func (r *Regions) Free(at uint32) {
	size, ok := r.live[at]
	if !ok {
		return // Invariant: the table frees what it was given, once
	}
	delete(r.live, at)
	r.used -= uint64(size)
	o := bits.TrailingZeros32(size)
	r.free[o] = append(r.free[o], at)
}

// Used is how many slots are given out.
func (r *Regions) Used() uint64 { return r.used }

// Size is how many slots there are.
func (r *Regions) Size() uint32 { return r.size }

// Claim marks regions as given out, in an array that another process filled:
// start → slots. What lies between them is free. It reports false if they overlap
// or do not fit.
func (r *Regions) Claim(regions map[uint32]int) bool {
	starts := make([]uint32, 0, len(regions))
	for at := range regions {
		starts = append(starts, at)
	}
	slices.Sort(starts)
	for _, at := range starts {
		size := RegionSlots(regions[at])
		if at < r.tail || uint64(at)+uint64(size) > uint64(r.size) {
			return false
		}
		r.release(r.tail, at)
		r.live[at] = size
		r.used += uint64(size)
		r.tail = at + size
	}
	return true
}

// release frees what lies between two slots, in pieces.
func (r *Regions) release(from, to uint32) {
	for from < to {
		o := bits.Len32(to-from) - 1
		r.free[o] = append(r.free[o], from)
		from += 1 << o
	}
}

func pop(s *[]uint32) (uint32, bool) {
	n := len(*s)
	if n == 0 {
		return 0, false
	}
	at := (*s)[n-1]
	*s = (*s)[:n-1]
	return at, true
}
