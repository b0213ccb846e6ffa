package plane

import (
	"context"

	"github.com/fairlead/fairlead/dataplane"
)

// watcher is one call of Watch.
type watcher struct{ emit func(dataplane.Event) }

// Watch tells of drift. Flows are not seen: the kernel decides on them.
func (p *Provider) Watch(ctx context.Context, _ *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	w := &watcher{emit}
	p.mu.Lock()
	p.watchers[w] = true
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
	return nil
}

// emit tells all who watch. p.mu is held; the callbacks do not block.
func (p *Provider) emit(e dataplane.Event) {
	for w := range p.watchers {
		w.emit(e)
	}
}
