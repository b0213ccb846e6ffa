package layout

// IDs gives out small numbers from 0 on. It does not know of graces.
type IDs struct {
	limit uint32 // none from here on
	next  uint32
	free  []uint32
}

// NewIDs returns the numbers below limit.
func NewIDs(limit uint32) *IDs { return &IDs{limit: limit} }

// Alloc returns a number that nobody has; false: there is none.
func (i *IDs) Alloc() (uint32, bool) {
	if id, ok := pop(&i.free); ok {
		return id, true
	}
	if i.next >= i.limit {
		return 0, false
	}
	i.next++
	return i.next - 1, true
}

// Free takes a number back.
func (i *IDs) Free(id uint32) { i.free = append(i.free, id) }

// Claim marks numbers as given out that another process gave out. It reports
// false if one is too large, or is there twice.
func (i *IDs) Claim(ids []uint32) bool {
	taken := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		if id >= i.limit || taken[id] {
			return false
		}
		taken[id] = true
		i.next = max(i.next, id+1)
	}
	for id := range i.next {
		if !taken[id] {
			i.free = append(i.free, id)
		}
	}
	return true
}
