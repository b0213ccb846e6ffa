package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Config is what a Host is made of. Fields without "optional" are required.
type Config struct {
	Wish   Wish
	Search Search

	// RunDir takes sockets and what has to be found again while the host is
	// up, such as /run/fairlead/plugins. It is made with mode 0700, may be 68
	// bytes long, and belongs to one agent at a time.
	RunDir string
	// StateDir is kept over reboots: the decision, and a directory for each
	// plugin.
	StateDir string
	// InstanceID tags kernel objects: another one for each agent of this
	// kernel, and the same one over restarts.
	InstanceID string
	// Node is the node's name, for people.
	Node string

	// Settings by plugin; optional.
	Settings map[string]Settings
	// Environ is that of the agent, of which children see little.
	Environ []string

	// OnReady is called for each life of a provider, from its own goroutine,
	// and does not block. Optional.
	OnReady func(Provider)
	// OnLeave is called for a provider that is about to be cleaned, as another one
	// is in its place or nobody wants it. It returns once nobody tells the provider
	// anything any more. Optional.
	OnLeave func(name string)
	// Settled says what a provider that is ready still lacks to do its work, empty
	// if nothing: one that is to go waits for that. Optional: then it lacks nothing.
	Settled func(name string) string
	// DrainTime is how long connections through a provider that goes may go on;
	// optional, and Timing.Drain without it.
	DrainTime func() time.Duration

	// LogLevel is the least severe level of what the plugins that it starts log.
	LogLevel slog.Level
	// Log takes what the Host and its plugins have to say; optional.
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Timing is DefaultTiming if zero.
	Timing Timing
	// Rand is the source of jitter and of names; the Host locks it. Optional.
	Rand *rand.Rand
	// Now is the clock; optional.
	Now func() time.Time
}

// Provider is one life of a provider that is configured and can be given a
// snapshot.
type Provider struct {
	Name   string
	Kind   Kind
	Info   dataplane.Info
	Client pb.DataPlaneProviderClient
	// Lost is closed when this life is over; the next one is another Provider.
	Lost <-chan struct{}
	// Restart asks for a new life, as this one is of no use. It returns at once,
	// and counts as a loss: who needs one again and again gets it ever later. Of
	// a provider that runs by itself it only renews the connection.
	Restart func(reason string)
}

// Host runs the providers of one node.
type Host struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	run      *runDir
	launcher *launcher

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	stop   sync.Once

	claims claims
	level  levels

	switching sync.Mutex         // of Start and Rewish
	breakOff  context.CancelFunc // ends the leaves under way, to be gone on with
	leaving   sync.WaitGroup     // they

	ownedMu sync.Mutex
	owned   []owned

	mu          sync.Mutex
	settings    map[string]Settings // cfg's, or those that came after
	discovery   Discovery
	kept        Kept
	supervisors []*supervisor // of the chosen
	leavers     []*leaver     // of others that have or had something in the system
}

// New finds the plugins, opens the run directory and returns a Host that runs nothing yet.
func New(cfg Config) (*Host, error) {
	if cfg.Metrics == nil {
		return nil, errNoRegistry
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timing == (Timing{}) {
		cfg.Timing = DefaultTiming()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	run, err := openRunDir(cfg.RunDir)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		run.close()
		return nil, err
	}
	h := &Host{cfg: cfg, log: cfg.Log, metrics: m, run: run, settings: cfg.Settings, discovery: Discover(cfg.Search)}
	h.level.set(cfg.LogLevel)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.launcher = &launcher{run: run, environ: cfg.Environ, now: cfg.Now, rng: cfg.Rand}
	return h, nil
}

// Start chooses the providers and runs them. An error means that the wish
// cannot be granted as it was written, and then nothing runs; ctx bounds the
// choice, not the run. The decision is logged here, with its warnings.
func (h *Host) Start(ctx context.Context) (Decision, error) {
	if err := h.stateDir(""); err != nil {
		return Decision{}, err
	}
	if err := CheckSettings(h.cfg.Settings); err != nil {
		return Decision{}, err
	}
	// First of all, as what they hold would spoil the probes.
	ended := sweep(h.run, func(r record) bool { return r.Serve }, h.cfg.Timing.Terminate)
	h.switching.Lock()
	defer h.switching.Unlock()
	kept, faults, err := h.choose(ctx, h.cfg.Wish)
	decision := kept.Decision
	if err != nil {
		if kept.Error != "" {
			h.keepChoice(kept)
		}
		return decision, err
	}
	ended = append(ended, sweep(h.run, func(r record) bool {
		return decision.runs(r.Name) && h.hosting(r.Name).outlives
	}, h.cfg.Timing.Terminate)...)
	if len(ended) > 0 {
		h.log.Warn("ended plugins that an agent before this one left", "plugins", ended)
	}
	if h.owned, err = readOwned(h.cfg.StateDir); err != nil {
		h.log.Warn("data planes that are not chosen any more may have left something", "error", err)
	}
	return decision, h.switchTo(kept, faults)
}

// Rewish chooses anew by another wish, and runs what was chosen. What is not chosen
// any more goes once all that takes its place is at work, and is cleaned then. On an
// error all stays as it is. ctx bounds the choice.
func (h *Host) Rewish(ctx context.Context, wish Wish) (Decision, error) {
	h.switching.Lock()
	defer h.switching.Unlock()
	h.mu.Lock()
	h.discovery = Discover(h.cfg.Search)
	h.mu.Unlock()
	kept, faults, err := h.choose(ctx, wish)
	if err != nil {
		return kept.Decision, err
	}
	return kept.Decision, h.switchTo(kept, faults)
}

// switchTo runs what was chosen, and takes leave of all else. The caller has the
// switching.
func (h *Host) switchTo(kept Kept, faults map[string]error) error {
	decision := kept.Decision
	for _, c := range decision.Chosen {
		if err := h.stateDir(c.Name); err != nil {
			return err
		}
	}
	if h.breakOff != nil {
		h.breakOff()
		h.leaving.Wait()
	}
	before := h.takeBack(decision)
	h.mu.Lock()
	h.kept = kept
	h.metrics.decided(decision)
	var next, removed []*supervisor
	for _, c := range decision.Chosen {
		i := slices.IndexFunc(before, func(s *supervisor) bool { return s.name == c.Name })
		if i >= 0 {
			before[i].retiring.Store(false)
			next = append(next, before[i])
			continue
		}
		h.metrics.prepare(c.Name)
		s := newSupervisor(h, c.Name)
		s.unproved = c.Fault != ""
		next = append(next, s)
		h.wg.Go(func() {
			defer close(s.done)
			s.run(s.ctx, faults[c.Name])
		})
	}
	for _, s := range before {
		if !slices.Contains(next, s) {
			s.retiring.Store(true)
			removed = append(removed, s)
		}
	}
	h.supervisors = next
	h.mu.Unlock()
	h.beginLeaves(removed, decision)
	return nil
}

// takeBack returns all supervisors of now, with those of leaves that were broken off
// before they parted. Of what parted and is chosen again it ends the process: the
// next one finds what is left.
func (h *Host) takeBack(decision Decision) []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.supervisors)
	h.leavers = slices.DeleteFunc(h.leavers, func(l *leaver) bool {
		if s := l.supervisor(); s != nil {
			all = append(all, s)
			return true
		}
		if !decision.runs(l.Name) || l.Instance != h.instanceID(l.Name) {
			return false
		}
		l.end()
		return true
	})
	return all
}

// Stop ends all children and lets go of all others; those that are to outlive
// the agent go on. It takes no longer than DefaultTiming says, whatever they do.
func (h *Host) Stop() {
	h.stop.Do(func() {
		h.cancel()
		h.wg.Wait()
		h.leaving.Wait()
		for _, l := range h.leavers {
			l.end()
		}
		h.metrics.unregister()
		h.run.close()
	})
}

// Status returns the state of each provider that was chosen, and of those of which
// the agent takes leave, by name.
func (h *Host) Status() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Status, 0, len(h.supervisors))
	for _, s := range h.supervisors {
		out = append(out, s.snapshot())
	}
	for _, l := range h.leavers {
		out = append(out, l.status())
	}
	slices.SortStableFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Decision returns what was chosen, and what was not and why.
func (h *Host) Decision() Decision {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept.Decision
}

// Explain returns the decision in force with all that it rests on, and the data
// planes that the agent takes leave of.
func (h *Host) Explain() (Kept, []Leave) {
	h.mu.Lock()
	defer h.mu.Unlock()
	leaves := []Leave{}
	for _, l := range h.leavers {
		leaves = append(leaves, Leave{l.Name, l.Instance, l.waitsFor()})
	}
	return h.kept, leaves
}

// chosen returns the supervisors of what was chosen.
func (h *Host) chosen() []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.supervisors)
}

// Discovery returns the plugins that New found.
func (h *Host) Discovery() Discovery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.discovery
}

// ErrUnknown: no provider of that name runs.
var ErrUnknown = errors.New("pluginhost: no such provider")

// Restart ends a provider in order and starts it again. It returns at once.
func (h *Host) Restart(name, reason string) error {
	s, err := h.supervisor(name)
	if err == nil {
		s.ask(reason)
	}
	return err
}

// Renew is Restart, and waits for what comes of it: the provider is ready once
// more, or it is known why it is not. An error is that of ctx, or ErrUnknown.
func (h *Host) Renew(ctx context.Context, name, reason string) (Status, error) {
	s, err := h.supervisor(name)
	if err != nil {
		return Status{}, err
	}
	return s.renew(ctx, reason)
}

func (h *Host) supervisor(name string) (*supervisor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.supervisors {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
}

// Reconfigure takes new settings. A provider whose own changed is restarted with
// them; so is one that does not run, as what kept it may be corrected. On an
// error, which is about the host's own keys, the old ones stay in force.
func (h *Host) Reconfigure(settings map[string]Settings) error {
	if err := CheckSettings(settings); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.settings
	h.settings = settings
	for _, s := range h.supervisors {
		if !reflect.DeepEqual(was[s.name].Values, settings[s.name].Values) {
			s.ask("its settings changed")
		} else if s.snapshot().State.down() {
			s.ask("the configuration was read again")
		}
	}
	return nil
}

// LogAt has the plugins log at another level, as soon as they take it.
func (h *Host) LogAt(l slog.Level) { h.level.set(l) }

// stateDir makes the state directory of a plugin, or that of all.
func (h *Host) stateDir(name string) error {
	if err := os.MkdirAll(filepath.Join(h.cfg.StateDir, name), 0o700); err != nil {
		return fmt.Errorf("pluginhost: make the state directory: %w; choose another node.data_dir", err)
	}
	return nil
}

// CheckSettings finds wrong values of the host's own keys, of all plugins. What
// is the plugins' own only they can check.
func CheckSettings(all map[string]Settings) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, _, err := all[name].split(name, 0)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// settingsOf returns the settings of a plugin that are in force.
func (h *Host) settingsOf(name string) Settings {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settings[name]
}

// hosting returns how a plugin is to be hosted. Its errors were found by
// checkSettings.
func (h *Host) hosting(name string) hosting {
	how, _, _ := h.settingsOf(name).split(name, h.cfg.Timing.Start)
	return how
}
