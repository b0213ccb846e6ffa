package ebpf

import (
	"context"

	"github.com/fairlead/fairlead/dataplane"
)

// watcher is one call of Watch.
type watcher struct {
	flows *dataplane.FlowOptions // nil: none
	emit  func(dataplane.Event)
}

// Watch tells of drift, and of flows to who asks for them.
func (p *Provider) Watch(ctx context.Context, flows *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	w := &watcher{flows: flows, emit: emit}
	p.mu.Lock()
	p.watchers[w] = true
	p.restartFlows()
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
	p.restartFlows()
	return nil
}

// emit tells all who watch. p.mu is held; the callbacks do not block.
func (p *Provider) emit(e dataplane.Event) {
	for w := range p.watchers {
		w.emit(e)
	}
}

// wanted is how many flows those who watch want: the finest sample and the highest
// rate of all; nil if nobody wants any.
func (p *Provider) wanted() *dataplane.FlowOptions {
	var most *dataplane.FlowOptions
	for w := range p.watchers {
		if w.flows == nil {
			continue
		}
		o := dataplane.FlowOptions{SampleOneIn: max(1, w.flows.SampleOneIn), MaxPerSecond: w.flows.MaxPerSecond}
		if o.MaxPerSecond <= 0 {
			o.MaxPerSecond = defaultFlowsPerSecond
		}
		if most == nil {
			most = &o
			continue
		}
		most.SampleOneIn = min(most.SampleOneIn, o.SampleOneIn)
		most.MaxPerSecond = max(most.MaxPerSecond, o.MaxPerSecond)
	}
	return most
}
