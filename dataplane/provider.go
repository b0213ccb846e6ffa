package dataplane

import (
	"context"
	"encoding/json"
	"time"
)

// Provider is a data plane. The SDK calls it as the package comment says: from
// one goroutine at a time, except Info, Health and the optional interfaces,
// which may be called beside any other.
//
// Optional interfaces: Stateful, Watcher, Counting, Drainer.
type Provider interface {
	// Info says what this provider is. It is pure and always the same.
	Info() Info

	// Probe tests whether the provider can work here: features, not versions.
	// It leaves nothing behind and alters no traffic. An error means that the
	// probe itself failed, which a host takes as Inconclusive.
	Probe(ctx context.Context) (Report, error)

	// Configure replaces the whole configuration. On an error, which wraps
	// ErrInvalid if the configuration is at fault, the old one stays in force.
	Configure(ctx context.Context, config Config) ([]Diagnostic, error)

	// Reconcile makes the system what next says; see the package comment. It
	// returns before ctx ends, with an error if it could not finish; whatever
	// it had done for a service by then is all or old.
	Reconcile(ctx context.Context, next *Snapshot, delta Delta) (Result, error)

	// Health checks the data path itself, not the last result.
	Health(ctx context.Context) Health

	// Cleanup removes what this provider has left in the system, also by a
	// process that was killed, and nothing else. It goes on after a failure.
	Cleanup(ctx context.Context, what CleanupOptions) ([]CleanupItem, error)

	// Shutdown prepares for the end of the process.
	Shutdown(ctx context.Context, policy ShutdownPolicy) error
}

// Stateful is a provider whose work outlives its process: State says what a
// new process found applied, so that the host need not send a snapshot.
type Stateful interface {
	State(ctx context.Context) (State, error)
}

// Watcher is a provider that notices changes by itself. Watch calls emit until
// ctx ends. emit does not block.
type Watcher interface {
	Watch(ctx context.Context, flows *FlowOptions, emit func(Event)) error
}

// Counting is a provider that counts. Counters only rise.
type Counting interface {
	Stats(ctx context.Context, yield func(Counter) bool) error
}

// Drainer is a provider that holds connections itself. Drain takes no new ones
// and returns when the old ones ended or were ended at the deadline.
type Drainer interface {
	Drain(ctx context.Context, deadline time.Time, progress func(DrainProgress)) error
}

// Info is what a provider is.
type Info struct {
	Name         string // [a-z][a-z0-9-]{0,31}, as in fairlead-dataplane-NAME
	Version      string
	Vendor       string
	Layers       []Layer
	Scopes       []Scope
	ScopeRules   []ScopeRule // where the scopes are a matter of configuration
	ConfigSchema []byte      // JSON Schema; empty: takes no configuration
	Limits       Limits
}

// ScopeRule says which scopes a provider has if a setting has a value. The first
// that holds counts, and Info.Scopes if none does. So a host knows before it starts
// anything which providers would capture the same connections.
type ScopeRule struct {
	Setting string // at the top of Config.JSON, such as "mode"
	Value   string // a string as it is, anything else as JSON
	Scopes  []Scope
}

// ScopesWith returns the scopes of a provider with this configuration, which is JSON
// as in Config. One that cannot be read is none.
func (i Info) ScopesWith(config []byte) []Scope {
	var settings map[string]json.RawMessage
	if len(i.ScopeRules) == 0 || json.Unmarshal(config, &settings) != nil {
		return i.Scopes
	}
	for _, rule := range i.ScopeRules {
		set, ok := settings[rule.Setting]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal(set, &text) != nil {
			text = string(set)
		}
		if text == rule.Value {
			return rule.Scopes
		}
	}
	return i.Scopes
}

// Limits bound what the provider takes; 0 is no limit. The SDK enforces them.
type Limits struct {
	Services, Endpoints, EndpointsPerService int
}

// Layer is where a provider works.
type Layer uint8

// The layers.
const (
	L4       Layer = 1
	L7       Layer = 2
	Floating Layer = 3
)

// Scope is whose traffic a provider sees.
type Scope uint8

// The scopes.
const (
	ScopeLocal     Scope = 1 // sockets of this host
	ScopeForwarded Scope = 2 // packets that this host forwards
)

// Verdict is the result of a probe, or of a part of it.
type Verdict uint8

// The verdicts, best first.
const (
	Supported    Verdict = 1
	Degraded     Verdict = 2 // works, with something missing that a check names
	Unsupported  Verdict = 3 // cannot work here
	Inconclusive Verdict = 4 // could not be tested
)

// Report is the result of a probe.
type Report struct {
	Verdict Verdict
	Checks  []Check
}

// Check is one thing that a probe looked at.
type Check struct {
	ID       string // stable, such as "cgroup2-root"
	Required bool
	Result   Verdict
	Reason   string // what was found
	Remedy   string // what to do about it
}

// Config is what Configure is given.
type Config struct {
	JSON       []byte // checked against Info.ConfigSchema
	RunDir     string // sockets and the like
	StateDir   string // kept over restarts
	InstanceID string // tags every kernel object
	Node       string // for people
}

// Diagnostic is a remark on a configuration.
type Diagnostic struct {
	Path    string // such as "listen"
	Message string
}

// State is what a provider has applied.
type State struct {
	Session    Session
	Generation uint64
	Digest     []byte
	InstanceID string
	Complete   bool
}

// Result is what Reconcile did.
type Result struct {
	Statuses   []ServiceStatus // of services that are not simply programmed
	Operations int             // changes made to the system
}

// ServiceStatus is how one service fared.
type ServiceStatus struct {
	Service Key
	Status  Status
	Reason  string // one of the Reason constants, or the provider's own word
	Message string
}

// Status is how a service fared. The numbers are those of the wire.
type Status uint8

// The statuses.
const (
	StatusProgrammed  Status = 1
	StatusPartial     Status = 2 // works, less than was asked for
	StatusRejected    Status = 3 // wrong; what was there before stays
	StatusUnsupported Status = 4 // this provider cannot do it
)

// Health is the state of the data path.
type Health struct {
	State   HealthState
	Reasons []string
}

// HealthState is the state of a data path.
type HealthState uint8

// The states.
const (
	HealthStarting HealthState = 1
	HealthReady    HealthState = 2
	HealthDegraded HealthState = 3
	HealthFailed   HealthState = 4
)

// FlowOptions ask for flow events.
type FlowOptions struct {
	SampleOneIn  int // 0 and 1: each
	MaxPerSecond int // 0: 100
}

// Event is something that a provider noticed; exactly one field is set.
type Event struct {
	Health       *Health
	Status       *ServiceStatus
	Drift        *Drift
	ResyncWanted string // why
	Flow         *Flow
}

// Drift is a difference between the system and what the provider left there.
type Drift struct {
	What     string
	Repaired bool
}

// Flow is one connection or datagram that a data plane decided on.
type Flow struct {
	At          time.Time
	Service     Key
	Endpoint    uint64
	Source      Binding
	Frontend    Binding
	Destination Binding
	Verdict     string // forwarded, refused, denied, passed (left as it was)
	Reason      string // why, a word of the provider's own; empty: nothing to add
	Process     Process
}

// Process is who asked for a flow, as far as the provider knows: a zero field is
// not known.
type Process struct {
	PID      uint32 // in the first PID namespace
	Name     string // the kernel's short one
	Cgroup   string // path below the root of cgroup v2, with a slash in front
	CgroupID uint64 // inode number of that directory
}

// Counter is one number that only rises.
type Counter struct {
	Service  Key
	Endpoint uint64 // 0: of the service
	Name     string
	Value    uint64
}

// DrainProgress is how far a drain is.
type DrainProgress struct {
	Active, Closed, Forced int
}

// CleanupOptions say what to remove.
type CleanupOptions struct {
	AllKnown   bool   // of any instance of this provider
	InstanceID string // of this one otherwise
	DryRun     bool
	// Linger lets stay what connections under way still need, as Pending. The host
	// calls again until nothing is, and at last without it.
	Linger bool
}

// CleanupItem is one object that Cleanup found.
type CleanupItem struct {
	Object     string
	Result     CleanupResult
	Message    string
	InstanceID string // whose object it is; empty: not known
}

// CleanupResult is what became of an object.
type CleanupResult uint8

// The results.
const (
	Removed     CleanupResult = 1
	WouldRemove CleanupResult = 2 // dry run
	Kept        CleanupResult = 3 // another instance's
	Failed      CleanupResult = 4
	Pending     CleanupResult = 5 // connections under way need it; goes with a later call
)

// ShutdownPolicy is what becomes of what is programmed.
type ShutdownPolicy uint8

// The policies.
const (
	ShutdownKeep   ShutdownPolicy = 1
	ShutdownRemove ShutdownPolicy = 2
)

// String prints l4, l7 or floating.
func (l Layer) String() string { return name(l, "", "l4", "l7", "floating") }

// String prints local or forwarded.
func (s Scope) String() string { return name(s, "", "local", "forwarded") }

// String prints the verdict in capitals, as users see it.
func (v Verdict) String() string {
	return name(v, "", "SUPPORTED", "DEGRADED", "UNSUPPORTED", "INCONCLUSIVE")
}

// String prints the status in capitals, as users see it.
func (s Status) String() string {
	return name(s, "", "PROGRAMMED", "PARTIAL", "REJECTED", "UNSUPPORTED")
}

// String prints the state in capitals, as users see it.
func (h HealthState) String() string {
	return name(h, "", "STARTING", "READY", "DEGRADED", "FAILED")
}

// String prints the result.
func (r CleanupResult) String() string {
	return name(r, "", "removed", "would-remove", "kept", "failed", "pending")
}
