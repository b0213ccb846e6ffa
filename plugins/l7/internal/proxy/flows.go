package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Flows tells those who watch of requests. While nobody does, a request costs one
// load. The zero Flows has no watcher.
type Flows struct {
	mu   sync.Mutex // one change at a time
	list atomic.Pointer[[]*flowWatcher]
}

// TellFlows makes the proxy tell of requests. It is called before the first one.
func (p *Proxy) TellFlows(f *Flows) { p.flows = f }

// flowWatcher is one who watches.
type flowWatcher struct {
	options dataplane.FlowOptions
	emit    func(dataplane.Flow)
	seen    atomic.Uint64 // for the sample
	second  atomic.Int64
	used    atomic.Int64 // in this second
}

// Watch calls emit for requests that end from now on, until stop is called: one
// in so many, and about so many in a second at most. emit is called from the
// goroutines of requests and does not block; it may be called once more after stop.
func (f *Flows) Watch(options dataplane.FlowOptions, emit func(dataplane.Flow)) (stop func()) {
	w := &flowWatcher{options: options, emit: emit}
	f.change(func(list []*flowWatcher) []*flowWatcher { return append(list, w) })
	return func() {
		f.change(func(list []*flowWatcher) []*flowWatcher {
			return slices.DeleteFunc(list, func(o *flowWatcher) bool { return o == w })
		})
	}
}

func (f *Flows) change(edit func([]*flowWatcher) []*flowWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*flowWatcher
	if old := f.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = edit(list); len(list) == 0 {
		f.list.Store(nil)
		return
	}
	f.list.Store(&list)
}

// take reports whether a request is for the watcher. A race at the turn of a
// second may let a few more through.
func (w *flowWatcher) take(now time.Time) bool {
	if n := w.seen.Add(1); n%uint64(max(1, w.options.SampleOneIn)) != 0 {
		return false
	}
	if second := now.Unix(); w.second.Swap(second) != second {
		w.used.Store(0)
	}
	return w.options.MaxPerSecond <= 0 || w.used.Add(1) <= int64(w.options.MaxPerSecond)
}

// observed tells of a request that ended.
func (f *Flows) observed(x *exchange, took time.Duration) {
	list := f.list.Load()
	if list == nil {
		return
	}
	for _, w := range *list {
		if w.take(x.start.Add(took)) {
			w.emit(x.flow())
		}
	}
}

// flow is the request as a data plane tells of connections: refused if no
// backend was to answer it.
func (x *exchange) flow() dataplane.Flow {
	f := dataplane.Flow{At: x.start, Verdict: "refused", Reason: string(x.reason)}
	if from, err := netip.ParseAddrPort(x.r.RemoteAddr); err == nil {
		f.Source = dataplane.Binding{Addr: netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port()), Protocol: dataplane.TCP}
	}
	if x.target != nil {
		f.Service = x.target.key
	}
	if x.at != nil {
		f.Endpoint, f.Verdict = x.at.id, "forwarded"
		f.Destination = dataplane.Binding{Addr: x.at.addr, Protocol: dataplane.TCP}
	}
	return f
}
