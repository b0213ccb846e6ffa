package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMaxProbes is how many probes run at once. Each takes one descriptor.
const DefaultMaxProbes = 512

// quantum separates two looks at what is due: some probes a look cost less than
// a look for each.
const quantum = 50 * time.Millisecond

// Config says what a Runner uses. The zero value works.
type Config struct {
	// Path names the file that keeps what passes over a restart; "" keeps
	// nothing. Its directory exists. A file that is damaged is warned of and
	// replaced.
	Path string

	// OnChange is called after an instance became passing or critical, came or
	// went; several changes may be one call. It is called by the Runner's
	// goroutine, so it returns soon. It may call Set and States, not Close.
	OnChange func()

	MaxProbes int // at once; DefaultMaxProbes if 0

	Now     func() time.Time      // nil: the clock
	Rand    *rand.Rand            // spreads probes; owned by the Runner; nil: seeded at random
	Log     *slog.Logger          // nil discards
	Metrics prometheus.Registerer // nil keeps them private
}

// Runner checks instances until it is closed. All methods may be called from
// several goroutines.
type Runner struct {
	cfg     Config
	metrics *metrics
	bootID  string

	mu      sync.Mutex // guards what follows
	table   *table
	running int       // probes under way
	patient int       // those among them that may hang
	handed  int       // those among them that are with workers
	workers int       // goroutines
	wakeAt  time.Time // until when the scheduler sleeps; zero: until it is woken
	starved bool      // something due waits for a worker
	changed bool      // OnChange is owed
	set     bool      // Set was called
	closed  bool

	slow chan *flight  // capacity MaxProbes, so that the scheduler never waits
	wake chan struct{} // capacity 1: look again
	save chan struct{} // capacity 1: the file is out of date

	ctx       context.Context // ends probes
	cancel    context.CancelFunc
	scheduler sync.WaitGroup // with the writer of the file
	working   sync.WaitGroup
	once      sync.Once
}

// Start begins with nothing to check; Set says what there is. The only error is
// metrics that are registered already.
func Start(cfg Config) (*Runner, error) {
	if cfg.MaxProbes <= 0 {
		cfg.MaxProbes = DefaultMaxProbes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // spreads load, guards nothing
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{
		cfg: cfg, metrics: newMetrics(),
		slow: make(chan *flight, cfg.MaxProbes), wake: make(chan struct{}, 1), save: make(chan struct{}, 1),
	}
	if err := r.metrics.register(cfg.Metrics); err != nil {
		return nil, err
	}
	r.table = newTable(r.recall())
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.scheduler.Go(r.schedule)
	if cfg.Path != "" && r.bootID != "" {
		r.scheduler.Go(r.keep)
	}
	return r, nil
}

// Set makes instances the whole of what is checked, and returns at once. What
// is set as before goes on as before.
func (r *Runner) Set(instances []Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.set = true
	r.note(r.table.set(instances, r.cfg.Now(), r.cfg.Rand.Float64))
}

// States returns what is known of each instance, all of one moment.
func (r *Runner) States() map[InstanceKey]Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[InstanceKey]Status, len(r.table.instances))
	for key, in := range r.table.instances {
		all[key] = in.status()
	}
	return all
}

// State returns what is known of one instance; false: it is not checked here.
func (r *Runner) State(key InstanceKey) (Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.table.instances[key]
	if in == nil {
		return Status{}, false
	}
	return in.status(), true
}

// Close ends all probes, waits for the Runner's goroutines and writes the file
// a last time. States stay readable.
func (r *Runner) Close() {
	r.once.Do(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.cancel()
		r.scheduler.Wait() // nothing is handed out any more
		close(r.slow)
		r.working.Wait()
		r.metrics.unregister(r.cfg.Metrics)
	})
}

// schedule makes the probes that are due, and tells of changes. It owns the
// timer and the lane.
func (r *Runner) schedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lane := newLane(r)
	var due []probe
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
		}
		due = r.due(due[:0])
		lane.run(due)
		clear(due)
		changed, sleep := r.rest()
		if changed && r.cfg.OnChange != nil {
			r.cfg.OnChange()
		}
		timer.Reset(sleep)
	}
}

// due takes the probes that are due, as far as there is room for them.
func (r *Runner) due(due []probe) []probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	for r.running < r.cfg.MaxProbes {
		e := r.table.take(now, r.isPatient())
		if e == nil {
			break
		}
		r.running++
		p := e.probe()
		if p.patient {
			r.patient++
		}
		due = append(due, p)
	}
	return due
}

// isPatient reports whether there is room for a probe that may hang. Those get
// three quarters of it, so that they never keep the others from their turn. The
// mutex is held.
func (r *Runner) isPatient() bool { return r.patient < max(1, r.cfg.MaxProbes*3/4) }

// rest returns whether OnChange is owed, and how long there is nothing to do
// unless woken.
func (r *Runner) rest() (changed bool, sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, r.changed = r.changed, false
	r.metrics.running.Set(float64(r.running))
	next, waits := r.table.next(r.isPatient())
	full := r.running == r.cfg.MaxProbes
	r.starved = waits && full || len(r.table.patient) > 0 && !r.isPatient()
	if !waits || full {
		r.wakeAt = time.Time{}
		return changed, time.Hour // until a worker or Set wakes it
	}
	now := r.cfg.Now()
	sleep = max(next.Sub(now), quantum)
	r.wakeAt = now.Add(sleep)
	return changed, sleep
}

// hand gives a probe that has to wait to a worker.
func (r *Runner) hand(f *flight) {
	r.mu.Lock()
	f.handed = true
	if r.handed++; r.workers < r.handed {
		r.workers++
		r.working.Go(r.work)
	}
	r.mu.Unlock()
	r.slow <- f
}

// work waits for one probe at a time until there are no more.
func (r *Runner) work() {
	h := newReader()
	for f := range r.slow {
		r.finish(f, f.resume(r.ctx, h))
	}
}

// finish takes the outcome of a probe in.
func (r *Runner) finish(f *flight, out outcome) {
	f.end()
	out.took = time.Since(f.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if f.patient {
		r.patient--
	}
	if f.handed {
		r.handed--
	}
	if r.closed { // an outcome of being cut off says nothing
		return
	}
	r.metrics.probed(f.kind, out)
	in := f.entry.of
	ch := r.table.finish(f.entry, out, r.cfg.Now(), r.cfg.Rand.Float64())
	if ch.toPassing+ch.toCritical > 0 {
		r.cfg.Log.Info("instance changed", "instance", in.key.String(), "passing", in.passing(), "check", f.entry.id, "output", line(out.output))
	}
	r.note(ch)
}

// note does what follows from changes. The mutex is held.
func (r *Runner) note(ch changes) {
	r.metrics.show(r.table, ch)
	if ch.instances {
		r.changed = true
	}
	if ch.checks {
		signal(r.save)
	}
	if due, waits := r.table.next(r.isPatient()); ch.instances || r.starved || ch.nextEarlier && waits && (r.wakeAt.IsZero() || due.Before(r.wakeAt.Add(-quantum))) {
		r.starved = false
		signal(r.wake)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
