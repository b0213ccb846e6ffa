package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/dataplane"
)

// plugins answers about data planes.
type plugins struct {
	fairleadv1.UnimplementedPluginsServer
	agent *Agent
}

var _ fairleadv1.PluginsServer = plugins{}

// ListPlugins implements fairleadv1.PluginsServer.
func (p plugins) ListPlugins(context.Context, *fairleadv1.ListPluginsRequest) (*fairleadv1.ListPluginsResponse, error) {
	out := &fairleadv1.ListPluginsResponse{}
	host, without := p.host()
	if host == nil {
		out.Problems = []string{without}
	} else {
		decision, discovery := host.Decision(), host.Discovery()
		for _, s := range host.Status() {
			out.Plugins = append(out.Plugins, p.hosted(s, decision, discovery))
		}
		out.Plugins = append(out.Plugins, unhosted(decision, discovery)...)
		out.Problems, out.Warnings = discovery.Problems, decision.Warnings
	}
	out.Plugins = append(out.Plugins, p.agent.planes.followers()...)
	return out, nil
}

// RestartPlugin implements fairleadv1.PluginsServer.
func (p plugins) RestartPlugin(ctx context.Context, r *fairleadv1.RestartPluginRequest) (*fairleadv1.RestartPluginResponse, error) {
	host, without := p.host()
	if host == nil {
		return nil, status.Error(codes.FailedPrecondition, without)
	}
	s, err := host.Renew(ctx, r.GetName(), "asked for over the API")
	switch {
	case errors.Is(err, pluginhost.ErrUnknown):
		return nil, status.Errorf(codes.NotFound, "this agent hosts no data plane %q: see fairlead plugin list, and the key dataplane", r.GetName())
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &fairleadv1.RestartPluginResponse{Plugin: p.hosted(s, host.Decision(), host.Discovery())}, nil
}

// ExplainPlugins implements fairleadv1.PluginsServer.
func (p plugins) ExplainPlugins(context.Context, *fairleadv1.ExplainPluginsRequest) (*fairleadv1.ExplainPluginsResponse, error) {
	host, without := p.host()
	if host == nil {
		return nil, status.Error(codes.FailedPrecondition, without)
	}
	kept, leaves := host.Explain()
	out := &fairleadv1.ExplainPluginsResponse{
		Wish: kept.Wish.Names, Written: kept.Wish.Written, Decided: timestampOf(kept.At), Warnings: kept.Decision.Warnings,
	}
	for _, c := range kept.Decision.Chosen {
		out.Chosen = append(out.Chosen, &fairleadv1.ChosenPlugin{Name: c.Name, ByAuto: c.Auto, Verdict: c.Verdict, Version: c.Version, Fault: c.Fault})
	}
	for _, r := range kept.Decision.Rejected {
		out.Rejected = append(out.Rejected, &fairleadv1.RejectedPlugin{Name: r.Name, Reason: r.Reason, Remedy: r.Remedy})
	}
	for _, c := range kept.Decision.Considered {
		considered := &fairleadv1.ConsideredPlugin{Name: c.Name, Verdict: c.Verdict, Version: c.Version, Scopes: c.Scopes, Fault: c.Fault}
		for _, f := range c.Checks {
			considered.Checks = append(considered.Checks, &fairleadv1.FailedCheck{Id: f.ID, Required: f.Required, Result: f.Result, Reason: f.Reason, Remedy: f.Remedy})
		}
		out.Considered = append(out.Considered, considered)
	}
	for _, l := range leaves {
		out.Leaving = append(out.Leaving, &fairleadv1.LeavingPlugin{Name: l.Name, InstanceId: l.Instance, Reason: l.Reason})
	}
	return out, nil
}

// host returns what hosts the data planes, or why nothing does.
func (p plugins) host() (host *pluginhost.Host, without string) {
	chosen := p.agent.chosen.Load() // before the host, which may come meanwhile
	host = p.agent.host.Load()
	switch {
	case host != nil:
		return host, ""
	case !chosen:
		return nil, "this agent starts, and still chooses its data planes: ask again in a moment"
	}
	return nil, "this agent hosts no data plane: see its log, and the key dataplane"
}

// hosted describes a data plane that the agent keeps running.
func (p plugins) hosted(s pluginhost.Status, decision pluginhost.Decision, discovery pluginhost.Discovery) *fairleadv1.Plugin {
	out := &fairleadv1.Plugin{
		Name: s.Name, State: string(s.State), How: string(s.Kind), Version: s.Info.Version, Layers: layers(s.Info),
		Path: s.Path, Socket: s.Socket, Pid: int64(s.PID), Since: timestampOf(s.Since), Until: timestampOf(s.Until),
		Starts: uint64(s.Starts), Losses: uint64(s.Losses), Reason: s.Reason, LastWords: s.Words, Chosen: true,
	}
	if c, ok := discovery.Find(s.Name); ok && s.Kind != pluginhost.KindAlone {
		describe(out, c)
	}
	for _, c := range decision.Chosen {
		if c.Name == s.Name {
			out.ByAuto, out.Verdict = c.Auto, c.Verdict
		}
	}
	if s.Health.State != 0 {
		out.Health, out.HealthReasons = s.Health.State.String(), s.Health.Reasons
	}
	out.Reconciliation = p.agent.planes.told(s.Name)
	return out
}

// describe adds what its file says.
func describe(p *fairleadv1.Plugin, c pluginhost.Candidate) {
	p.Path = c.Path
	if c.Manifest != nil {
		p.Manifest, p.Capabilities = true, c.Manifest.Capabilities
	}
}

// unhosted lists what is installed or was considered, and is not hosted.
func unhosted(decision pluginhost.Decision, discovery pluginhost.Discovery) []*fairleadv1.Plugin {
	var out []*fairleadv1.Plugin
	known := map[string]bool{}
	for _, c := range decision.Chosen {
		known[c.Name] = true
	}
	for _, c := range discovery.Candidates {
		p := &fairleadv1.Plugin{Name: c.Name, State: "available"}
		describe(p, c)
		switch {
		case c.ShadowedBy != "":
			p.State, p.Reason = "shadowed", c.ShadowedBy+" comes first"
		case known[c.Name]:
			continue
		case c.Refused != nil:
			p.State, p.Reason, p.Remedy = "refused", c.Refused.Reason, c.Refused.Remedy
		default:
			reject(p, decision)
		}
		out = append(out, p)
	}
	for _, p := range out {
		known[p.Name] = true
	}
	for _, r := range decision.Rejected {
		if !known[r.Name] {
			out = append(out, &fairleadv1.Plugin{Name: r.Name, State: "missing", Reason: r.Reason, Remedy: r.Remedy})
		}
	}
	slices.SortStableFunc(out, func(a, b *fairleadv1.Plugin) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// reject says why a data plane that could run was not chosen.
func reject(p *fairleadv1.Plugin, decision pluginhost.Decision) {
	for _, r := range decision.Rejected {
		if r.Name == p.Name {
			p.Reason, p.Remedy = r.Reason, r.Remedy
		}
	}
}

// told is what a hosted data plane was told in the present session, nil if
// nothing.
func (p *planes) told(name string) *fairleadv1.Reconciliation {
	p.mu.Lock()
	loop, session := p.loops[name], p.session
	p.mu.Unlock()
	if loop == nil {
		return nil
	}
	return reconciliation(loop.Status(), session)
}

// followers are the data planes that run by themselves and pull.
func (p *planes) followers() []*fairleadv1.Plugin {
	p.mu.Lock()
	source, session := p.source, p.session
	p.mu.Unlock()
	var out []*fairleadv1.Plugin
	for _, s := range source.Followers() {
		f := &fairleadv1.Plugin{Name: s.Provider, State: "following", How: "follows", Reconciliation: reconciliation(s, session)}
		if s.Health.State != 0 {
			f.Health, f.HealthReasons = s.Health.State.String(), s.Health.Reasons
		}
		out = append(out, f)
	}
	return out
}

func reconciliation(s reconcile.Status, session dataplane.Session) *fairleadv1.Reconciliation {
	out := &fairleadv1.Reconciliation{
		AgentId: session.AgentID, BootEpoch: session.BootEpoch, Generation: s.Generation, ViewEpoch: s.Epoch, Complete: s.Complete,
		At: timestampOf(s.At), Services: uint64(s.Services), Endpoints: uint64(s.Endpoints),
	}
	if s.Error != nil {
		out.Error = s.Error.Error()
	}
	for _, t := range s.Statuses {
		out.Troubles = append(out.Troubles, &fairleadv1.ServiceTrouble{
			Service: t.Service.String(), Status: t.Status.String(), Reason: t.Reason, Message: t.Message,
		})
	}
	return out
}

func layers(info dataplane.Info) []string {
	var out []string
	for _, l := range info.Layers {
		out = append(out, l.String())
	}
	return out
}

// timestampOf is nil for the zero time.
func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
