package swim

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// member is a row of the table.
//
// Invariants: value never falls, but for an accusation that a hold at the same
// word takes back. accusers is empty unless value says suspect
// or dead. deadline is set exactly while value says suspect.
type member struct {
	id    model.NodeID
	value model.Value
	since time.Time // of the state

	// Name and address are constant within an epoch; metaEpoch tells which
	// one these are of. It is below value.Epoch while a new epoch was heard of
	// but its owner's own claim was not.
	name      string
	addr      netip.AddrPort
	metaEpoch uint64

	record *Record
	rtt    rtt

	hold hold // what it announced last; see held

	accusers    wire.Accusers
	suspectedAt time.Time
	deadline    time.Time

	retryAt time.Time // a tombstone is not pinged again before, whoever vouches for it
	rumours [classes]rumour
}

// claimed is what a claim about m says now; identity only where it is
// m.value's.
func (m *member) claimed(identity bool, now time.Time) wire.Claimed {
	c := wire.Claimed{Subject: m.id, Value: m.value, Accusers: m.accusers, HoldMillis: m.hold.left(m.value, now)}
	if identity && m.metaEpoch == m.value.Epoch {
		c.Name, c.Addr = m.name, m.addr
	}
	return c
}

// rotation is a shuffled list that is walked round and round: the probe order
// of SWIM §4.3. All of it is visited in each pass.
type rotation struct {
	list []*member
	next int // list[next:] is still to come in this pass
}

// add inserts m at a random place of what is still to come.
func (r *rotation) add(m *member, rng *rand.Rand) {
	r.list = append(r.list, m)
	last := len(r.list) - 1
	i := r.next + rng.IntN(last-r.next+1)
	r.list[i], r.list[last] = r.list[last], r.list[i]
}

// remove takes m out; the order of the others stays.
func (r *rotation) remove(m *member) {
	i := slices.Index(r.list, m)
	if i < 0 {
		return
	}
	r.list = slices.Delete(r.list, i, i+1)
	if i < r.next {
		r.next--
	}
}

// pick returns the next member that ok accepts, or nil if a whole pass has
// none. The list is shuffled anew at the start of each pass.
func (r *rotation) pick(rng *rand.Rand, ok func(*member) bool) *member {
	for range 2 * len(r.list) {
		if r.next >= len(r.list) {
			r.next = 0
			rng.Shuffle(len(r.list), func(i, j int) { r.list[i], r.list[j] = r.list[j], r.list[i] })
		}
		m := r.list[r.next]
		r.next++
		if ok(m) {
			return m
		}
	}
	return nil
}

// sample returns up to k distinct members that ok accepts, at random.
func (r *rotation) sample(k int, rng *rand.Rand, ok func(*member) bool) []*member {
	picked := make([]*member, 0, k)
	if len(r.list) > 8*k { // few collisions: draw until found
		for range 4 * k {
			m := r.list[rng.IntN(len(r.list))]
			if ok(m) && !slices.Contains(picked, m) {
				if picked = append(picked, m); len(picked) == k {
					return picked
				}
			}
		}
	}
	for _, i := range rng.Perm(len(r.list)) {
		if len(picked) == k {
			break
		}
		if m := r.list[i]; ok(m) && !slices.Contains(picked, m) {
			picked = append(picked, m)
		}
	}
	return picked
}

func isAny(*member) bool     { return true }
func isAlive(m *member) bool { return m.value.State == model.StateAlive }
func isDead(m *member) bool  { return m.value.State == model.StateDead }

// rtt estimates a round trip as TCP does (RFC 6298 §2).
type rtt struct {
	smoothed, variance time.Duration
	known              bool
}

func (r *rtt) sample(d time.Duration) {
	if !r.known {
		*r = rtt{smoothed: d, variance: d / 2, known: true}
		return
	}
	diff := r.smoothed - d
	if diff < 0 {
		diff = -diff
	}
	r.variance += (diff - r.variance) / 4
	r.smoothed += (d - r.smoothed) / 8
}

// wait is how long an answer may take, within [floor, ceiling]; ceiling while
// nothing was measured.
func (r *rtt) wait(floor, ceiling time.Duration) time.Duration {
	if !r.known {
		return ceiling
	}
	return min(max(r.smoothed+4*r.variance, floor), ceiling)
}
