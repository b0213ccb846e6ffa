package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/pluginhost"
)

// Errors of Run.
var (
	// ErrCutShort: a second signal ended a stop that was under way.
	ErrCutShort = errors.New("agent: stopped at once by a second signal; other nodes may take this one for failed")
	// ErrStopTimeout: something did not end within shutdown_timeout.
	ErrStopTimeout = errors.New("agent: not stopped within shutdown_timeout, giving up")
)

// sameRequest is how soon after the first signal another one is the same
// request: timeout(1) and some supervisors signal a process and its group.
const sameRequest = 200 * time.Millisecond

// Loaded is a configuration as config.Load returns it.
type Loaded struct {
	Config   *config.Config
	Origins  config.Origins
	Warnings []string
}

// Options are the parts that an Agent does not make itself.
type Options struct {
	Loaded Loaded

	// Reload reads the configuration again on SIGHUP. Nil: SIGHUP is refused
	// in the log.
	Reload func() (Loaded, error)

	// Log receives everything the agent has to say; Level, if not nil, is set
	// when a reload changes log.level.
	Log   *slog.Logger
	Level *slog.LevelVar

	// Metrics takes every metric and is served at /metrics. It belongs to this
	// agent: a registry per agent, never the global one.
	Metrics *prometheus.Registry

	// Version is told to clients.
	Version string

	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Agent is one node. Run it once.
type Agent struct {
	opts     Options
	log      *slog.Logger
	started  time.Time
	settings atomic.Pointer[Loaded]
	metrics  *metrics

	members   *membership.Membership
	storage   *storage
	services  *services
	planes    *planes
	host      atomic.Pointer[pluginhost.Host] // nil: none yet, or none at all
	chosen    atomic.Bool                     // no host will come any more than is there
	leaver    *leaver
	listeners []api.Listener // as bound; written before anything is served
}

// New returns an agent that has opened nothing yet.
func New(o Options) (*Agent, error) {
	switch {
	case o.Loaded.Config == nil:
		return nil, errors.New("agent: Options.Loaded has no configuration")
	case o.Metrics == nil:
		return nil, errors.New("agent: Options.Metrics is nil")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	const starts = "the agent starts"
	a := &Agent{
		opts: o, log: o.Log, started: o.Now(),
		storage: &storage{front: etcd.NewFront(starts), agents: etcd.NewFront(starts)},
	}
	a.settings.Store(&o.Loaded)
	return a, nil
}

// Run is the life of the agent. It returns nil after a stop that was asked
// for: by ctx, by SIGINT or SIGTERM from signals (which may be nil), or over
// the API. A part that cannot be opened is one error, and then nothing stays
// behind.
func (a *Agent) Run(ctx context.Context, signals <-chan os.Signal) error {
	var opened cleanups
	asked, err := a.start(ctx, signals, &opened)
	switch {
	case asked && errors.Is(err, ErrCutShort):
		return err
	case asked && (err == nil || errors.Is(err, context.Canceled)):
		return a.stop(&opened, signals)
	case err != nil:
		stop, cancel := context.WithTimeout(context.Background(), a.shutdownTimeout())
		defer cancel()
		if a.leaver != nil {
			// The others met this node already and are not to see it fail.
			_ = a.leaver.Leave(stop)
		}
		opened.run(stop)
		return err
	}
	a.announce()
	a.wait(ctx, signals)
	return a.stop(&opened, signals)
}

// start opens all parts. asked says that a stop was asked for meanwhile, which
// cuts short what takes long: a plugin may not answer.
func (a *Agent) start(ctx context.Context, signals <-chan os.Signal, opened *cleanups) (asked bool, err error) {
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.open(opening, opened) }()
	var reload bool
	var at time.Time
	for {
		select {
		case err := <-done:
			switch {
			case asked:
			case ctx.Err() != nil:
				a.log.Info("stopping", "reason", context.Cause(ctx).Error())
				asked = true
			case reload && err == nil:
				asked = a.reloadUnless(ctx, signals)
			}
			return asked, err
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				reload = true
			case !asked:
				a.log.Info("stopping", "reason", s.String())
				asked, at = true, time.Now()
				cancel()
			case time.Since(at) >= sameRequest:
				return true, ErrCutShort
			}
		}
	}
}

// wait returns when the agent should stop.
func (a *Agent) wait(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			a.log.Info("stopping", "reason", context.Cause(ctx).Error())
			return
		case <-a.leaver.asked():
			a.log.Info("stopping", "reason", "asked over the API", "how", a.leaver.what())
			return
		case s := <-signals:
			switch {
			case s != syscall.SIGHUP:
				a.log.Info("stopping", "reason", s.String())
				return
			case a.reloadUnless(ctx, signals):
				return
			}
		}
	}
}

// reloadUnless reloads. A stop that is asked for meanwhile cuts short what takes
// long, the choice of data planes, and is reported. SIGHUP that comes meanwhile is
// obeyed afterwards.
func (a *Agent) reloadUnless(ctx context.Context, signals <-chan os.Signal) (stop bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for again := true; again && !stop; {
		again = false
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.reload(ctx)
		}()
		asked := a.leaver.asked()
		for reloading := true; reloading; {
			select {
			case <-done:
				reloading = false
			case <-asked:
				asked = nil // wait says it
				cancel()
			case s := <-signals:
				if s == syscall.SIGHUP {
					again = true
					continue
				}
				if !stop {
					a.log.Info("stopping", "reason", s.String())
				}
				stop = true
				cancel()
			}
		}
		if ctx.Err() != nil {
			return stop
		}
	}
	return stop
}

// stop leaves and closes within shutdown_timeout, or returns early at a second
// signal.
func (a *Agent) stop(opened *cleanups, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), a.shutdownTimeout())
	defer cancel()

	begun := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.leaver.Leave(ctx); err != nil {
			a.log.Warn("stopped without knowing that others heard of it; they may take this node for failed", "how", a.leaver.what(), "error", err)
		}
		opened.run(ctx)
	}()

	// After the deadline everything was told to end; this is for it to do so.
	late := time.NewTimer(a.shutdownTimeout() + time.Second)
	defer late.Stop()
	for {
		select {
		case <-done:
			a.log.Info("stopped")
			return nil
		case <-late.C:
			return fmt.Errorf("%w (%v)", ErrStopTimeout, a.shutdownTimeout())
		case s := <-signals:
			if s != syscall.SIGHUP && time.Since(begun) >= sameRequest {
				return ErrCutShort
			}
		}
	}
}

// warn tells what the configuration says in vain.
func (a *Agent) warn(warnings []string) {
	for _, w := range warnings {
		a.log.Warn("configuration", "warning", w)
	}
}

func (a *Agent) config() *config.Config { return a.settings.Load().Config }

func (a *Agent) shutdownTimeout() time.Duration { return a.config().ShutdownTimeout }

// announce says who this node is and where it listens.
func (a *Agent) announce() {
	a.warn(a.opts.Loaded.Warnings)
	self := a.members.Snapshot().Self
	attrs := []any{
		"name", self.Name, "id", self.ID.String(), "epoch", self.Value.Epoch,
		"cluster", a.config().Cluster.Name, "advertise", self.Addr.String(), "version", a.opts.Version,
	}
	for _, l := range a.listeners {
		attrs = append(attrs, l.Name, l.Address)
	}
	a.log.Info("ready", attrs...)
}
