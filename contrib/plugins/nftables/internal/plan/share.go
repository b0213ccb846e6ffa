package plan

// MaxSlots is how many slots weights are spread over, unless there are more
// endpoints: shares are then right to 1/1024.
const MaxSlots = 1024

// Share says how many slots each of some endpoints gets, by their weights, which are
// not 0. Each gets one at least.
func Share(weights []uint16) []int {
	slots := make([]int, len(weights))
	var divisor, sum uint64
	for _, w := range weights {
		divisor = gcd(divisor, uint64(w))
		sum += uint64(w)
	}
	if divisor == 0 {
		return slots
	}
	most := uint64(max(MaxSlots, len(weights)))
	if sum/divisor <= most {
		for i, w := range weights {
			slots[i] = int(uint64(w) / divisor)
		}
		return slots
	}
	// Each gets the whole part of its share, and one of those that are left in
	// the order of the list where the fractions add up to one.
	var before, given uint64
	for i, w := range weights {
		before += uint64(w)
		n := max(1, before*most/sum-min(given, before*most/sum))
		slots[i] = int(n)
		given += n
	}
	return slots
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
