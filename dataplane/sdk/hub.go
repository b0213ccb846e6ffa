package sdk

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const (
	// watchBuffer is how many events a watcher may lag before it loses some.
	watchBuffer = 256
	// maxWatchers bounds the calls of Watch under way.
	maxWatchers = 16
)

// hub gives the events of the SDK itself to all watchers. The zero hub is empty.
type hub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
}

// watcher is one call of Watch: a bounded buffer in front of its stream.
type watcher struct {
	events chan *pb.WatchResponse

	mu       sync.Mutex
	instance func() string
	seq      uint64
	quota    *quota // nil: no flows
	closed   bool
}

func newWatcher(instance func() string, flows *dataplane.FlowOptions) *watcher {
	w := &watcher{events: make(chan *pb.WatchResponse, watchBuffer), instance: instance}
	if flows != nil {
		w.quota = &quota{perSecond: flows.MaxPerSecond}
	}
	return w
}

// emit queues an event. It never blocks: without room the event is lost, and its
// number with it. Flows beyond the quota are left out without a gap.
func (w *watcher) emit(e dataplane.Event) {
	m := transfer.EncodeEvent(e)
	if m == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || e.Flow != nil && (w.quota == nil || !w.quota.take(time.Now())) {
		return
	}
	w.seq++
	m.Seq, m.InstanceId = w.seq, w.instance()
	select {
	case w.events <- m:
	default:
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// quota is a number of events for each second.
type quota struct {
	perSecond int
	second    int64
	used      int
}

func (q *quota) take(now time.Time) bool {
	if sec := now.Unix(); sec != q.second {
		q.second, q.used = sec, 0
	}
	q.used++
	return q.used <= q.perSecond
}

func (h *hub) add(w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) >= maxWatchers {
		return false
	}
	if h.watchers == nil {
		h.watchers = make(map[*watcher]bool)
	}
	h.watchers[w] = true
	return true
}

func (h *hub) remove(w *watcher) {
	h.mu.Lock()
	delete(h.watchers, w)
	h.mu.Unlock()
	w.close()
}

func (h *hub) all(e dataplane.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.emit(e)
	}
}

func (h *hub) statuses(news []dataplane.ServiceStatus) {
	for i := range news {
		h.all(dataplane.Event{Status: &news[i]})
	}
}
