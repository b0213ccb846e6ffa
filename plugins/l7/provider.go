package l7

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/admin"
	"github.com/fairlead/fairlead/plugins/l7/internal/front"
	"github.com/fairlead/fairlead/plugins/l7/internal/proxy"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Provider is the data plane. Its methods may be called from any goroutine.
type Provider struct {
	version string
	log     *slog.Logger // written before the first call only
	ending  atomic.Bool  // no new requests: of Drain until Configure, and for ever of Shutdown
	over    atomic.Bool  // Shutdown was called
	flows   proxy.Flows

	mu         sync.Mutex   // guards what follows; held by calls that change something
	proxy      *proxy.Proxy // this and what it needs is nil until Configure
	front      *front.Front
	admin      *admin.Server
	reloads    *prometheus.CounterVec
	configured bool
	instance   string
	settings   settings.Settings
	table      *route.Table[*proxy.Target]
	zone       string                               // of table
	services   map[dataplane.Key]*dataplane.Service // that the table leads to
	refused    map[dataplane.Key]dataplane.ServiceStatus
	partial    map[dataplane.Key]dataplane.ServiceStatus
	known      bool // services is what the last snapshot said: a delta will do
	fed        bool // something was said at all
}

var (
	_ dataplane.Provider = (*Provider)(nil)
	_ dataplane.Watcher  = (*Provider)(nil)
	_ dataplane.Counting = (*Provider)(nil)
	_ dataplane.Drainer  = (*Provider)(nil)
)

// New returns a provider that listens nowhere yet. version is what Info says.
func New(version string) *Provider {
	p := &Provider{
		version: version, log: slog.New(slog.DiscardHandler), settings: settings.Default(),
		services: map[dataplane.Key]*dataplane.Service{},
		refused:  map[dataplane.Key]dataplane.ServiceStatus{}, partial: map[dataplane.Key]dataplane.ServiceStatus{},
	}
	p.zone = p.settings.Zone
	p.table = route.New[*proxy.Target](p.zone)
	return p
}

// UseLogger takes the logger of the process; it implements sdk.Logging.
func (p *Provider) UseLogger(log *slog.Logger) { p.log = log }

// build makes the parts that serve. The caller holds mu.
func (p *Provider) build(s settings.Settings) error {
	if p.proxy != nil {
		return nil
	}
	registry := prometheus.NewRegistry()
	reloads, err := newMetrics(registry, p.version)
	if err != nil {
		return fmt.Errorf("%w: l7: %w", dataplane.ErrFailed, err)
	}
	made, err := proxy.New(s, registry, p.log)
	if err != nil {
		return fmt.Errorf("%w: l7: %w", dataplane.ErrFailed, err)
	}
	made.TellFlows(&p.flows)
	made.SetPartial(true)
	fore, err := front.New(made, made.Refused, made.Relieve, strings.ToLower(rand.Text())+".fairlead.invalid", registry, p.log)
	if err != nil {
		return fmt.Errorf("%w: l7: %w", dataplane.ErrFailed, err)
	}
	p.reloads, p.proxy, p.front = reloads, made, fore
	p.admin = admin.New(registry, p.ready, p.log)
	return nil
}

// Info says what the provider is.
func (p *Provider) Info() dataplane.Info {
	return dataplane.Info{
		Name: "l7", Version: p.version, Vendor: "Fairlead",
		Layers: []dataplane.Layer{dataplane.L7}, Scopes: []dataplane.Scope{dataplane.ScopeLocal}, ConfigSchema: settings.Schema(),
	}
}

// Probe finds whether this process may listen. Before Configure no address is
// known, so that a port is taken shows in Configure.
func (p *Provider) Probe(ctx context.Context) (dataplane.Report, error) {
	c := dataplane.Check{ID: "listen", Required: true, Result: dataplane.Supported, Reason: "a TCP listener can be opened"}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		c.Result, c.Reason, c.Remedy = dataplane.Unsupported, err.Error(), "let the process open TCP sockets and descriptors"
	} else if err := l.Close(); err != nil {
		return dataplane.Report{}, fmt.Errorf("l7: probe: %w", err)
	}
	return dataplane.Report{Verdict: c.Result, Checks: []dataplane.Check{c}}, nil
}

// Configure takes the settings of plugins.l7. If they are wrong, or an address
// cannot be listened at, those of before stay in force.
func (p *Provider) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	s, err := settings.Parse(c.JSON)
	if err != nil {
		return nil, fmt.Errorf("%w: l7: %w", dataplane.ErrInvalid, err)
	}
	return nil, p.configure(s, c.InstanceID)
}

// configure puts settings into force, all or none.
func (p *Provider) configure(s settings.Settings, instance string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.Load() {
		return fmt.Errorf("%w: l7: Configure: the proxy ends", dataplane.ErrBusy)
	}
	if err := p.build(s); err != nil {
		return err
	}
	before, was := p.settings, p.configured
	if err := p.admin.Configure(s.Admin); err != nil {
		return fmt.Errorf("%w: l7: %w", dataplane.ErrFailed, err)
	}
	if err := p.front.Configure(s); err != nil {
		back := error(nil)
		if was {
			back = p.admin.Configure(before.Admin)
		} else {
			p.admin.Close()
		}
		return errors.Join(fmt.Errorf("%w: l7: %w", dataplane.ErrFailed, err), back)
	}
	p.proxy.Configure(s)
	p.ending.Store(false)
	if instance != p.instance {
		p.known = false // the next snapshot is compared with what is there
	}
	p.configured, p.instance, p.settings = true, instance, s
	if s.Zone != p.zone {
		p.rename()
	}
	return nil
}

// Health asks each listener, as a client would.
func (p *Provider) Health(ctx context.Context) dataplane.Health {
	p.mu.Lock()
	configured, listeners, f := p.configured, len(p.settings.Listen), p.front
	p.mu.Unlock()
	switch {
	case !configured:
		return dataplane.Health{State: dataplane.HealthStarting, Reasons: []string{"not configured"}}
	case p.ending.Load():
		return dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{"it was told to drain: it takes no new requests"}}
	}
	wrong, down := f.Check(ctx)
	switch {
	case len(wrong) == 0:
		return dataplane.Health{State: dataplane.HealthReady}
	case down < listeners:
		return dataplane.Health{State: dataplane.HealthDegraded, Reasons: wrong}
	}
	return dataplane.Health{State: dataplane.HealthFailed, Reasons: wrong}
}

// ready says why /readyz has to say no, "" if it need not.
func (p *Provider) ready() string {
	if p.ending.Load() {
		return "the proxy ends"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.configured:
		return "no listener is open"
	case !p.fed:
		return "no snapshot came yet"
	}
	return ""
}

// Stats yields the counters of the proxy, and what is in force there.
func (p *Provider) Stats(_ context.Context, yield func(dataplane.Counter) bool) error {
	p.mu.Lock()
	made := p.proxy
	p.mu.Unlock()
	if made == nil {
		return nil
	}
	more := true
	ask := func(c dataplane.Counter) bool {
		more = yield(c)
		return more
	}
	if made.InForce(ask); more {
		made.Stats(ask)
	}
	return nil
}
