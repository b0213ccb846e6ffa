package balance

import (
	"math/bits"
	"slices"
	"sort"
)

// candidates are endpoints with weights.
type candidates struct {
	endpoints []*Endpoint
	upTo      []uint64 // sums of the weights up to and with each
	unequal   bool
}

func (c *candidates) add(e *Endpoint, weight uint16) {
	c.unequal = c.unequal || len(c.endpoints) > 0 && weight != c.weight(0)
	c.endpoints = append(c.endpoints, e)
	c.upTo = append(c.upTo, c.total()+uint64(weight))
}

func (c *candidates) total() uint64 {
	if len(c.upTo) == 0 {
		return 0
	}
	return c.upTo[len(c.upTo)-1]
}

func (c *candidates) weight(i int) uint16 {
	if i == 0 {
		return uint16(c.upTo[0])
	}
	return uint16(c.upTo[i] - c.upTo[i-1])
}

// at returns whose share of [0, 2^64) x is in.
func (c *candidates) at(x uint64) int {
	if !c.unequal {
		i, _ := bits.Mul64(x, uint64(len(c.endpoints)))
		return int(i)
	}
	point, _ := bits.Mul64(x, c.total())
	return sort.Search(len(c.upTo), func(i int) bool { return c.upTo[i] > point })
}

// except is what a choice leaves out: endpoints, and one position.
type except struct {
	tried []*Endpoint
	also  int // -1: none
}

func (x except) has(c *candidates, i int) bool {
	return i == x.also || len(x.tried) > 0 && slices.Contains(x.tried, c.endpoints[i])
}

// draw returns the position of a random endpoint, by weight, or -1 if all are
// left out.
func (c *candidates) draw(rnd Source, x except) int {
	// Whoever is left out is drawn again: the others keep their shares.
	for range 4 {
		if i := c.at(rnd.Uint64()); !x.has(c, i) {
			return i
		}
	}
	var total uint64
	for i := range c.endpoints {
		if !x.has(c, i) {
			total += uint64(c.weight(i))
		}
	}
	point, _ := bits.Mul64(rnd.Uint64(), total)
	for i := range c.endpoints {
		if !x.has(c, i) {
			if w := uint64(c.weight(i)); point >= w {
				point -= w
			} else {
				return i
			}
		}
	}
	return -1
}
