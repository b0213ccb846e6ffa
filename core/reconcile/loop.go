package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// Defaults of Config.
const (
	DefaultTick     = time.Second
	DefaultMinGap   = 10 * time.Millisecond
	DefaultDeadline = 5 * time.Second
)

// maxBackOff bounds the time between two tries with a provider that refuses.
const maxBackOff = 30 * time.Second

// Views is where the loop finds what to program; viewer.Viewer plays the role.
type Views interface {
	Latest() *view.View
	Changed() <-chan struct{} // closed at the view after the current one
}

// Config says which provider to keep at what.
type Config struct {
	Provider string            // name
	Session  dataplane.Session // of this run of this agent
	Views    Views

	// Tick is how often the provider hears of this agent at least;
	// DefaultTick if 0.
	Tick time.Duration

	// MinGap separates two calls, so that changes that come together go
	// together; DefaultMinGap if 0.
	MinGap time.Duration

	// Deadline bounds one call; DefaultDeadline if 0.
	Deadline time.Duration

	Log     *slog.Logger // nil discards
	Metrics *Metrics     // nil counts nothing

	follows bool // of a Source
}

// followLabel stands in metrics for all that follow. No provider has that name,
// and those that follow may choose any.
const followLabel = "(follow)"

// label is the provider in metrics.
func (c Config) label() string {
	if c.follows {
		return followLabel
	}
	return c.Provider
}

func (c Config) withDefaults() Config {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	if c.MinGap == 0 {
		c.MinGap = DefaultMinGap
	}
	if c.Deadline == 0 {
		c.Deadline = DefaultDeadline
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	c.Log = c.Log.With("provider", c.Provider)
	return c
}

// Loop keeps one provider at the view, over any number of its processes.
type Loop struct {
	cfg      Config
	turn     chan struct{} // holds a token while nobody serves
	standing standing

	// Of whoever has the turn.
	projector  *projector
	encoder    *transfer.Encoder
	generation uint64     // the last that was used
	has        *delivered // what the provider has; nil: not known, or nothing of this loop
	tried      *delivered // sent without an answer
	unsure     bool       // ask State before anything else
	resync     string     // why a whole snapshot is wanted
	again      again      // when one is, as services were refused
	settled    bool       // a complete generation was applied
	stranger   *stranger  // the provider had what another agent told; nil: it had not
	failures   int        // in a row
	failed     string     // the last failure as logged
}

// delivered is a generation that was sent.
type delivered struct {
	view     *view.View
	snapshot *dataplane.Snapshot
}

// is reports whether a provider in this state has it.
func (d *delivered) is(s dataplane.State) bool {
	return d != nil && s.Session == d.snapshot.Session && s.Generation == d.snapshot.Generation && bytes.Equal(s.Digest, d.snapshot.Digest)
}

// New returns the loop of one provider.
func New(cfg Config) *Loop {
	cfg = cfg.withDefaults()
	l := &Loop{cfg: cfg, turn: make(chan struct{}, 1), projector: newProjector(), encoder: transfer.NewEncoder()}
	l.turn <- struct{}{}
	l.standing.init(cfg)
	return l
}

// Status returns how the provider fares.
func (l *Loop) Status() Status { return l.standing.get() }

// Serve keeps the provider behind a connection at the view until ctx ends or
// lost is closed, both of which are no error. It returns an error if the
// provider has to be started anew: dataplane.ErrNotConfigured. A second call
// waits for the first to end.
func (l *Loop) Serve(ctx context.Context, client pb.DataPlaneProviderClient, lost <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-lost:
		return nil
	case <-ctx.Done():
		return nil
	}
	events := make(chan dataplane.Event)
	var helpers sync.WaitGroup
	helpers.Go(func() { watch(ctx, client, l.cfg.Tick, events) })
	helpers.Go(func() {
		select {
		case <-lost:
			cancel() // a call to a process that is gone need not wait for its deadline
		case <-ctx.Done():
		}
	})
	err := l.run(ctx, &push{client: client}, events)
	cancel()
	helpers.Wait()
	return err
}

// peer is the way to a provider: push or pull.
type peer interface {
	// reconcile carries one generation over. Without an answer it is nil, nil.
	reconcile(ctx context.Context, c call) (*pb.ReconcileResponse, error)
	state(ctx context.Context) (dataplane.State, error)
}

// run is the loop itself.
func (l *Loop) run(ctx context.Context, to peer, events <-chan dataplane.Event) error {
	l.unsure = true
	l.failures, l.failed = 0, ""
	l.standing.connected(true)
	defer l.standing.connected(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := l.cfg.Views.Changed()
		begun := time.Now()
		err := l.once(ctx, to)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && (errors.Is(err, dataplane.ErrNotConfigured) || errors.Is(err, errStreamEnded)) {
			return err
		}
		if err != nil {
			changed = nil // what changed goes with the next try
		}
		gap := time.NewTimer(l.cfg.MinGap)
		timer.Reset(max(l.cfg.MinGap, time.Until(begun.Add(l.pause()))))
		wake := (<-chan struct{})(nil)
		for due := false; !due; {
			select {
			case <-gap.C:
				wake = changed
			case <-wake:
				due = true
			case <-timer.C:
				due = true
			case e := <-events:
				l.event(e)
			case <-ctx.Done():
				gap.Stop()
				return nil
			}
		}
		gap.Stop()
	}
}

// pause is the time from one call to the next, if nothing changes.
func (l *Loop) pause() time.Duration {
	if l.failures < 2 {
		return l.cfg.Tick
	}
	return min(l.cfg.Tick<<min(l.failures-1, 10), max(l.cfg.Tick, maxBackOff))
}

// event takes in what the provider noticed by itself.
func (l *Loop) event(e dataplane.Event) {
	switch {
	case e.Health != nil:
		l.standing.health(*e.Health)
	case e.Status != nil:
		l.standing.one(*e.Status)
	case e.Drift != nil:
		l.cfg.Metrics.drift(l.cfg.label(), e.Drift.Repaired)
		l.cfg.Log.Warn("the system was not as the provider had left it", "what", e.Drift.What, "repaired", e.Drift.Repaired)
	case e.ResyncWanted != "":
		l.cfg.Log.Info("the provider wants a whole snapshot", "reason", e.ResyncWanted)
		l.resync = "wanted" // goes with the next tick: it may want one all the time
	}
}

// fail notes an error and logs it once, until something else happens.
func (l *Loop) fail(err error) {
	l.failures++
	l.unsure = true
	l.standing.failed(err)
	if text := err.Error(); text != l.failed {
		l.failed = text
		l.cfg.Log.Warn("the provider was not reconciled; what it has stays in force, and it is tried again", "error", err, "remedy", remedy(err))
	}
}

func remedy(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "see why the provider is slow: its log, and the load of this host"
	case errors.Is(err, dataplane.ErrOldSession):
		return "another agent controls this provider: stop one of the two, or give this one a provider of its own"
	case errors.Is(err, dataplane.ErrLimit):
		return "run fewer services, or take a provider without this limit"
	}
	return "see the provider's log"
}

// errLie says that a provider named another generation than the one sent.
var errLie = errors.New("reconcile: the provider answered for another generation")

func lie(sent, got uint64) error {
	return fmt.Errorf("%w: %d was sent, %d was answered: this is a fault of the provider", errLie, sent, got)
}
