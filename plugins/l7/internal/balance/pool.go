package balance

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Source gives random bits, as the sources of math/rand/v2 do. A pool that
// several goroutines use needs one for each of them, or one that is safe.
type Source interface{ Uint64() uint64 }

// Config holds what an operator may set; zero values are the defaults.
type Config struct {
	Foreign     bool          // connect to AddrForeign instead of Addr
	Decay       time.Duration // of a latency; 5 s
	EjectFor    time.Duration // after the first failure; 1 s, doubled by each failed trial
	EjectAtMost time.Duration // 30 s
	BoundedLoad float64       // an endpoint's share in a hash, of the mean; 1.25
	RetryRatio  float64       // retries per request; 0.2
	RetryFloor  float64       // retries per second in any case; 1
	RetryBurst  int           // retries at once; 100
}

// Registry holds a Pool per service. One goroutine owns it; pools may be used
// by any.
type Registry struct {
	cfg   Config
	epoch time.Time
	pools map[dataplane.Key]*Pool
}

// NewRegistry returns an empty registry.
func NewRegistry(cfg Config, now time.Time) *Registry {
	return &Registry{cfg: cfg, epoch: now, pools: make(map[dataplane.Key]*Pool)}
}

// Update makes the pool of a service follow its new version and returns it. The
// pool of a key stays the same for as long as the service exists, and its
// endpoints as long as they keep id and address. An endpoint that is not as
// before is no longer ejected, unless it became suspect.
func (r *Registry) Update(svc *dataplane.Service, now time.Time, rnd Source) *Pool {
	p := r.pools[svc.Key]
	if p == nil {
		p = &Pool{}
		r.pools[svc.Key] = p
	}
	return p
}

// Remove forgets a service. Leases of its endpoints stay valid.
func (r *Registry) Remove(k dataplane.Key) { delete(r.pools, k) }

// Pool chooses among the endpoints of one service. It is safe for concurrent
// use.
type Pool struct {
	mu     sync.Mutex
	budget Budget
}

// Choice is what one request asks of a pool.
type Choice struct {
	Hash    uint64      // what a hash policy goes by: see HashAddr and HashString
	Tried   []*Endpoint // not these, if there is another
	NoTrial bool        // the request could not be repeated: give it no ejected endpoint to try
}

// Pick chooses an endpoint and counts a request in flight there until the
// lease is released. ok is false if the service has no usable endpoint, or if
// all of them were tried.
func (p *Pool) Pick(now time.Time, rnd Source, c Choice) (l Lease, ok bool) { return Lease{}, false }

// Len is the number of usable endpoints, ejected ones included.
func (p *Pool) Len() int { return 0 }

// Budget limits the retries of the service.
func (p *Pool) Budget() *Budget { return &p.budget }

// Endpoints returns every endpoint of the service, in the order of their ids,
// for the connection pools and the metrics. The slice is not to be changed.
func (p *Pool) Endpoints() []*Endpoint { return nil }

// Endpoint is one endpoint of one service, for as long as it keeps its id and
// its address.
type Endpoint struct {
	id       uint64
	addr     netip.AddrPort
	inFlight atomic.Int64
}

// ID is the endpoint's id in its service.
func (e *Endpoint) ID() uint64 { return e.id }

// Addr is where to connect to.
func (e *Endpoint) Addr() netip.AddrPort { return e.addr }

// Name is the name of the instance, for people.
func (e *Endpoint) Name() string { return "" }

// InFlight is the number of leases that are not released.
func (e *Endpoint) InFlight() int64 { return e.inFlight.Load() }

// Ejected reports whether the endpoint is left out because it failed.
func (e *Endpoint) Ejected() bool { return false }

// Lease is one request at one endpoint. Release ends it, whatever happened;
// before that, at most one of Succeeded and Failed says how it went. A request
// that the client gave up says neither.
type Lease struct {
	Endpoint *Endpoint
	pool     *Pool
	trial    bool
}

// Trial reports whether the endpoint was ejected when it was chosen.
func (l Lease) Trial() bool { return l.trial }

// Succeeded says that the first byte of an answer came, and after how long. It
// ends the ejection if this was a trial.
func (l Lease) Succeeded(now time.Time, latency time.Duration) {}

// Failed says that a connect was refused or timed out, or that no first byte
// came in time. The endpoint is ejected, or ejected for longer if this was a
// trial.
func (l Lease) Failed(now time.Time, rnd Source) {}

// Release ends the lease: the request is over, its body too.
func (l Lease) Release() {}

// HashAddr is the hash of a client's address, without its port.
func HashAddr(a netip.Addr) uint64 { return 0 }

// HashString is the hash of a key such as a cookie's value.
func HashString(s string) uint64 { return uint64(len(s)) * math.MaxUint32 }
