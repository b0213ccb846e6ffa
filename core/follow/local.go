package follow

import (
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/store"
)

// LocalConfig is what a Local is made of. All fields are required.
type LocalConfig struct {
	// Name is this server's, and Cluster the id of its group.
	Name    string
	Cluster uint64
	// View returns the newest state of the server, and Leader whether it knows a
	// leader now.
	View   func() *store.View
	Leader func() bool
	Now    func() time.Time
}

// Local is the Source of an agent that is a server itself.
type Local struct {
	cfg LocalConfig

	mu       sync.Mutex
	revision int64
	changed  chan struct{} // closed when there is a newer state
	led      time.Time     // when there was a leader last
}

var _ Source = (*Local)(nil)

// NewLocal returns the source of a server.
func NewLocal(cfg LocalConfig) (*Local, error) {
	if cfg.Name == "" || cfg.Cluster == 0 || cfg.View == nil || cfg.Leader == nil || cfg.Now == nil {
		return nil, errors.New("follow: all fields of LocalConfig are required")
	}
	return &Local{cfg: cfg, revision: cfg.View().Stats(store.System).Revision, changed: make(chan struct{})}, nil
}

// Applied is to be called when there may be a newer state, or another leader. It
// does not block.
func (l *Local) Applied() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	if now := l.cfg.View().Stats(store.System).Revision; now != l.revision {
		l.revision = now
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// look notes when there was a leader.
func (l *Local) look() {
	if l.cfg.Leader() {
		l.led = l.cfg.Now()
	}
}

// State implements Source.
func (l *Local) State() State { return viewed{l.cfg.Cluster, l.cfg.View()} }

// Changed implements Source.
func (l *Local) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Status implements Source. A server that knows a leader is as new as it can know.
func (l *Local) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	stats := l.cfg.View().Stats(store.System)
	s := Status{Cluster: l.cfg.Cluster, Revision: stats.Revision, Keys: stats.Keys, Current: l.led, Server: l.cfg.Name}
	if !l.cfg.Leader() {
		s.Problem = "this server knows no leader"
	}
	return s
}

// viewed is the system's part of a view.
type viewed struct {
	cluster uint64
	*store.View
}

var _ State = viewed{}

// Cluster implements State.
func (v viewed) Cluster() uint64 { return v.cluster }

// Revision implements State.
func (v viewed) Revision() int64 { return v.Stats(store.System).Revision }

// Get implements State.
func (v viewed) Get(key string) (store.KeyValue, bool) {
	r, err := v.View.Range(store.System, store.RangeOp{Range: store.Range{Key: key}})
	if err != nil || len(r.KVs) == 0 {
		return store.KeyValue{}, false
	}
	return r.KVs[0], true
}

// Range implements State.
func (v viewed) Range(prefix string) iter.Seq[store.KeyValue] {
	return func(yield func(store.KeyValue) bool) {
		r, err := v.View.Range(store.System, store.RangeOp{Range: rangeOf(prefix)})
		if err != nil {
			return // Invariant: the newest revision of a view can be read
		}
		for _, kv := range r.KVs {
			if !yield(kv) {
				return
			}
		}
	}
}

// rangeOf is all keys with a prefix.
func rangeOf(prefix string) store.Range {
	if prefix == "" {
		return store.Range{Key: store.FromKey, End: store.FromKey}
	}
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			return store.Range{Key: prefix, End: prefix[:i] + string([]byte{prefix[i] + 1})}
		}
	}
	return store.Range{Key: prefix, End: store.FromKey}
}
