package membership

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	// maxPulls bounds the definitions pulled at a time.
	maxPulls = 4
	// pullJitter is the longest wait before the first try. A hash is news to
	// the whole cluster within a second; the wait lets those who told have it.
	pullJitter = 500 * time.Millisecond
	// pullAgain separates tries with different members.
	pullAgain = 200 * time.Millisecond
	// pullBackoffMin and pullBackoffMax separate rounds over all of them.
	pullBackoffMin = time.Second
	pullBackoffMax = 30 * time.Second
	// pullOthers is how many random members are asked between the one that
	// told and the owner.
	pullOthers = 2
	// definitionBudget bounds the memory of all definitions.
	definitionBudget = 64 << 20
)

// definitions decides which definitions to keep and whom to ask for the rest,
// and the same of vectors that are too long for a rumour.
// It is a value: time and randomness are arguments, and it does no I/O.
type definitions struct {
	have  map[wire.Hash][]byte
	bytes int
	want  map[wire.Hash]*pull
	open  int
	rng   *rand.Rand
}

// pull is one definition that is missing.
type pull struct {
	hash   wire.Hash
	teller netip.AddrPort // who told of it; zero if unknown
	due    time.Time
	try    int // position in the round: teller, pullOthers random ones, owner
	rounds int // completed without success
	open   bool
}

// pullRequest asks the caller to fetch Hash from To and to report by done.
type pullRequest struct {
	hash wire.Hash
	to   netip.AddrPort
}

func newDefinitions(rng *rand.Rand) *definitions {
	return &definitions{have: map[wire.Hash][]byte{}, want: map[wire.Hash]*pull{}, rng: rng}
}

// get returns a definition, nil if it is not here.
func (d *definitions) get(h wire.Hash) []byte { return d.have[h] }

// put keeps a definition and reports false if the budget forbids it.
func (d *definitions) put(h wire.Hash, definition []byte) bool {
	if _, ok := d.have[h]; ok || h == (wire.Hash{}) {
		return true
	}
	if d.bytes+len(definition) > definitionBudget {
		return false
	}
	d.have[h] = definition
	d.bytes += len(definition)
	return true
}

// observe brings the store in line with the member table: what a live member
// refers to is wanted, what no member refers to any more is dropped. told maps
// hashes of new records to who told of them.
func (d *definitions) observe(members []swim.Member, told map[wire.Hash]netip.AddrPort, now time.Time) {
	live := 0
	used := make(map[wire.Hash]bool, len(members)) // true: by a live member
	for i := range members {
		p, ok := splitRecord(members[i].Record)
		alive := members[i].Value.State.Live()
		if alive {
			live++
		}
		for _, h := range [...]wire.Hash{p.definition, p.pulled} {
			if ok && h != (wire.Hash{}) {
				used[h] = used[h] || alive
			}
		}
	}
	for h, definition := range d.have {
		// The dead may come back: theirs stay while there is room.
		if alive, ok := used[h]; !ok || !alive && d.bytes > definitionBudget/2 {
			delete(d.have, h)
			d.bytes -= len(definition)
		}
	}
	for h, p := range d.want {
		if !p.open && (!used[h] || d.have[h] != nil) {
			delete(d.want, h)
		}
	}
	for h, alive := range used {
		if !alive || d.have[h] != nil || d.want[h] != nil {
			continue
		}
		d.want[h] = &pull{hash: h, teller: told[h], due: now.Add(d.jitter(live))}
	}
}

// jitter draws the wait before the first try: it grows with the logarithm of
// the cluster, as the time a rumour needs does.
func (d *definitions) jitter(live int) time.Duration {
	width := min(pullJitter, time.Duration(50*math.Ceil(math.Log2(float64(live+1))))*time.Millisecond)
	return time.Duration(d.rng.Int64N(int64(width) + 1))
}

// next returns when begin has something to do, the zero time if never.
func (d *definitions) next() time.Time {
	var due time.Time
	if d.open >= maxPulls {
		return due
	}
	for _, p := range d.want {
		if !p.open && (due.IsZero() || p.due.Before(due)) {
			due = p.due
		}
	}
	return due
}

// begin returns the pulls that are due, each to be ended by done.
func (d *definitions) begin(members []swim.Member, now time.Time) []pullRequest {
	var out []pullRequest
	for _, p := range d.want {
		if d.open >= maxPulls {
			break
		}
		if p.open || p.due.After(now) {
			continue
		}
		to, ok := d.choose(p, members)
		if !ok {
			d.later(p, now)
			continue
		}
		p.open = true
		d.open++
		out = append(out, pullRequest{p.hash, to})
	}
	return out
}

// choose picks whom to ask in this try and moves on to the next.
func (d *definitions) choose(p *pull, members []swim.Member) (netip.AddrPort, bool) {
	var owners, others []netip.AddrPort
	told := netip.AddrPort{}
	for i := range members {
		m := &members[i]
		if m.Self || !m.Value.State.Live() {
			continue
		}
		if m.Addr == p.teller {
			told = m.Addr
		}
		if r, _ := splitRecord(m.Record); r.refers(p.hash) {
			owners = append(owners, m.Addr)
		} else {
			others = append(others, m.Addr)
		}
	}
	for p.try <= 1+pullOthers {
		try := p.try
		p.try++
		switch {
		case try == 0 && told.IsValid():
			return told, true
		case try > pullOthers && len(owners) > 0:
			return owners[d.rng.IntN(len(owners))], true
		case try > 0 && try <= pullOthers && len(others) > 0:
			return others[d.rng.IntN(len(others))], true
		}
	}
	return netip.AddrPort{}, false
}

// done ends a pull. A definition is kept if one came and there is room; else the
// next member is asked, or all again later. It reports whether the definition is new.
func (d *definitions) done(h wire.Hash, definition []byte, now time.Time) bool {
	p := d.want[h]
	if p == nil || !p.open {
		return false
	}
	p.open = false
	d.open--
	if definition != nil && d.put(h, definition) {
		delete(d.want, h)
		return true
	}
	if definition != nil || p.try > 1+pullOthers {
		d.later(p, now) // what has no room has none from another member either
	} else {
		p.due = now.Add(pullAgain/2 + time.Duration(d.rng.Int64N(int64(pullAgain))))
	}
	return false
}

// later starts the next round after a pause that doubles.
func (d *definitions) later(p *pull, now time.Time) {
	pause := min(pullBackoffMax, pullBackoffMin<<min(p.rounds, 8))
	p.try = 0
	p.rounds++
	p.due = now.Add(pause/2 + time.Duration(d.rng.Int64N(int64(pause))))
}
