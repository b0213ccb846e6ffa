package proxy

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/balance"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Proxy is the handler of all requests. Its methods may be called from any
// goroutine.
type Proxy struct {
	log      *slog.Logger
	metrics  *metrics
	options  atomic.Pointer[options]
	backends backend.Group
	table    atomic.Pointer[route.Table[*Target]]
	partial  atomic.Bool // the table may lack services

	exchanges sync.Pool // of *exchange
	buffers   sync.Pool // of *[]byte, bodyBytes long
	heads     sync.Pool // of *[]byte

	flows *Flows // nil: nobody can watch

	tunnelsMu sync.Mutex
	tunnels   map[*tunnel]struct{}

	mu       sync.Mutex // guards what follows; no request takes it
	registry *balance.Registry
	targets  map[dataplane.Key]*Target
	gone     []*endpoint // that are not cut yet
	sweeper  *time.Timer // nil: there was nothing to sweep yet
	sweepAt  time.Time   // when it runs; zero: it does not
	closed   bool
}

// New returns a proxy without services. It starts nothing before the first
// service comes.
func New(s settings.Settings, registry prometheus.Registerer, log *slog.Logger) (*Proxy, error) {
	p := &Proxy{log: log, tunnels: map[*tunnel]struct{}{}, targets: map[dataplane.Key]*Target{}}
	var err error
	if p.metrics, err = newMetrics(registry, p); err != nil {
		return nil, err
	}
	p.exchanges.New = func() any { return newExchange(p) }
	p.buffers.New = func() any { b := make([]byte, bodyBytes); return &b }
	p.heads.New = func() any { b := make([]byte, 0, 2<<10); return &b }
	p.registry = balance.NewRegistry(balanceOf(s), time.Now())
	p.table.Store(route.New[*Target](s.Zone))
	p.Configure(s)
	return p, nil
}

// Configure takes new settings, for the requests that begin from now on.
func (p *Proxy) Configure(s settings.Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends.Configure(backendOptionsOf(s))
	next := optionsOf(s)
	old := p.options.Load()
	next.log = p.metrics.accessLog(old, logTo(s))
	p.options.Store(&next)
	if old != nil && old.log != next.log {
		old.log.close()
	}
	p.registry.Configure(balanceOf(s))
}

// SetPartial says whether the table may lack services: a request that finds
// none is then told to come again, with 503, and not that there is none.
func (p *Proxy) SetPartial(partial bool) { p.partial.Store(partial) }

// Close ends all tunnels and requests at endpoints, and closes all connections
// to them. The proxy answers 503 from then on.
func (p *Proxy) Close() {
	p.mu.Lock()
	keys := make([]dataplane.Key, 0, len(p.targets))
	for k := range p.targets {
		keys = append(keys, k)
	}
	p.mu.Unlock()
	for _, k := range keys {
		p.Remove(k, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.gone {
		e.pool.Cut(time.Time{})
	}
	p.gone = nil
	if p.sweeper != nil {
		p.sweeper.Stop()
	}
	next := *p.options.Load()
	old := next.log
	next.log = nil
	p.options.Store(&next)
	old.close()
}

// sweepEvery is how often connections that wait for use are looked at.
const sweepEvery = 5 * time.Second

// wake makes the sweeper run at a time, or in a while if that is sooner; p.mu is
// held.
func (p *Proxy) wake(at, now time.Time) {
	if p.closed {
		return
	}
	if soon := now.Add(sweepEvery); at.After(soon) {
		at = soon
	}
	switch {
	case p.sweeper == nil:
		p.sweeper = time.AfterFunc(at.Sub(now), p.sweep)
	case p.sweepAt.IsZero() || at.Before(p.sweepAt):
		p.sweeper.Reset(max(at.Sub(now), 0))
	default:
		return // it runs sooner: updates in a row must not put it off for ever
	}
	p.sweepAt = at
}

// sweep cuts what is due and closes connections that are of no use.
func (p *Proxy) sweep() {
	now := time.Now()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	pools := p.pools()
	rest, next := p.gone[:0], now.Add(sweepEvery)
	for _, e := range p.gone {
		busy, _ := e.pool.Open()
		if busy > 0 && now.Before(e.cutAt) {
			rest = append(rest, e)
			if e.cutAt.Before(next) {
				next = e.cutAt
			}
			continue
		}
		// Nothing can begin there any more: who still holds it is refused.
		e.pool.Cut(time.Time{})
	}
	clear(p.gone[len(rest):])
	p.gone = rest
	p.sweepAt = time.Time{}
	if len(p.targets) > 0 || len(p.gone) > 0 {
		p.wake(next, now)
	}
	p.mu.Unlock()
	for _, pool := range pools {
		pool.Sweep(now)
	}
}

// Relieve closes the connections to backends that wait for use, because there
// are no descriptors left for those that are of use.
func (p *Proxy) Relieve() {
	p.mu.Lock()
	pools := p.pools()
	p.mu.Unlock()
	for _, pool := range pools {
		pool.Relieve()
	}
}

// pools lists those of all endpoints that are in force; p.mu is held.
func (p *Proxy) pools() []*backend.Pool {
	var pools []*backend.Pool
	for _, t := range p.targets {
		for _, e := range t.backend {
			pools = append(pools, e.pool)
		}
	}
	return pools
}

// globalRandom is the source of the standard library, which is safe for many
// goroutines.
type globalRandom struct{}

// Uint64 implements balance.Source.
func (globalRandom) Uint64() uint64 { return rand.Uint64() }
