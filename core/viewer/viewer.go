package viewer

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
)

// DefaultCompleteAfter is how long a node waits for word of the others before
// it takes what it knows for all there is.
const DefaultCompleteAfter = 15 * time.Second

const (
	// recheck is how often it is looked whether the view is complete.
	recheck = 100 * time.Millisecond
	// retry separates tries to write a ceiling.
	retry = 10 * time.Second
)

// Members is what the viewer follows; *membership.Membership plays the role.
type Members interface {
	Snapshot() *membership.Snapshot
	Events(ctx context.Context, seq uint64, follow bool) iter.Seq2[membership.Update, error]
}

// EpochStore keeps the ceiling of epochs over restarts.
type EpochStore interface {
	Load() (uint64, error) // 0: none was written yet
	Save(ceiling uint64) error
}

// Config says what to follow.
type Config struct {
	Members Members

	// Epochs keeps the ceiling; nil is a node that is a new one at each start.
	Epochs EpochStore

	// CompleteAfter bounds the wait for word of the others;
	// DefaultCompleteAfter if 0.
	CompleteAfter time.Duration

	Log     *slog.Logger          // nil discards
	Metrics prometheus.Registerer // nil keeps them private
}

// Viewer keeps a view current. All methods may be called from several
// goroutines.
type Viewer struct {
	cfg     Config
	metrics *metrics
	latest  atomic.Pointer[view.View]

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by each view

	cancel context.CancelFunc
	wait   sync.WaitGroup
	once   sync.Once

	// Of the goroutine alone.
	records records
	epochs  view.Epochs
	retryAt time.Time
	started time.Time
	applied uint64     // the event up to which the view goes
	due     completion // what was found; zero: nothing yet
}

// completion is what may be concluded from a view that goes up to event seq.
// The table of members is ahead of the view: of a whole table that was
// exchanged, the view may show the first member.
type completion struct {
	completeness view.Completeness
	seq          uint64
}

// Start makes the first view of what membership knows by now and follows it
// from there. An error means that the ceiling cannot be read or written.
func Start(cfg Config) (*Viewer, error) {
	if cfg.CompleteAfter == 0 {
		cfg.CompleteAfter = DefaultCompleteAfter
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Viewer{cfg: cfg, metrics: newMetrics(), changed: make(chan struct{}), records: newRecords(cfg.Log), started: time.Now()}
	first, err := v.open()
	if err != nil {
		return nil, err
	}
	if err := v.metrics.register(cfg.Metrics); err != nil {
		return nil, err
	}
	table := cfg.Members.Snapshot()
	v.applied = table.Seq
	v.publish(v.reset(view.New(table.Self.ID, first), table, v.started))
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	updates := make(chan membership.Update)
	v.wait.Go(func() { v.follow(ctx, table.Seq, updates) })
	v.wait.Go(func() { v.run(ctx, updates) })
	return v, nil
}

// Latest returns the current view. It never waits.
func (v *Viewer) Latest() *view.View { return v.latest.Load() }

// Changed returns a channel that is closed when the next view is published.
func (v *Viewer) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// Close ends the viewer; Latest stays. On return none of its goroutines runs.
func (v *Viewer) Close() {
	v.once.Do(func() {
		v.cancel()
		v.wait.Wait()
		v.metrics.unregister(v.cfg.Metrics)
	})
}

// open reads the ceiling and reserves the first block.
func (v *Viewer) open() (first uint64, err error) {
	var ceiling uint64
	if v.cfg.Epochs != nil {
		if ceiling, err = v.cfg.Epochs.Load(); err != nil {
			return 0, err
		}
	}
	v.epochs, first = view.NewEpochs(ceiling)
	return first, v.reserve(first)
}

// reserve writes the next ceiling if it is time for it.
func (v *Viewer) reserve(epoch uint64) error {
	want := v.epochs.Want(epoch)
	if want == 0 {
		return nil
	}
	if v.cfg.Epochs != nil {
		if err := v.cfg.Epochs.Save(want); err != nil {
			return err
		}
	}
	v.epochs.Written(want)
	return nil
}

// follow hands on the updates after seq until ctx ends or membership does.
func (v *Viewer) follow(ctx context.Context, seq uint64, to chan<- membership.Update) {
	for u, err := range v.cfg.Members.Events(ctx, seq, true) {
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, membership.ErrClosed) {
				v.cfg.Log.Error("the view is not kept up to date any more: restart the agent", "error", err)
			}
			return
		}
		select {
		case to <- u:
		case <-ctx.Done():
			return
		}
	}
}

func (v *Viewer) run(ctx context.Context, updates <-chan membership.Update) {
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	tick := ticker.C
	for {
		cur := v.Latest()
		next := v.complete(cur)
		if next != cur {
			v.cfg.Log.Info("the view is complete", "because", next.Completeness.String(), "services", next.Len(), "endpoints", next.EndpointCount(), "nodes", next.NodeCount())
			tick = nil
			v.publish(next)
			cur = next
		}
		select {
		case u := <-updates:
			if u.Reset != nil {
				v.metrics.resets.Inc()
				next, v.applied = v.reset(cur, u.Reset, time.Now()), u.Reset.Seq
			} else {
				next, v.applied = v.step(cur, u.Event), u.Event.Seq
			}
			if next != cur {
				v.publish(next)
			}
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// step applies one event.
func (v *Viewer) step(cur *view.View, e membership.Event) *view.View {
	if isReaped(e) {
		v.records.forget(e.Member.ID)
		return view.Apply(cur, view.Forgotten{ID: e.Member.ID})
	}
	return view.Apply(cur, v.records.seen(e.Member, e.At))
}

// reset brings the view in line with a whole table.
func (v *Viewer) reset(cur *view.View, table *membership.Snapshot, now time.Time) *view.View {
	known := make(map[model.NodeID]bool, len(table.Members))
	for i := range table.Members {
		known[table.Members[i].ID] = true
		cur = view.Apply(cur, v.records.seen(table.Members[i], now))
	}
	for n := range cur.Nodes() {
		if !known[n.ID] {
			v.records.forget(n.ID)
			cur = view.Apply(cur, view.Forgotten{ID: n.ID})
		}
	}
	return cur
}

// publish shows a view. That the ceiling cannot be written does not keep a
// view from the data planes.
func (v *Viewer) publish(next *view.View) {
	if now := time.Now(); !now.Before(v.retryAt) {
		if err := v.reserve(next.Epoch); err != nil {
			v.retryAt = now.Add(retry)
			v.cfg.Log.Error("the epochs of views cannot be reserved; should that last, watchers have to start over after the next restart", "error", err,
				"reserved", v.epochs.Reserved(next.Epoch))
		}
	}
	v.latest.Store(next)
	v.metrics.show(next)
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// complete marks the view complete once it shows all that the table did when
// it was found to be so.
func (v *Viewer) complete(cur *view.View) *view.View {
	if cur.Completeness != view.Incomplete {
		return cur
	}
	if v.due.completeness == view.Incomplete {
		table := v.cfg.Members.Snapshot()
		v.due = completion{v.completeness(table), table.Seq}
	}
	if v.applied < v.due.seq {
		return cur
	}
	return view.Apply(cur, view.Completed{Completeness: v.due.completeness})
}

// completeness says what may be concluded now from what a table lacks.
func (v *Viewer) completeness(table *membership.Snapshot) view.Completeness {
	switch {
	case time.Since(v.started) >= v.cfg.CompleteAfter:
		return view.TimedOut
	case !recordsHere(table):
		return view.Incomplete
	case table.Exchanged:
		return view.Exchanged
	case table.Unheard == 0:
		return view.Alone
	}
	return view.Incomplete
}
