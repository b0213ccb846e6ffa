package l7

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
)

// Watch tells of requests to who asks for flows. Health and statuses are told by
// the SDK.
func (p *Provider) Watch(ctx context.Context, flows *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	if flows != nil {
		// Not for each flow: the end of a request must not wait for who holds p.mu.
		at := p.frontend()
		defer p.flows.Watch(*flows, func(f dataplane.Flow) {
			f.Frontend = at
			emit(dataplane.Event{Flow: &f})
		})()
	}
	<-ctx.Done()
	return nil
}

// frontend is where requests come in, if that is one place.
func (p *Provider) frontend() dataplane.Binding {
	p.mu.Lock()
	front := p.front
	p.mu.Unlock()
	if front == nil {
		return dataplane.Binding{}
	}
	all := front.Addresses()
	if len(all) != 1 {
		return dataplane.Binding{Protocol: dataplane.TCP}
	}
	at, _ := netip.ParseAddrPort(all[0]) // of a listener; else it stays unknown
	return dataplane.Binding{Addr: at, Protocol: dataplane.TCP}
}
