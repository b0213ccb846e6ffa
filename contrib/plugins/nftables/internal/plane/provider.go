package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/host"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// Version is what Info says.
const Version = "0.1.0"

// Provider is the data plane. Its methods may be called from any goroutine.
type Provider struct {
	log   *slog.Logger
	vital atomic.Pointer[vital] // nil: nothing is there

	mu       sync.Mutex
	config   dataplane.Config
	settings settings
	env      plan.Host
	tables   *table.Tables // nil: not configured
	routes   *host.Routes
	own      *ownService // nil likewise, and in mode forwarded
	keeper   *keeper

	// What is in the kernel, as far as this process knows.
	entries map[plan.Place]*plan.Entry
	counts  map[dataplane.Key]int // endpoints of each service
	mark    table.Mark

	known bool // entries are what the last snapshot said, and nothing else
	// kept is where services stand that are no more as the last snapshot has them,
	// as that could not be done.
	kept     map[dataplane.Key][]plan.Place
	statuses map[dataplane.Key]dataplane.ServiceStatus
	tally    tally
	trouble  string // what does not work beside the data path; "": nothing
	broken   string // what is wrong with the tables and could not be put right
	// routesFailed has them set again by the next generation.
	routesFailed bool
	watchers     map[*watcher]bool
	leaving      leaving
	// rules is the kernel's generation after our last look or change; 0: not known.
	rules uint32
}

var (
	_ dataplane.Provider = (*Provider)(nil)
	_ dataplane.Stateful = (*Provider)(nil)
	_ dataplane.Watcher  = (*Provider)(nil)
	_ dataplane.Counting = (*Provider)(nil)
)

// New returns a provider that has not touched anything yet.
func New() *Provider {
	p := &Provider{log: slog.New(slog.DiscardHandler), watchers: make(map[*watcher]bool), leaving: make(leaving)}
	p.forget()
	return p
}

// UseLogger implements sdk.Logging.
func (p *Provider) UseLogger(log *slog.Logger) { p.log = log }

// Info says what the provider is.
func (p *Provider) Info() dataplane.Info {
	return dataplane.Info{
		Name: "nftables", Version: Version, Vendor: "Fairlead",
		Layers:       []dataplane.Layer{dataplane.L4},
		Scopes:       []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded},
		ScopeRules:   []dataplane.ScopeRule{{Setting: "mode", Value: forwardedMode, Scopes: []dataplane.Scope{dataplane.ScopeForwarded}}},
		ConfigSchema: []byte(schema),
	}
}

// Configure takes the settings, and finds what the instance has in the kernel.
func (p *Provider) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	s, err := parseSettings(c.JSON)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	env := plan.Host{Forwarded: s.Mode == forwardedMode, Loopback: host.RouteLocalnet(), NoIPv6: ipv6().Try() != nil}
	if p.tables != nil && p.config.InstanceID == c.InstanceID && p.env == env {
		p.config, p.settings = c, s
		p.startKeeper()
		return nil, nil
	}
	own, err := newOwnService(c.InstanceID, env)
	if err != nil {
		return nil, fmt.Errorf("%w: nftables: %w", dataplane.ErrFailed, err)
	}
	p.leave()
	p.config, p.settings, p.env, p.own = c, s, env, own
	p.tables = table.New(table.Options{Instance: c.InstanceID, Forwarded: env.Forwarded, NoIPv6: env.NoIPv6})
	p.routes = host.NewRoutes(table.Name(c.InstanceID))
	if err := p.adopt(ctx); err != nil {
		p.leave()
		p.config = dataplane.Config{}
		return nil, fmt.Errorf("%w: nftables: what instance %s left cannot be read: %w", dataplane.ErrFailed, c.InstanceID, err)
	}
	p.startKeeper()
	p.publish()
	return nil, nil
}

// adopt goes on with what a former process left. Its own frontend led to a listener
// that is gone.
func (p *Provider) adopt(ctx context.Context) error {
	content, err := p.tables.Load()
	if err != nil || content == nil {
		return err
	}
	p.entries, p.counts, p.mark = content.Entries, content.Services, content.Mark
	u := table.Update{Was: p.mark, Is: p.mark}
	for at, e := range p.entries {
		if isOwn(e.Service) {
			u.Changes = append(u.Changes, table.Change{At: at, Old: e})
			delete(p.entries, at)
		}
	}
	if at, e := p.own.entry(); e != nil {
		u.Changes = append(u.Changes, table.Change{At: at, New: e})
		p.entries[at] = e
	}
	_, err = p.tables.Apply(ctx, merge(u))
	return err
}

// merge joins the changes at one place.
func merge(u table.Update) table.Update {
	at := make(map[plan.Place]int)
	var all []table.Change
	for _, c := range u.Changes {
		if i, twice := at[c.At]; twice {
			all[i].New = c.New
			continue
		}
		at[c.At] = len(all)
		all = append(all, c)
	}
	u.Changes = all
	return u
}

// leave gives up what this process holds, and what it knows. What is in the kernel
// stays.
func (p *Provider) leave() {
	p.stopKeeper()
	if p.tables != nil {
		p.tables.Close()
	}
	if p.own != nil {
		p.own.Close()
	}
	p.tables, p.own = nil, nil
	p.tally = tally{}
	p.forget()
}

// forget is for when nothing of the instance is in the kernel.
func (p *Provider) forget() {
	p.entries, p.counts, p.mark = make(map[plan.Place]*plan.Entry), make(map[dataplane.Key]int), table.Mark{}
	p.known, p.kept, p.statuses = false, make(map[dataplane.Key][]plan.Place), make(map[dataplane.Key]dataplane.ServiceStatus)
	p.trouble, p.broken = "", ""
	if p.tables != nil {
		p.tables.Forget()
	}
	if p.routes != nil {
		p.routes.Recheck()
	}
	p.publish()
}

// State says what is in the kernel, be it by a process before.
func (p *Provider) State(context.Context) (dataplane.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mark.State
	if s.Generation != 0 {
		s.InstanceID = p.config.InstanceID
	}
	return s, nil
}

// Shutdown keeps or removes what is programmed.
func (p *Provider) Shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	p.mu.Lock()
	instance := p.config.InstanceID
	if policy != dataplane.ShutdownRemove {
		p.leave()
		p.config = dataplane.Config{}
	}
	p.mu.Unlock()
	if policy != dataplane.ShutdownRemove || instance == "" {
		return nil
	}
	items, err := p.Cleanup(ctx, dataplane.CleanupOptions{InstanceID: instance})
	for _, i := range items {
		if i.Result == dataplane.Failed {
			err = errors.Join(err, fmt.Errorf("%w: nftables: %s: %s", dataplane.ErrFailed, i.Object, i.Message))
		}
	}
	return err
}
