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

	mu          sync.Mutex
	settings    map[string]Settings // cfg's, or those that came after
	discovery   Discovery
	decision    Decision
	supervisors []*supervisor
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
	decision, faults, err := h.choose(ctx)
	if err != nil {
		return decision, err
	}
	ended = append(ended, sweep(h.run, func(r record) bool {
		return decision.runs(r.Name) && h.hosting(r.Name).outlives
	}, h.cfg.Timing.Terminate)...)
	if len(ended) > 0 {
		h.log.Warn("ended plugins that an agent before this one left", "plugins", ended)
	}
	for _, c := range decision.Chosen {
		if err := h.stateDir(c.Name); err != nil {
			return decision, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decision = decision
	for _, c := range decision.Chosen {
		h.supervise(c, faults[c.Name])
	}
	return decision, nil
}

func (h *Host) supervise(c Choice, fault error) {
	h.metrics.prepare(c.Name)
	s := newSupervisor(h, c.Name)
	s.unproved = c.Fault != ""
	h.supervisors = append(h.supervisors, s)
	h.wg.Go(func() { s.run(h.ctx, fault) })
}

// Stop ends all children and lets go of all others; those that are to outlive
// the agent go on. It takes no longer than DefaultTiming says, whatever they do.
func (h *Host) Stop() {
	h.stop.Do(func() {
		h.cancel()
		h.wg.Wait()
		h.metrics.unregister()
		h.run.close()
	})
}

// Status returns the state of each provider that was chosen, by name.
func (h *Host) Status() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Status, 0, len(h.supervisors))
	for _, s := range h.supervisors {
		out = append(out, s.snapshot())
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Decision returns what was chosen, and what was not and why.
func (h *Host) Decision() Decision {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decision
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
