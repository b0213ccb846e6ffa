package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/observe"
	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/viewer"
	"github.com/fairlead/fairlead/dataplane"
)

// planes joins providers to the view: one loop for each provider by name,
// which lives over all of the provider's processes.
type planes struct {
	agent   *Agent
	views   *viewer.Viewer
	metrics *reconcile.Metrics
	flows   *observe.Hub
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards the following, and that nothing begins to run after stop
	session dataplane.Session
	renewed context.CancelFunc // ends the session's calls
	inForce context.Context
	loops   map[string]*reconcile.Loop
	source  *reconcile.Source
	serving map[string]*sync.WaitGroup // calls to a provider, by its name
}

// startView follows membership with a view, and offers it to providers that
// pull.
func (a *Agent) startView(c *cleanups) error {
	vc := viewer.Config{Members: a.members, Log: a.log.With("part", "view"), Metrics: a.opts.Metrics}
	if dir := a.dataDir(); dir != "" {
		vc.Epochs = viewer.EpochFile(filepath.Join(dir, "epoch"))
	}
	views, err := viewer.Start(vc)
	if err != nil {
		return err
	}
	c.add(func(context.Context) { views.Close() })

	metrics := reconcile.NewMetrics()
	if err := metrics.Register(a.opts.Metrics); err != nil {
		return err
	}
	c.add(func(context.Context) { metrics.Unregister(a.opts.Metrics) })

	seen := observe.NewMetrics()
	if err := seen.Register(a.opts.Metrics); err != nil {
		return err
	}
	c.add(func(context.Context) { seen.Unregister(a.opts.Metrics) })

	ctx, cancel := context.WithCancel(context.Background())
	p := &planes{agent: a, views: views, metrics: metrics, ctx: ctx, cancel: cancel, serving: make(map[string]*sync.WaitGroup)}
	p.flows = observe.New(observe.Config{Log: a.log.With("part", "observe"), Metrics: seen, Now: a.opts.Now})
	from := a.members.Snapshot().Seq // an epoch taken after this shows as an event
	p.renew()
	p.running.Go(func() { p.followEpoch(from) })
	a.planes = p
	c.add(func(context.Context) { p.stop() })
	return nil
}

// startPlugins chooses the providers and runs them. A choice that nobody wrote
// down is no reason to stay down: then the node has no data plane, and says so.
// Nor is anything that stands in the way of providers where none is to run.
func (a *Agent) startPlugins(ctx context.Context, c *cleanups) error {
	defer a.chosen.Store(true)
	loaded := a.settings.Load()
	wish := pluginhost.WishOf(loaded.Config, loaded.Origins)
	host, err := pluginhost.New(a.hostConfig(loaded, wish))
	if err != nil {
		err = fmt.Errorf("%w (it stands beside api.socket, or below node.data_dir if that is off: set api.socket to move it, dataplane to off to do without)", err)
		switch {
		case len(wish.Names) == 0:
			a.log.Info("this node can have no data plane until it is restarted", "reason", err)
		case !wish.Written:
			a.log.Warn("this node has no data plane", "error", err)
		default:
			return err
		}
		return nil
	}
	c.add(func(context.Context) {
		a.planes.stop() // before providers refuse what they are told
		host.Stop()     // keeps to its own bound, whatever the plugins do
	})
	_, err = host.Start(ctx)
	a.host.Store(host)
	return err
}

// reconfigurePlugins gives the plugins these settings, after a reload. Also when
// nothing changed: what kept one from running may be corrected.
func (a *Agent) reconfigurePlugins(cfg *config.Config, origins config.Origins) {
	host := a.host.Load()
	if host == nil {
		return
	}
	host.LogAt(levelOf(cfg))
	if err := host.Reconfigure(pluginhost.SettingsOf(cfg, origins)); err != nil {
		a.log.Error("the plugins keep their settings", "error", err)
	}
}

// switchPlugins chooses the providers by another wish. What is not chosen any more
// stays until all that takes its place is at work.
func (a *Agent) switchPlugins(ctx context.Context, next Loaded) error {
	host := a.host.Load()
	if host == nil {
		return errors.New("agent: this agent could host no data plane when it started: see its log, and restart it")
	}
	_, err := host.Rewish(ctx, pluginhost.WishOf(next.Config, next.Origins))
	return err
}

func (a *Agent) hostConfig(loaded *Loaded, wish pluginhost.Wish) pluginhost.Config {
	binary, err := os.Executable()
	if err != nil {
		a.log.Warn("plugins beside the agent are not found", "error", err)
	}
	return pluginhost.Config{
		Wish:       wish,
		Search:     pluginhost.SearchOf(os.Environ(), binary),
		RunDir:     PluginRunDir(loaded.Config),
		StateDir:   PluginStateDir(loaded.Config),
		InstanceID: a.members.Snapshot().Self.ID.String(),
		Node:       loaded.Config.Node.Name,
		Settings:   pluginhost.SettingsOf(loaded.Config, loaded.Origins),
		Environ:    os.Environ(),
		OnReady:    a.planes.ready,
		OnLeave:    a.planes.leave,
		Settled:    a.planes.lacks,
		DrainTime:  a.planes.drainTime,
		LogLevel:   levelOf(loaded.Config),
		Log:        a.log.With("part", "pluginhost"),
		Metrics:    a.opts.Metrics,
		Now:        a.opts.Now,
	}
}

// PluginRunDir is where an agent with this configuration keeps sockets of its data
// planes: beside its own socket, and like it this agent's alone.
func PluginRunDir(cfg *config.Config) string {
	if socket := cfg.API.SocketPath(); socket != "" {
		return strings.TrimSuffix(socket, ".sock") + ".plugins"
	}
	return filepath.Join(cfg.Node.DataDir, "run")
}

// PluginStateDir is where an agent with this configuration keeps what outlives
// a reboot: its choice of providers, and their state. A node that keeps nothing
// has it beside its sockets.
func PluginStateDir(cfg *config.Config) string {
	if cfg.Node.InMemory || cfg.Node.DataDir == "" {
		return filepath.Join(PluginRunDir(cfg), "state")
	}
	return filepath.Join(cfg.Node.DataDir, "plugins")
}

// dataDir is where state is kept, empty for a node that keeps none.
func (a *Agent) dataDir() string {
	if cfg := a.config(); !cfg.Node.InMemory {
		return cfg.Node.DataDir
	}
	return ""
}

// stop ends all calls to providers. A second stop does nothing.
func (p *planes) stop() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	p.flows.Close()
	p.running.Wait()
}

// ready takes a new life of a provider, unless all calls have ended.
func (p *planes) ready(provider pluginhost.Provider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.flows.Add(provider.Name, provider.Client, provider.Lost)
		calls := p.serving[provider.Name]
		if calls == nil {
			calls = &sync.WaitGroup{}
			p.serving[provider.Name] = calls
		}
		calls.Add(1)
		p.running.Go(func() {
			defer calls.Done()
			p.serve(provider)
		})
	}
}

// leave returns once nothing more is told to a provider whose last life is lost. Its
// next life, if it is chosen again, begins with nothing.
func (p *planes) leave(name string) {
	p.mu.Lock()
	calls := p.serving[name]
	p.mu.Unlock()
	if calls != nil {
		calls.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loops, name)
}

// lacks says what a provider has not been told yet, empty if nothing: it may take the
// place of another one.
func (p *planes) lacks(name string) string {
	p.mu.Lock()
	loop := p.loops[name]
	p.mu.Unlock()
	if loop == nil {
		return "was told nothing yet"
	}
	switch s := loop.Status(); {
	case s.Error != nil:
		return "was not reconciled: " + s.Error.Error()
	case !s.Connected || s.Generation == 0:
		return "was told nothing yet"
	case !s.Complete:
		return "does not know all services yet"
	}
	return ""
}

// unlimitedDrain is how long connections through a provider that goes may go on
// where a service sets no limit: the provider is to be gone some time.
const unlimitedDrain = 5 * time.Minute

// drainTime is the longest of all services.
func (p *planes) drainTime() time.Duration {
	longest := time.Duration(0)
	for s := range p.views.Latest().Services() {
		limit := s.Definition.DrainTime
		if limit == 0 {
			limit = unlimitedDrain
		}
		longest = max(longest, limit)
	}
	return longest
}

func (p *planes) config(provider string) reconcile.Config {
	return reconcile.Config{Provider: provider, Session: p.session, Views: p.views, Log: p.agent.log.With("part", "reconcile"), Metrics: p.metrics}
}

// renew begins a session under the node's present epoch, if it is another.
func (p *planes) renew() {
	self := p.agent.members.Snapshot().Self
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.renewed != nil {
		if p.session.BootEpoch == self.Value.Epoch {
			return
		}
		p.renewed()
	}
	p.session = dataplane.Session{AgentID: self.ID.String(), BootEpoch: self.Value.Epoch}
	p.inForce, p.renewed = context.WithCancel(p.ctx)
	p.loops = make(map[string]*reconcile.Loop)
	p.source = reconcile.NewSource(p.config(""))
}

// loop returns the loop of a provider in the present session, and how long
// that lasts.
func (p *planes) loop(name string) (*reconcile.Loop, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loops[name]
	if l == nil {
		l = reconcile.New(p.config(name))
		p.loops[name] = l
	}
	return l, p.inForce
}

// serve keeps one life of a provider at the view.
func (p *planes) serve(provider pluginhost.Provider) {
	for p.ctx.Err() == nil {
		loop, session := p.loop(provider.Name)
		if err := loop.Serve(session, provider.Client, provider.Lost); err != nil {
			provider.Restart(err.Error())
			return
		}
		if session.Err() == nil {
			return // it is lost; its next life comes with a call of its own
		}
	}
}

// followEpoch renews the session when the node had to take a new epoch, as its
// data directory was an old copy: providers have obeyed a later one already. It
// begins after event from.
func (p *planes) followEpoch(from uint64) {
	for u, err := range p.agent.members.Events(p.ctx, from, true) {
		if err != nil {
			if !errors.Is(err, membership.ErrClosed) && p.ctx.Err() == nil {
				p.agent.log.Error("the epoch is not followed any more", "error", err)
			}
			return
		}
		if u.Reset != nil || u.Event.Kind == swim.EventEpochJumped {
			p.renew()
		}
	}
}
