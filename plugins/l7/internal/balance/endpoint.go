package balance

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Endpoint is one endpoint of one service, for as long as it keeps its id and
// its address. It is safe for concurrent use.
type Endpoint struct {
	id   uint64
	addr netip.AddrPort
	hash uint64 // of id and address: its place for hash policies
	name atomic.Pointer[string]

	common   *common
	inFlight atomic.Int64
	latency  latency

	nextTrial atomic.Int64 // in ns since the epoch, 0: not ejected; written under the pool's mutex

	// Under the pool's mutex.
	failures int                // of trials in a row, and the one that ejected it
	current  dataplane.Endpoint // as the newest snapshot has it, or had it last
	listed   bool               // the newest snapshot has it
}

// ID is the endpoint's id in its service.
func (e *Endpoint) ID() uint64 { return e.id }

// Addr is where to connect to.
func (e *Endpoint) Addr() netip.AddrPort { return e.addr }

// Name is the name of the instance, for people.
func (e *Endpoint) Name() string { return *e.name.Load() }

// InFlight is the number of leases that are not released.
func (e *Endpoint) InFlight() int64 { return e.inFlight.Load() }

// Ejected reports whether the endpoint is left out because it failed.
func (e *Endpoint) Ejected() bool { return e.nextTrial.Load() != 0 }

// Latency is what a first byte is expected to take now; 0 if nothing is known.
func (e *Endpoint) Latency(now time.Time) time.Duration {
	return time.Duration(e.latency.at(e.common.ns(now), e.common.config().Decay))
}

// latency is a peak-EWMA of times to the first byte: it follows a rise at once
// and a fall slowly, and without answers it falls too, so that an endpoint that
// was slow is tried again. One slow answer between quick ones is no rise: of
// two answers in a row, the quicker counts.
type latency struct {
	mu   sync.Mutex // of observe; reading takes none
	cost atomic.Uint64
	seen atomic.Int64
	last int64
}

func newEndpoint(id identity, c *common) *Endpoint {
	return &Endpoint{id: id.id, addr: id.addr, hash: hashOf(id), common: c}
}

func (l *latency) begin(now int64, ns float64) {
	l.cost.Store(math.Float64bits(ns))
	l.seen.Store(now)
	l.last = int64(ns)
}

// at is the cost in ns. A reader may see the cost of one answer and the time of
// another, which are a few milliseconds apart at most.
func (l *latency) at(now int64, decay time.Duration) float64 {
	cost := math.Float64frombits(l.cost.Load())
	if idle := now - l.seen.Load(); idle > 0 {
		cost *= math.Exp(-float64(idle) / float64(decay))
	}
	return cost
}

func (l *latency) observe(now, ns int64, decay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	quicker := min(ns, l.last)
	l.last = ns
	cost := math.Float64frombits(l.cost.Load())
	if float64(quicker) > cost {
		cost = float64(quicker)
	} else {
		w := math.Exp(-float64(max(0, now-l.seen.Load())) / float64(decay))
		cost = cost*w + float64(quicker)*(1-w)
	}
	l.cost.Store(math.Float64bits(cost))
	l.seen.Store(max(now, l.seen.Load()))
}
