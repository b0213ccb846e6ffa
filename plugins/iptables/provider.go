package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/selftest"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/journal"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// Provider is the data plane. Its methods may be called from any goroutine.
type Provider struct {
	version string
	log     *slog.Logger
	find    func(context.Context) (map[host.Variant]host.Tools, error) // what is installed
	dear    time.Duration                                              // dearRead

	// turn holds one token: who has it may alter the system, and what is below.
	turn     chan struct{}
	config   dataplane.Config
	settings settings
	opts     rules.Options
	all      map[host.Variant]host.Tools // what is installed
	tools    host.Tools                  // what is used; zero: not configured
	journal  *journal.Journal
	keeper   *keeper          // nil: nothing is in the kernel
	own      *selftest.Target // nil: no listener
	tables   tables
	routes   routes
	alone    bool                // the other variant's tables hold nothing of this instance
	portion  int                 // how many services one restore changes at most; 0: any number
	base     *dataplane.Snapshot // of a process before, while the host is incomplete
	leaving  *leaving            // nil: no Cleanup with Linger since something was programmed

	shown shown
}

var (
	_ dataplane.Provider = (*Provider)(nil)
	_ dataplane.Stateful = (*Provider)(nil)
	_ dataplane.Watcher  = (*Provider)(nil)
	_ dataplane.Counting = (*Provider)(nil)
)

// shown is what the calls tell that do not wait for the turn.
type shown struct {
	mu       sync.Mutex
	state    dataplane.State
	last     *dataplane.Snapshot // that was applied; nil: nothing
	statuses map[dataplane.Key]dataplane.ServiceStatus
	plans    map[rules.Family]*rules.Plan // what stands in the tables
	tools    host.Tools
	health   condition
	watchers map[*watcher]bool
	tally    tally
}

// New returns a provider that has not touched anything yet.
func New(version string) *Provider {
	p := &Provider{
		version: version, log: slog.New(slog.DiscardHandler), find: host.FindTools, dear: dearRead, turn: make(chan struct{}, 1), journal: &journal.Journal{},
		shown: shown{watchers: make(map[*watcher]bool)},
	}
	p.forget()
	p.turn <- struct{}{}
	return p
}

// UseLogger implements sdk.Logging.
func (p *Provider) UseLogger(log *slog.Logger) { p.log = log }

// Info says what the provider is.
func (p *Provider) Info() dataplane.Info {
	return dataplane.Info{
		Name: "iptables", Version: p.version, Vendor: "Fairlead",
		Layers: []dataplane.Layer{dataplane.L4}, Scopes: []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded},
		ScopeRules:   []dataplane.ScopeRule{{Setting: "mode", Value: "forwarded", Scopes: []dataplane.Scope{dataplane.ScopeForwarded}}},
		ConfigSchema: []byte(schema),
	}
}

// take waits for the turn, at most until ctx ends.
func (p *Provider) take(ctx context.Context, what string) (release func(), err error) {
	select {
	case <-p.turn:
		return func() { p.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("iptables: %s: the tables are being altered by another call: %w", what, ctx.Err())
	}
}

// Configure takes how to work, and goes on with what is there of the instance.
func (p *Provider) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	s, err := parseSettings(c.JSON)
	if err != nil {
		return nil, err
	}
	release, err := p.take(ctx, "Configure")
	if err != nil {
		return nil, err
	}
	defer release()
	all, tools, remark, err := p.chooseTools(ctx, s, c.InstanceID)
	if err != nil {
		return nil, err
	}
	opts := options(ctx, s, tools, c.InstanceID)
	same := p.config.InstanceID == c.InstanceID && p.tools.Variant == tools.Variant && p.config.StateDir == c.StateDir
	if !same {
		p.leave()
		p.config, p.settings, p.all, p.tools, p.opts = c, s, all, tools, opts
		if p.routes, err = newRoutes(c.InstanceID); err != nil {
			p.log.Warn("routes that a process before made are not known", "error", err)
		}
		p.adopt(ctx)
	}
	p.config, p.settings, p.all, p.tools, p.opts = c, s, all, tools, opts
	p.show(func(sh *shown) {
		sh.tools = tools
		sh.health.set(troubleVariant, remark)
		sh.health.mode = opts.Mode
	})
	if p.keeper != nil {
		p.startKeeper()
	}
	return diagnostics(s, remark), nil
}

func diagnostics(s settings, remark string) []dataplane.Diagnostic {
	var out []dataplane.Diagnostic
	if remark != "" {
		out = append(out, dataplane.Diagnostic{Path: "variant", Message: remark})
	}
	if s.mode() == rules.Forwarded && !host.Forwards(host.V4) && !host.Forwards(host.V6) {
		out = append(out, dataplane.Diagnostic{Path: "mode", Message: forwardsNothing})
	}
	return out
}

// options are what the rules depend on beside the services.
func options(ctx context.Context, s settings, t host.Tools, instance string) rules.Options {
	o := rules.Options{Mode: s.mode(), Instance: instance, Pools: s.pools, RouteLocalnet: host.RouteLocalnet()}
	o.NoIPv6 = !hasIPv6(ctx, t)
	o.Features.RandomFully = t.Version[0] > 1 || t.Version[1] > 6 || t.Version[1] == 6 && t.Version[2] >= 2
	if o.Mode == rules.All {
		o.Own = ownAddresses(instance)
	}
	return o
}

// hasIPv6 reports whether ip6tables can work: there are the protocol, the binary and
// the table.
func hasIPv6(ctx context.Context, t host.Tools) bool {
	if !host.HasIPv6() || !t.HasV6() {
		return false
	}
	_, err := t.Save(ctx, host.V6, "nat")
	return err == nil || errors.Is(err, host.ErrLocked)
}

// forget drops what is known of the tables.
func (p *Provider) forget() {
	p.tables = tables{
		plans: make(map[rules.Family]*rules.Plan), prints: make(map[rules.Family]host.Fingerprint), readings: make(map[rules.Family]*reading),
		took: make(map[rules.Family]time.Duration),
	}
	p.portion, p.alone = 0, false
	p.base = nil
	p.show(func(sh *shown) {
		sh.state, sh.last, sh.plans = dataplane.State{}, nil, nil
		sh.statuses = make(map[dataplane.Key]dataplane.ServiceStatus)
		sh.tally = tally{}
		sh.health = condition{mode: sh.health.mode}
	})
}

// leave gives up what this process holds and knows. What is in the kernel stays.
func (p *Provider) leave() {
	p.stopKeeper()
	if p.own != nil {
		p.own.Close()
		p.own = nil
	}
	p.journal.Close()
	p.forget()
}

// show alters what the calls tell that do not wait for the turn.
func (p *Provider) show(f func(*shown)) {
	p.shown.mu.Lock()
	defer p.shown.mu.Unlock()
	f(&p.shown)
}

// State says what is in the tables, be it by a process before.
func (p *Provider) State(context.Context) (dataplane.State, error) {
	p.shown.mu.Lock()
	defer p.shown.mu.Unlock()
	return p.shown.state, nil
}

// shutdownTime bounds Shutdown(remove) where its caller does not.
const shutdownTime = 30 * time.Second

// Shutdown keeps or removes what is programmed.
func (p *Provider) Shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	release, err := p.take(ctx, "Shutdown")
	if err != nil {
		return err
	}
	instance := p.config.InstanceID
	if policy != dataplane.ShutdownRemove || instance == "" {
		p.leave()
		release()
		return nil
	}
	release()
	items, err := p.Cleanup(ctx, dataplane.CleanupOptions{InstanceID: instance})
	for _, i := range items {
		if i.Result == dataplane.Failed {
			err = errors.Join(err, fmt.Errorf("%w: iptables: %s: %s", dataplane.ErrFailed, i.Object, i.Message))
		}
	}
	return err
}
