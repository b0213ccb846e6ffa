package balance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Source gives random bits, as the sources of math/rand/v2 do. Goroutines that
// use a pool at once need one each, or one that is safe.
type Source interface{ Uint64() uint64 }

// Pool chooses among the endpoints of one service. It is safe for concurrent
// use: a choice takes no lock.
type Pool struct {
	common *common
	budget *Budget
	turn   atomic.Uint64 // of round robin; belongs to no version of the service
	view   atomic.Pointer[view]
	due    atomic.Int64 // when the next trial is due, in ns since the epoch

	mu        sync.Mutex // of what changes the view
	all       []*Endpoint
	endpoints map[identity]*Endpoint // all, and those gone with requests in flight
}

// view is what the choices of one moment are made from. It is immutable.
type view struct {
	policy    dataplane.Balance
	endpoints []*Endpoint // all
	usable    candidates  // see dataplane.Service.Usable
	live      candidates  // usable and not ejected
}

// Choice is what one request asks of a pool.
type Choice struct {
	Hash    uint64      // what a hash policy goes by: see HashAddr
	Tried   []*Endpoint // not these
	NoTrial bool        // the request could not be repeated: spare it a trial until EjectAtMost after it is due
}

// Pick chooses an endpoint and counts a request in flight there until the
// lease is released. ok is false if the service has no usable endpoint, or if
// all of them were tried. Ejected endpoints are chosen for their trial, if all
// are ejected, and if all others were tried.
func (p *Pool) Pick(now time.Time, rnd Source, c Choice) (l Lease, ok bool) {
	v := p.view.Load()
	t := p.common.ns(now)
	due := t
	if c.NoTrial {
		// Where no request could be repeated, one has to be the trial after
		// all, or the endpoint would stay out for ever.
		due -= int64(p.common.config().EjectAtMost)
	}
	if due >= p.due.Load() && len(c.Tried) == 0 {
		if e := p.takeTrial(t, due); e != nil {
			e.inFlight.Add(1)
			return Lease{Endpoint: e, pool: p, trial: true, due: true}, true
		}
	}
	from := &v.live
	i := p.choose(v, from, t, rnd, &c)
	if i < 0 && len(v.live.endpoints) < len(v.usable.endpoints) {
		// Invariant: as long as an endpoint is usable and was not tried, there
		// is one to choose. If all failed, it may be us who are cut off.
		from = &v.usable
		i = p.choose(v, from, t, rnd, &c)
	}
	if i < 0 {
		return Lease{}, false
	}
	e := from.endpoints[i]
	e.inFlight.Add(1)
	return Lease{Endpoint: e, pool: p, trial: e.Ejected()}, true
}

// takeTrial returns the ejected endpoint whose trial was due first, by the time
// due, once: the next one is a back-off away.
func (p *Pool) takeTrial(now, due int64) *Endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := *p.view.Load()
	var e *Endpoint
	for _, c := range v.usable.endpoints {
		if t := c.nextTrial.Load(); t != 0 && t <= due && (e == nil || t < e.nextTrial.Load()) {
			e = c
		}
	}
	if e != nil {
		e.nextTrial.Store(now + int64(p.backoff(e.failures)))
		p.publish(&v)
	}
	return e
}

// backoff is how long an endpoint stays ejected that failed so often.
func (p *Pool) backoff(failures int) time.Duration {
	cfg := p.common.config()
	d := cfg.EjectFor
	for ; failures > 1 && d < cfg.EjectAtMost; failures-- {
		d *= 2
	}
	return min(d, cfg.EjectAtMost)
}

// Len is the number of usable endpoints, ejected ones included.
func (p *Pool) Len() int { return len(p.view.Load().usable.endpoints) }

// Hashed reports whether choices go by Choice.Hash.
func (p *Pool) Hashed() bool { return p.view.Load().policy == dataplane.BalanceHash }

// Budget limits the retries of the service.
func (p *Pool) Budget() *Budget { return p.budget }

// Endpoints returns every endpoint of the service, draining ones too, in the
// order of their ids.
func (p *Pool) Endpoints() []*Endpoint { return slices.Clone(p.view.Load().endpoints) }

// Lease is one request at one endpoint. Release ends it, whatever happened;
// before that, at most one of Succeeded and Failed says how it went. A request
// that the client gave up says neither.
type Lease struct {
	Endpoint *Endpoint
	pool     *Pool
	trial    bool // it was ejected
	due      bool // and this is the trial that the back-off ended with
}

// Trial reports whether the endpoint was ejected when it was chosen.
func (l Lease) Trial() bool { return l.trial }

// Succeeded says that the first byte of an answer came, and after how long. It
// ends the ejection if this was a trial.
func (l Lease) Succeeded(now time.Time, latency time.Duration) {
	p, e := l.pool, l.Endpoint
	e.latency.observe(p.common.ns(now), int64(latency), p.common.config().Decay)
	if !l.trial || !e.Ejected() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.failures = 0
	e.nextTrial.Store(0)
	v := *p.view.Load()
	p.publish(&v)
}

// Failed says that a connect was refused or timed out, or that no first byte
// came in time. The endpoint is ejected, or ejected for longer if this was
// the trial that was due.
func (l Lease) Failed(now time.Time, rnd Source) {
	p, e := l.pool, l.Endpoint
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Ejected() && !l.due {
		// One of many that were on their way when the first one failed, or that
		// came here for want of another: those say nothing new.
		return
	}
	e.failures++
	d := p.backoff(e.failures)
	// A tenth more at random: proxies that failed together try one by one.
	jitter := time.Duration(float64(d) / 10 * float64(rnd.Uint64()>>11) / (1 << 53))
	e.nextTrial.Store(p.common.ns(now) + int64(d+jitter))
	v := *p.view.Load()
	p.publish(&v)
}

// Release ends the lease: the request is over, its body too.
func (l Lease) Release() { l.Endpoint.inFlight.Add(-1) }
