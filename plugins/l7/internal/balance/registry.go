package balance

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Registry holds a Pool per service. One goroutine owns it; pools may be used
// by any.
type Registry struct {
	common *common
	pools  map[dataplane.Key]*Pool
}

// NewRegistry returns an empty registry.
func NewRegistry(cfg Config, now time.Time) *Registry {
	r := &Registry{common: &common{epoch: now}, pools: make(map[dataplane.Key]*Pool)}
	r.Configure(cfg)
	return r
}

// Configure takes another configuration. What is known of endpoints stays:
// requests in flight, latencies, and who is ejected until when.
func (r *Registry) Configure(cfg Config) {
	cfg = cfg.withDefaults()
	r.common.cfg.Store(&cfg)
}

// Update makes the pool of a service follow its new version and returns it. The
// pool of a key stays the same for as long as the service exists, and its
// endpoints as long as they keep id and address: also through versions that
// lack them, while requests are in flight. An endpoint that is not as before is
// no longer ejected, unless it became suspect.
func (r *Registry) Update(svc *dataplane.Service, now time.Time, rnd Source) *Pool {
	p := r.pools[svc.Key]
	if p == nil {
		p = &Pool{common: r.common, budget: newBudget(r.common, now), endpoints: make(map[identity]*Endpoint)}
		p.turn.Store(rnd.Uint64())
		r.pools[svc.Key] = p
	}
	p.update(svc, now)
	return p
}

// Remove forgets a service: its pool has no endpoint any more. Leases stay
// valid.
func (r *Registry) Remove(k dataplane.Key, now time.Time) {
	if p := r.pools[k]; p != nil {
		p.update(&dataplane.Service{Key: k}, now)
		delete(r.pools, k)
	}
}

// Pool returns the pool of a service, or nil.
func (r *Registry) Pool(k dataplane.Key) *Pool { return r.pools[k] }

// identity is what state belongs to. An id alone is not enough: whoever takes
// it over at another address has another latency, and was never seen to fail.
type identity struct {
	id   uint64
	addr netip.AddrPort
}

func (p *Pool) update(svc *dataplane.Service, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := func(e dataplane.Endpoint) identity { return identity{e.ID, e.Addr} }
	for _, e := range p.endpoints {
		e.listed = false
	}
	typical := p.typical(now)
	list := make([]*Endpoint, 0, svc.Endpoints.Len())
	for version := range svc.Endpoints.All() {
		id := of(version)
		e := p.endpoints[id]
		if e == nil {
			e = newEndpoint(id, p.common)
			// Without this a newcomer would look infinitely quick until its
			// first answer.
			e.latency.begin(p.common.ns(now), typical)
			p.endpoints[id] = e
		} else if e.nextTrial.Load() != 0 && version.State != dataplane.Suspect && (!e.current.Equal(version) || !slices.Contains(p.all, e)) {
			e.failures = 0
			e.nextTrial.Store(0)
		}
		e.current, e.listed = version, true
		e.name.Store(&version.Name)
		list = append(list, e)
	}
	for id, e := range p.endpoints {
		if !e.listed && e.InFlight() == 0 {
			delete(p.endpoints, id)
		}
	}
	p.all = list
	v := &view{policy: svc.Balance, endpoints: list}
	if svc.Affinity.ByClient {
		v.policy = dataplane.BalanceHash
	}
	for _, version := range svc.Usable() {
		v.usable.add(p.endpoints[of(version)], version.Weight)
	}
	p.publish(v)
}

// typical is the mean latency in ns of the endpoints that have one.
func (p *Pool) typical(now time.Time) float64 {
	sum, n := 0.0, 0
	for _, e := range p.all {
		if l := e.latency.at(p.common.ns(now), p.common.config().Decay); l > 0 {
			sum += l
			n++
		}
	}
	return sum / float64(max(1, n))
}

// publish completes a view by what is ejected. The mutex is held.
func (p *Pool) publish(v *view) {
	due := int64(math.MaxInt64)
	v.live = candidates{}
	for i, e := range v.usable.endpoints {
		if t := e.nextTrial.Load(); t != 0 {
			due = min(due, t)
			continue
		}
		v.live.add(e, v.usable.weight(i))
	}
	p.view.Store(v)
	p.due.Store(due)
}
