package balance

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
)

const (
	// costFloor is the latency below which differences say nothing: a turn of
	// the scheduler takes as long. Requests in flight tell who is slow there.
	costFloor = 5e6 // ns
	// alike is how far apart two latencies may be and count as the same. What
	// is twice as slow has twice as many in flight, and gets less by that; what
	// is decided here is that some endpoint is not well.
	alike = 3
)

// choose returns the position of an endpoint, or -1 if all are left out.
func (p *Pool) choose(v *view, c *candidates, now int64, rnd Source, choice *Choice) int {
	if len(c.endpoints) == 0 {
		return -1
	}
	x := except{tried: choice.Tried, also: -1}
	switch v.policy {
	case dataplane.BalanceRandom:
		return c.draw(rnd, x)
	case dataplane.BalanceRoundRobin:
		return c.next(p.turn.Add(1), x)
	case dataplane.BalanceHash:
		return c.hashed(choice.Hash, p.common.config().BoundedLoad, x)
	}
	first := c.draw(rnd, x)
	if first < 0 || len(c.endpoints) == 1 {
		return first
	}
	x.also = first
	second := c.draw(rnd, x)
	if second >= 0 && p.busier(c, first, second, now) {
		return second
	}
	return first
}

// busier compares two endpoints by requests in flight if their latencies are
// alike, else by the product of both, each in proportion to the weight. Of
// equals the first stays, which was drawn by weight.
func (p *Pool) busier(c *candidates, a, b int, now int64) bool {
	decay := p.common.config().Decay
	costA := max(costFloor, c.endpoints[a].latency.at(now, decay))
	costB := max(costFloor, c.endpoints[b].latency.at(now, decay))
	loadA, loadB := float64(c.endpoints[a].InFlight()), float64(c.endpoints[b].InFlight())
	wA, wB := float64(c.weight(a)), float64(c.weight(b))
	if costA <= alike*costB && costB <= alike*costA {
		return loadA*wB > loadB*wA
	}
	return (loadA+1)*costA*wB > (loadB+1)*costB*wA
}

// next takes turns. Unequal weights take the turns of a golden section, which
// are spread more evenly than random ones.
func (c *candidates) next(turn uint64, x except) int {
	n := len(c.endpoints)
	start := int(turn % uint64(n))
	if c.unequal {
		start = c.at(turn * 0x9e3779b97f4a7c15)
	}
	for k := range n {
		if i := (start + k) % n; !x.has(c, i) {
			return i
		}
	}
	return -1
}

// hashed gives a key to the endpoint that scores highest for it (rendezvous
// hashing: without one endpoint, only its keys move), unless that one has more
// than its bounded share of the requests in flight.
func (c *candidates) hashed(key uint64, bound float64, x except) int {
	var inFlight int64
	for _, e := range c.endpoints {
		inFlight += e.InFlight()
	}
	perWeight := bound * float64(inFlight+1) / float64(c.total())
	best, fallback := -1, -1
	var bestScore, fallbackScore float64
	for i, e := range c.endpoints {
		if x.has(c, i) {
			continue
		}
		w := float64(c.weight(i))
		// -w/ln(u) with u uniform in (0,1) has its maximum at each endpoint
		// as often as its weight says.
		u := (float64(mix(key^e.hash)>>11) + 0.5) / (1 << 53)
		score := -w / math.Log(u)
		if fallback < 0 || score > fallbackScore {
			fallback, fallbackScore = i, score
		}
		if float64(e.InFlight()) < math.Ceil(perWeight*w) && (best < 0 || score > bestScore) {
			best, bestScore = i, score
		}
	}
	if best < 0 {
		return fallback
	}
	return best
}

// HashAddr is the hash of a client's address, without its port.
func HashAddr(a netip.Addr) uint64 {
	ip := a.As16()
	hi, lo := binary.BigEndian.Uint64(ip[:8]), binary.BigEndian.Uint64(ip[8:])
	return mix(mix(hi) ^ lo)
}

// mix spreads every bit over all (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashOf is the same in every process, so that all proxies send a key to the
// same endpoint.
func hashOf(id identity) uint64 {
	return mix(HashAddr(id.addr.Addr()) ^ bits.RotateLeft64(mix(id.id), 17) ^ uint64(id.addr.Port()))
}
