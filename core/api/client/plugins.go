package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// Plugins is what an agent says of data planes.
type Plugins struct {
	Plugins  []Plugin
	Problems []string // of the directories that it searches
	Warnings []string // of its choice
}

// Plugin is one data plane.
type Plugin struct {
	Name         string
	State        string // see fairleadv1.Plugin
	How          string // child, kept, alone, follows; empty: the agent does not host it
	Version      string
	Layers       []string
	Path         string
	Socket       string
	PID          int // 0: none, or not the agent's
	Manifest     bool
	Capabilities []string
	Since        time.Time // of the state, on the agent's clock; zero: not known
	Until        time.Time // of the next try; zero: not a matter of time
	Starts       uint64
	Losses       uint64
	Reason       string
	Remedy       string
	LastWords    []string
	Chosen       bool
	ByAuto       bool
	Verdict      string
	Health       string
	HealthWhy    []string
	Told         *Reconciliation // nil: nothing yet
}

// Reconciliation is what a data plane was told and made of it.
type Reconciliation struct {
	AgentID    string
	BootEpoch  uint64
	Generation uint64 // that it has applied
	ViewEpoch  uint64
	Complete   bool
	At         time.Time // of its last answer
	Services   uint64
	Endpoints  uint64
	Error      string
	Troubles   []ServiceTrouble
}

// ServiceTrouble is a service that a data plane has not simply programmed.
type ServiceTrouble struct {
	Service, Status, Reason, Message string
}

// Plugins returns the data planes that the agent hosts, could host, and those
// that follow it.
func (c *Client) Plugins(ctx context.Context) (Plugins, error) {
	r, err := fairleadv1.NewPluginsClient(c.conn).ListPlugins(ctx, &fairleadv1.ListPluginsRequest{})
	if err != nil {
		return Plugins{}, c.callError("plugins", err)
	}
	out := Plugins{Problems: r.GetProblems(), Warnings: r.GetWarnings()}
	for _, p := range r.GetPlugins() {
		out.Plugins = append(out.Plugins, plugin(p))
	}
	return out, nil
}

// RestartPlugin restarts a data plane and returns what became of it: ready, or
// why not.
func (c *Client) RestartPlugin(ctx context.Context, name string) (Plugin, error) {
	r, err := fairleadv1.NewPluginsClient(c.conn).RestartPlugin(ctx, &fairleadv1.RestartPluginRequest{Name: name})
	if err != nil {
		return Plugin{}, c.callError("plugin restart", err)
	}
	return plugin(r.GetPlugin()), nil
}

// Explanation says why an agent runs the data planes that it runs.
type Explanation struct {
	Wish       []string  // names, and auto
	Written    bool      // somebody wrote it; else it is the default
	Decided    time.Time // zero: nothing was to be decided
	Chosen     []ChosenPlugin
	Rejected   []RejectedPlugin
	Considered []ConsideredPlugin // by name
	Warnings   []string
	Leaving    []LeavingPlugin
}

// ChosenPlugin is a data plane that runs, or is to.
type ChosenPlugin struct {
	Name    string
	ByAuto  bool
	Verdict string // of its probe; empty: it could not be asked
	Version string
	Fault   string // why not
}

// RejectedPlugin is one that does not, and why.
type RejectedPlugin struct {
	Name, Reason, Remedy string
}

// ConsideredPlugin is what was found of a data plane that came into question.
type ConsideredPlugin struct {
	Name    string
	Verdict string // of its probe; empty: it could not be asked
	Version string
	Scopes  []string // whose traffic it captures with its settings
	Fault   string   // why it could not be asked
	Checks  []FailedCheck
}

// FailedCheck is a check of a probe that did not pass.
type FailedCheck struct {
	ID       string
	Required bool
	Result   string
	Reason   string
	Remedy   string
}

// LeavingPlugin is a data plane that is not chosen any more, and what it waits for.
type LeavingPlugin struct {
	Name, InstanceID, Reason string
}

// ExplainPlugins asks the agent why it runs the data planes that it runs.
func (c *Client) ExplainPlugins(ctx context.Context) (Explanation, error) {
	r, err := fairleadv1.NewPluginsClient(c.conn).ExplainPlugins(ctx, &fairleadv1.ExplainPluginsRequest{})
	if err != nil {
		return Explanation{}, c.callError("plugin explain", err)
	}
	out := Explanation{Wish: r.GetWish(), Written: r.GetWritten(), Decided: moment(r.GetDecided()), Warnings: r.GetWarnings()}
	for _, p := range r.GetChosen() {
		out.Chosen = append(out.Chosen, ChosenPlugin{p.GetName(), p.GetByAuto(), p.GetVerdict(), p.GetVersion(), p.GetFault()})
	}
	for _, p := range r.GetRejected() {
		out.Rejected = append(out.Rejected, RejectedPlugin{p.GetName(), p.GetReason(), p.GetRemedy()})
	}
	for _, p := range r.GetConsidered() {
		considered := ConsideredPlugin{Name: p.GetName(), Verdict: p.GetVerdict(), Version: p.GetVersion(), Scopes: p.GetScopes(), Fault: p.GetFault()}
		for _, f := range p.GetChecks() {
			considered.Checks = append(considered.Checks, FailedCheck{f.GetId(), f.GetRequired(), f.GetResult(), f.GetReason(), f.GetRemedy()})
		}
		out.Considered = append(out.Considered, considered)
	}
	for _, p := range r.GetLeaving() {
		out.Leaving = append(out.Leaving, LeavingPlugin{p.GetName(), p.GetInstanceId(), p.GetReason()})
	}
	return out, nil
}

func plugin(p *fairleadv1.Plugin) Plugin {
	out := Plugin{
		Name: p.GetName(), State: p.GetState(), How: p.GetHow(), Version: p.GetVersion(), Layers: p.GetLayers(),
		Path: p.GetPath(), Socket: p.GetSocket(), PID: int(p.GetPid()), Manifest: p.GetManifest(), Capabilities: p.GetCapabilities(),
		Since: moment(p.GetSince()), Until: moment(p.GetUntil()), Starts: p.GetStarts(), Losses: p.GetLosses(),
		Reason: p.GetReason(), Remedy: p.GetRemedy(), LastWords: p.GetLastWords(),
		Chosen: p.GetChosen(), ByAuto: p.GetByAuto(), Verdict: p.GetVerdict(), Health: p.GetHealth(), HealthWhy: p.GetHealthReasons(),
	}
	if t := p.GetReconciliation(); t != nil {
		out.Told = &Reconciliation{
			AgentID: t.GetAgentId(), BootEpoch: t.GetBootEpoch(), Generation: t.GetGeneration(), ViewEpoch: t.GetViewEpoch(),
			Complete: t.GetComplete(), At: moment(t.GetAt()), Services: t.GetServices(), Endpoints: t.GetEndpoints(), Error: t.GetError(),
		}
		for _, s := range t.GetTroubles() {
			out.Told.Troubles = append(out.Told.Troubles, ServiceTrouble{s.GetService(), s.GetStatus(), s.GetReason(), s.GetMessage()})
		}
	}
	return out
}

// moment is zero for what was not said.
func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
