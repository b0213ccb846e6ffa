package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Version is what Info says.
const Version = "1.0.0"

// Provider is the data plane. Its methods may be called from any goroutine.
type Provider struct {
	kernel *kernel

	mu         sync.Mutex
	configured bool
	config     dataplane.Config
	options    options
	state      dataplane.State
	counters   map[dataplane.Key]uint64
	open       int // connections, for Drain
	closed     chan struct{}
	watchers   map[*watcher]bool
}

var (
	_ dataplane.Provider = (*Provider)(nil)
	_ dataplane.Stateful = (*Provider)(nil)
	_ dataplane.Watcher  = (*Provider)(nil)
	_ dataplane.Counting = (*Provider)(nil)
	_ dataplane.Drainer  = (*Provider)(nil)
	_ fmt.Stringer       = (*Provider)(nil)
)

// options is the provider's own configuration, the JSON of Configure.
type options struct {
	Refuse  []string `json:"refuse"`  // services to refuse
	Delay   string   `json:"delay"`   // that Reconcile takes
	Traffic string   `json:"traffic"` // how often Watch plays a connection to each service; empty: never
	delay   time.Duration
	traffic time.Duration
}

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "refuse": {"type": "array", "items": {"type": "string"}, "description": "services, NAMESPACE/NAME, to answer as unsupported"},
    "delay": {"type": "string", "description": "how long Reconcile takes, such as 200ms"},
    "traffic": {"type": "string", "description": "how often a connection to each service is played for those who watch flows, such as 10ms"}
  }
}`

// New returns a provider whose work is gone with it.
func New() *Provider { return NewIn("") }

// NewIn returns a provider that programs a directory, which has to exist.
func NewIn(dir string) *Provider {
	return &Provider{
		kernel:   newKernel(dir),
		counters: make(map[dataplane.Key]uint64), closed: make(chan struct{}, 1), watchers: make(map[*watcher]bool),
	}
}

// Info says what the provider is.
func (p *Provider) Info() dataplane.Info {
	return dataplane.Info{
		Name: "fake", Version: Version, Vendor: "Fairlead",
		Layers: []dataplane.Layer{dataplane.L4}, Scopes: []dataplane.Scope{dataplane.ScopeLocal}, ConfigSchema: []byte(schema),
	}
}

// Probe finds that memory is there, and the directory too if there is one.
func (p *Provider) Probe(context.Context) (dataplane.Report, error) {
	if err := p.kernel.check(); err != nil {
		return dataplane.Report{Verdict: dataplane.Unsupported, Checks: []dataplane.Check{{
			ID: "directory", Required: true, Result: dataplane.Unsupported, Reason: err.Error(), Remedy: "make the directory and let this user write there",
		}}}, nil
	}
	return dataplane.Report{Verdict: dataplane.Supported, Checks: []dataplane.Check{{
		ID: "memory", Required: true, Result: dataplane.Supported, Reason: "there is some",
	}}}, nil
}

// Configure takes {"refuse": ["default/x"], "delay": "200ms", "traffic": "10ms"}.
func (p *Provider) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	o, err := parseOptions(c.JSON)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.configured || p.config.InstanceID != c.InstanceID {
		p.state = p.kernel.open(c.InstanceID)
	}
	if !slices.Equal(p.options.Refuse, o.Refuse) {
		p.kernel.known = false // what was refused may be allowed: look at all
	}
	p.configured, p.config, p.options = true, c, o
	return o.remarks(), nil
}

func parseOptions(b []byte) (options, error) {
	var o options
	if len(b) > 0 {
		if err := json.Unmarshal(b, &o); err != nil {
			return o, fmt.Errorf("%w: fake: configuration: %w", dataplane.ErrInvalid, err)
		}
	}
	if o.Delay != "" {
		d, err := time.ParseDuration(o.Delay)
		if err != nil || d < 0 {
			return o, fmt.Errorf("%w: fake: delay %q: want a duration such as 200ms", dataplane.ErrInvalid, o.Delay)
		}
		o.delay = d
	}
	if o.Traffic != "" {
		d, err := time.ParseDuration(o.Traffic)
		if err != nil || d <= 0 {
			return o, fmt.Errorf("%w: fake: traffic %q: want a duration above 0 such as 10ms", dataplane.ErrInvalid, o.Traffic)
		}
		o.traffic = d
	}
	return o, nil
}

func (o options) remarks() []dataplane.Diagnostic {
	var out []dataplane.Diagnostic
	for i, name := range o.Refuse {
		if slices.Contains(o.Refuse[:i], name) {
			out = append(out, dataplane.Diagnostic{Path: fmt.Sprintf("refuse[%d]", i), Message: name + " is listed twice"})
		}
	}
	return out
}

// State says what is programmed, be it by a process before.
func (p *Provider) State(context.Context) (dataplane.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, nil
}

// Health is READY as soon as the provider is configured.
func (p *Provider) Health(context.Context) dataplane.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.configured {
		return dataplane.Health{State: dataplane.HealthStarting, Reasons: []string{"not configured"}}
	}
	return dataplane.Health{State: dataplane.HealthReady}
}

// Cleanup removes what is programmed, in memory or in the directory.
func (p *Provider) Cleanup(_ context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	items := p.kernel.cleanup(what)
	if !what.DryRun && (what.AllKnown || what.InstanceID == p.config.InstanceID) {
		p.state = dataplane.State{}
	}
	return items, nil
}

// Shutdown keeps or removes what is programmed.
func (p *Provider) Shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	if policy != dataplane.ShutdownRemove {
		return nil
	}
	p.mu.Lock()
	instance := p.config.InstanceID
	p.mu.Unlock()
	_, err := p.Cleanup(ctx, dataplane.CleanupOptions{InstanceID: instance})
	return err
}

// String prints what is programmed: the generation, then each service with its
// frontends and endpoints, in the order of their keys.
func (p *Provider) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return describe(p.state) + p.kernel.String()
}

func describe(s dataplane.State) string {
	if s.Generation == 0 {
		return "nothing applied\n"
	}
	grade := "complete"
	if !s.Complete {
		grade = "incomplete"
	}
	return fmt.Sprintf("generation %d of %s/%d, %s\n", s.Generation, s.Session.AgentID, s.Session.BootEpoch, grade)
}
