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
