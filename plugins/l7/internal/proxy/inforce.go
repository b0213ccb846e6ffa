package proxy

import "github.com/fairlead/fairlead/dataplane"

// InForce yields, as the gauges of package dataplane, the services that have
// been told their endpoints, and how many of these the proxy holds; it stops
// when yield returns false.
func (p *Proxy) InForce(yield func(dataplane.Counter) bool) {
	p.mu.Lock()
	endpoints := make(map[dataplane.Key]int, len(p.targets))
	for k, t := range p.targets {
		if now := t.endpoints.Load(); now != nil {
			endpoints[k] = len(now.of)
		}
	}
	p.mu.Unlock()
	if !yield(dataplane.Counter{Name: dataplane.GaugeServices, Value: uint64(len(endpoints))}) {
		return
	}
	for k, n := range endpoints {
		if !yield(dataplane.Counter{Service: k, Name: dataplane.GaugeEndpoints, Value: uint64(n)}) {
			return
		}
	}
}
