package iptables

import (
	"context"

	"github.com/fairlead/fairlead/dataplane"
)

// watcher is one call of Watch.
type watcher struct{ emit func(dataplane.Event) }

// Watch tells of drift. Rules tell nobody of the flows that they lead, so of those
// there is nothing to tell.
func (p *Provider) Watch(ctx context.Context, _ *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	w := &watcher{emit: emit}
	p.show(func(sh *shown) { sh.watchers[w] = true })
	<-ctx.Done()
	p.show(func(sh *shown) { delete(sh.watchers, w) })
	return nil
}

// emit tells all who watch; the callbacks do not block.
func (p *Provider) emit(e dataplane.Event) {
	p.show(func(sh *shown) {
		for w := range sh.watchers {
			w.emit(e)
		}
	})
}
