package proxy

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/balance"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// Target is one service, for as long as its key is there.
type Target struct {
	key       dataplane.Key
	name      string // of the key, for logs and metrics
	endpoints atomic.Pointer[endpoints]
	metrics   *metrics
	made      atomic.Pointer[series] // of the metrics; made by the first request

	requests   atomic.Uint64
	noEndpoint atomic.Uint64 // requests without an endpoint to go to

	// Guarded by Proxy.mu.
	service *dataplane.Service // as it is now; nil before Update
	backend map[identity]*endpoint
}

// identity is what makes an endpoint of a service the same as before.
type identity struct {
	id   uint64
	addr netip.AddrPort
}

// endpoints are those of one version of a service. It is immutable.
type endpoints struct {
	pool *balance.Pool
	of   map[*balance.Endpoint]*endpoint
}

// endpoint is what the proxy keeps of an endpoint beside its load.
type endpoint struct {
	identity
	name string
	pool *backend.Pool

	tries, failed  atomic.Uint64
	received, sent atomic.Uint64 // bytes of bodies and tunnels, from and to the backend

	cutAt time.Time // once gone; guarded by Proxy.mu
}

// Target returns the service of a key, to be the target of a table; it is made
// if it is not there. It has no endpoints until Update tells them.
func (p *Proxy) Target(k dataplane.Key) *Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target(k)
}

func (p *Proxy) target(k dataplane.Key) *Target {
	t := p.targets[k]
	if t == nil {
		name := k.String()
		t = &Target{key: k, name: name, metrics: p.metrics, backend: map[identity]*endpoint{}}
		p.targets[k] = t
	}
	return t
}

// series returns the metrics of the service. A service that nobody asks for has
// none: there may be ten thousand.
func (t *Target) series() *series {
	if s := t.made.Load(); s != nil {
		return s
	}
	t.made.CompareAndSwap(nil, t.metrics.service(t.name))
	return t.made.Load()
}

// endpointOf is what is kept of an endpoint that balance chose. Balance knows a
// new one a moment before now does, and nil is one that was gone at once.
func (p *Proxy) endpointOf(t *Target, now *endpoints, b *balance.Endpoint) *endpoint {
	if e := now.of[b]; e != nil {
		return e
	}
	p.mu.Lock() // until the update under way is over
	defer p.mu.Unlock()
	if now = t.endpoints.Load(); now == nil {
		return nil
	}
	return now.of[b]
}

// Swap makes table the one in force for all requests that begin from now on.
func (p *Proxy) Swap(table *route.Table[*Target]) { p.table.Store(table) }

// Update makes the endpoints of a service what svc says. Requests and tunnels
// under way are not disturbed, but for those at endpoints that are gone: they
// end at once if the endpoint is dead and was silent since it was suspected,
// else after the drain time. removed says why endpoints are gone.
func (p *Proxy) Update(svc *dataplane.Service, removed []dataplane.Removal) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.target(svc.Key)
	t.service = svc
	p.assemble(t, removed, now)
}

// Remove forgets a service.
func (p *Proxy) Remove(k dataplane.Key, removed []dataplane.Removal) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[k]
	if t == nil {
		return
	}
	delete(p.targets, k)
	p.registry.Remove(k, now)
	t.endpoints.Store(nil)
	for _, e := range t.backend {
		p.leave(t, e, removed, now)
	}
	t.backend = nil
	if s := t.made.Load(); s != nil { // it was asked for
		p.metrics.forget(s)
	}
}

// assemble joins what balance knows of the endpoints of a service with what is
// kept here, and publishes it; p.mu is held.
func (p *Proxy) assemble(t *Target, removed []dataplane.Removal, now time.Time) {
	pool := p.registry.Update(t.service, now, globalRandom{})
	all := pool.Endpoints()
	next := &endpoints{pool: pool, of: make(map[*balance.Endpoint]*endpoint, len(all))}
	kept := make(map[identity]*endpoint, len(all))
	for _, b := range all {
		id := identity{b.ID(), b.Addr()}
		e := t.backend[id]
		if e == nil {
			e = &endpoint{identity: id, name: b.Name(), pool: backend.NewPool(id.addr, &p.backends)}
		}
		next.of[b], kept[id] = e, e
	}
	gone := t.backend
	t.backend = kept
	t.endpoints.Store(next)
	for id, e := range gone {
		if kept[id] == nil {
			p.leave(t, e, removed, now)
		}
	}
	p.wake(now.Add(sweepEvery), now)
}

// leave ends what goes on at an endpoint that is gone, now or later; p.mu is
// held.
func (p *Proxy) leave(t *Target, e *endpoint, removed []dataplane.Removal, now time.Time) {
	drain := p.options.Load().drain
	if t.service != nil && t.service.DrainTime > 0 {
		drain = t.service.DrainTime
	}
	e.cutAt = now.Add(drain)
	for _, r := range removed {
		if r.Endpoint.ID != e.id {
			continue
		}
		if until := r.Endpoint.DrainUntil; !until.IsZero() {
			e.cutAt = until // it has been draining, and that ends then
		}
		if r.Reason == dataplane.RemovedDead {
			since := r.SuspectedSince
			if since.IsZero() {
				since = now
			}
			e.pool.Cut(since)
		}
	}
	e.pool.Close()
	p.gone = append(p.gone, e)
	p.wake(e.cutAt, now)
}

// Stats yields what was counted for each endpoint and each service, until yield
// returns false. Counters begin anew with the endpoint.
func (p *Proxy) Stats(yield func(dataplane.Counter) bool) {
	p.mu.Lock()
	all := make([]*Target, 0, len(p.targets))
	for _, t := range p.targets {
		all = append(all, t)
	}
	p.mu.Unlock()
	for _, t := range all {
		if !t.stats(yield) {
			return
		}
	}
}

func (t *Target) stats(yield func(dataplane.Counter) bool) bool {
	counter := func(endpoint uint64, name string, value uint64) bool {
		return yield(dataplane.Counter{Service: t.key, Endpoint: endpoint, Name: name, Value: value})
	}
	if !counter(0, "requests", t.requests.Load()) || !counter(0, "no_endpoint", t.noEndpoint.Load()) {
		return false
	}
	now := t.endpoints.Load()
	if now == nil {
		return true
	}
	for _, e := range now.of {
		if !counter(e.id, "tries", e.tries.Load()) || !counter(e.id, "failed", e.failed.Load()) ||
			!counter(e.id, "bytes_received", e.received.Load()) || !counter(e.id, "bytes_sent", e.sent.Load()) {
			return false
		}
	}
	return true
}
