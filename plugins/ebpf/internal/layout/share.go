package layout

import (
	"cmp"
	"slices"
)

// exactSlots is up to how many slots weights are kept exactly. Beyond, a share is
// off by less than one part in so many.
const exactSlots = 1024

// Share returns how many slots of a set each weight is worth, at least one. The
// weights are not 0, and at most MaxCount of them.
func Share(weights []uint16) []int {
	if len(weights) == 0 {
		return nil
	}
	divisor, sum := 0, 0
	for _, w := range weights {
		divisor = gcd(divisor, int(w))
		sum += int(w)
	}
	shares := make([]int, len(weights))
	if sum/divisor <= max(exactSlots, len(weights)) {
		for i, w := range weights {
			shares[i] = int(w) / divisor
		}
		return shares
	}
	apportion(shares, weights, sum, min(MaxCount, max(exactSlots, 8*len(weights))))
	return shares
}

// apportion shares out slots by the largest remainder, after one for each.
func apportion(shares []int, weights []uint16, sum, slots int) {
	rest := slots - len(weights) // after one for each
	type remainder struct{ of, size int }
	remainders := make([]remainder, 0, len(weights))
	given := 0
	for i, w := range weights {
		// What an exact share has beyond the one that it got already.
		want := max(0, int(w)*slots-sum)
		shares[i] = 1 + want/sum
		given += want / sum
		remainders = append(remainders, remainder{i, want % sum})
	}
	slices.SortStableFunc(remainders, func(a, b remainder) int { return cmp.Compare(b.size, a.size) })
	for i := 0; given < rest && i < len(remainders); i++ {
		shares[remainders[i].of]++
		given++
	}
	// Those below one slot were given more than their share: the largest pay.
	for given > rest {
		largest := 0
		for i := range shares {
			if shares[i] > shares[largest] {
				largest = i
			}
		}
		pay := min(given-rest, max(1, shares[largest]/64))
		shares[largest] -= pay
		given -= pay
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
