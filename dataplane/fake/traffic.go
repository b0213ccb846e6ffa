package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// watcher is one call of Watch.
type watcher struct {
	flows *dataplane.FlowOptions // nil: none
	seen  int                    // flows, for the sample
	emit  func(dataplane.Event)
}

// wants reports whether an event is for the watcher: of flows one in so many.
func (w *watcher) wants(e dataplane.Event) bool {
	if e.Flow == nil {
		return true
	}
	if w.flows == nil {
		return false
	}
	w.seen++
	return w.seen%max(1, w.flows.SampleOneIn) == 0
}

// Connect plays a connection to a service: it is counted and shown to those who
// watch flows.
func (p *Provider) Connect(flow dataplane.Flow) {
	p.mu.Lock()
	p.counters[flow.Service]++
	p.mu.Unlock()
	p.Emit(dataplane.Event{Flow: &flow})
}

// Emit tells all who watch of an event.
func (p *Provider) Emit(e dataplane.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		if w.wants(e) {
			w.emit(e)
		}
	}
}

// Watching is the number of calls of Watch under way.
func (p *Provider) Watching() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers)
}

// Wanted are the wishes for flows of the calls of Watch under way, in no order.
func (p *Provider) Wanted() []dataplane.FlowOptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []dataplane.FlowOptions
	for w := range p.watchers {
		if w.flows != nil {
			out = append(out, *w.flows)
		}
	}
	return out
}

// Watch passes on what Emit and Connect are given. While it wants flows, it also
// plays the traffic that the configuration asks for.
func (p *Provider) Watch(ctx context.Context, flows *dataplane.FlowOptions, emit func(dataplane.Event)) error {
	w := &watcher{flows: flows, emit: emit}
	p.mu.Lock()
	p.watchers[w] = true
	every := p.options.traffic
	p.mu.Unlock()
	if flows != nil && every > 0 {
		p.play(ctx, every)
	}
	<-ctx.Done()
	p.mu.Lock()
	delete(p.watchers, w)
	p.mu.Unlock()
	return nil
}

// play connects to each service again and again while ctx lasts: to the first
// frontend, and from there to the first usable endpoint or none.
func (p *Provider) play(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			for _, f := range p.played(at) {
				p.Connect(f)
			}
		}
	}
}

func (p *Provider) played(at time.Time) []dataplane.Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	player := dataplane.Process{PID: 4711, Name: "player", Cgroup: "/fake", CgroupID: 1}
	var out []dataplane.Flow
	for _, k := range p.kernel.keys() {
		svc := p.kernel.services.Service(k)
		if svc == nil || len(svc.Frontends) == 0 {
			continue
		}
		f := dataplane.Flow{At: at, Service: k, Frontend: svc.Frontends[0].Binding(), Verdict: "refused", Reason: "no_endpoint", Process: player}
		if usable := svc.Usable(); len(usable) > 0 {
			f.Endpoint, f.Verdict, f.Reason = usable[0].ID, "forwarded", ""
			f.Destination = dataplane.Binding{Addr: usable[0].Addr, Protocol: f.Frontend.Protocol}
		}
		out = append(out, f)
	}
	return out
}

// Stats yields the number of connections of each service that had any, and what
// is programmed.
func (p *Provider) Stats(_ context.Context, yield func(dataplane.Counter) bool) error {
	for _, c := range p.count() {
		if !yield(c) {
			break
		}
	}
	return nil
}

// count returns all counters, the gauges first.
func (p *Provider) count() []dataplane.Counter {
	p.mu.Lock()
	defer p.mu.Unlock()
	programmed := p.kernel.keys()
	out := make([]dataplane.Counter, 0, 1+len(programmed)+len(p.counters))
	out = append(out, dataplane.Counter{Name: dataplane.GaugeServices, Value: uint64(len(programmed))})
	for _, k := range programmed {
		o, _ := p.kernel.object(k)
		out = append(out, dataplane.Counter{Service: k, Name: dataplane.GaugeEndpoints, Value: uint64(o.endpoints())})
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.counters), func(a, b dataplane.Key) int { return cmp.Compare(a.String(), b.String()) }) {
		out = append(out, dataplane.Counter{Service: k, Name: "connections", Value: p.counters[k]})
	}
	return out
}

// Open plays n connections that Drain has to wait for.
func (p *Provider) Open(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// CloseOne ends one of them.
func (p *Provider) CloseOne() {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	select {
	case p.closed <- struct{}{}:
	default:
	}
}

// Drain waits until all connections are closed, and forces them at the deadline.
func (p *Provider) Drain(ctx context.Context, deadline time.Time, progress func(dataplane.DrainProgress)) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	p.mu.Lock()
	start := p.open
	p.mu.Unlock()
	for {
		p.mu.Lock()
		now := dataplane.DrainProgress{Active: p.open, Closed: start - p.open}
		p.mu.Unlock()
		progress(now)
		if now.Active <= 0 {
			return nil
		}
		select {
		case <-p.closed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			p.mu.Lock()
			forced := p.open
			p.open = 0
			p.mu.Unlock()
			progress(dataplane.DrainProgress{Closed: start - forced, Forced: forced})
			return nil
		}
	}
}
