package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
)

var _ api.Services = catalogue{}

// ownRecordWait bounds how long an answer waits for this node's own record to
// show in the view: what was registered a moment ago is to be in it.
const ownRecordWait = time.Second

// catalogue gives the view in the API's words.
type catalogue struct{ agent *Agent }

// Services implements api.Services.
func (c catalogue) Services() api.ServiceList {
	v := c.view()
	list := api.ServiceList{Epoch: v.Epoch, Completeness: v.Completeness.String()}
	held := c.claims(v)
	for s := range v.Services() {
		list.Services = append(list.Services, c.service(v, s, held))
	}
	return list
}

// Endpoints implements api.Services.
func (c catalogue) Endpoints(key model.ServiceKey) (api.ServiceDetail, error) {
	v := c.view()
	s := v.Service(key)
	if s == nil {
		return api.ServiceDetail{}, c.unknown(v, key)
	}
	d := api.ServiceDetail{Epoch: v.Epoch, Completeness: v.Completeness.String(), Service: c.service(v, s, c.claims(v))}
	for _, said := range v.Definitions(key) {
		d.Definitions = append(d.Definitions, api.Definition{
			Node: nodeName(v, said.Node), NodeID: said.Node, Counts: said.Counts, Up: said.Up,
			Registered: time.UnixMilli(said.Definition.Registered), Says: says(&said.Definition), Differs: differs(&said.Definition, &s.Definition),
		})
	}
	for _, p := range v.Explain(key) {
		d.Endpoints = append(d.Endpoints, c.endpoint(v, key, p))
	}
	return d, nil
}

// unknown says that the view has no such service, and which one may be meant.
func (catalogue) unknown(v *view.View, key model.ServiceKey) error {
	var names []string
	for s := range v.Services() {
		names = append(names, s.Key.String())
	}
	return refuse(api.ErrNotFound, "no node has a service %s%s", key, near(key.String(), names))
}

// view is the newest one, which shows what this node last said of itself
// unless that takes too long.
func (c catalogue) view() *view.View {
	a := c.agent
	deadline := time.NewTimer(ownRecordWait)
	defer deadline.Stop()
	for {
		next := a.planes.views.Changed()
		v := a.planes.views.Latest()
		if a.services.shownBy(v) {
			return v
		}
		select {
		case <-next:
		case <-deadline.C:
			return v
		}
	}
}

func (c catalogue) service(v *view.View, s *view.Service, held claims) api.Service {
	out := api.Service{Key: s.Key, DefinedByID: s.DefinedBy, Source: c.agent.services.own(s.Key), Conflicts: held.conflicts(v, s)}
	if s.Definition.VIP.IsValid() {
		out.VIP = s.Definition.VIP.String()
	}
	for _, p := range s.Definition.Ports {
		out.Ports = append(out.Ports, portText(p))
	}
	for _, e := range s.Endpoints {
		if e.State != view.Draining {
			out.Ready++
		}
	}
	for _, id := range s.Nodes {
		out.Total += v.Node(id).Instances(s.Key)
	}
	if s.DefinedBy != 0 {
		out.DefinedBy = nodeName(v, s.DefinedBy)
	}
	for _, id := range s.Disagreeing {
		out.Disagreeing = append(out.Disagreeing, nodeName(v, id))
	}
	return out
}

func (c catalogue) endpoint(v *view.View, key model.ServiceKey, p view.Placement) api.Endpoint {
	out := api.Endpoint{
		Node: nodeName(v, p.Node), NodeID: p.Node, Instance: p.Instance, In: p.Endpoint != nil,
		Reason: string(p.Reason), Detail: p.Detail, State: p.State.String(), Since: p.Since, Own: p.Node == v.Self, Weight: p.Weight,
	}
	if p.Endpoint != nil {
		out.Addr, out.AddrForeign = p.Endpoint.Addr.String(), p.Endpoint.AddrForeign.String()
	}
	if !out.Own {
		return out
	}
	status, known := c.agent.services.health.State(health.InstanceKey{Service: key, ID: p.Instance})
	if !known {
		return out
	}
	for _, check := range status.Checks {
		out.Checks = append(out.Checks, api.CheckResult{
			Kind: check.Check.Kind.String(), Target: targetText(check.Check, p.Addr), Passing: check.Passing,
			Output: check.Output, At: check.At, Successes: check.Successes, Failures: check.Failures,
		})
	}
	if p.Reason == view.ReasonFailing {
		out.Detail = failing(out.Checks)
	}
	return out
}

// failing says which check keeps an instance out.
func failing(checks []api.CheckResult) string {
	for _, c := range checks {
		switch {
		case c.Passing:
		case c.At.IsZero():
			return fmt.Sprintf("%s %s: not checked yet", c.Kind, c.Target)
		case c.Failures == 0:
			return fmt.Sprintf("%s %s: succeeds, but not often enough in a row yet: %s", c.Kind, c.Target, c.Output)
		default:
			return fmt.Sprintf("%s %s: %s", c.Kind, c.Target, c.Output)
		}
	}
	return ""
}

// targetText is what a check of an instance at addr asks.
func targetText(c health.Check, addr netip.AddrPort) string {
	to := c.Target(addr)
	switch {
	case c.Kind == health.HTTP:
		return "http://" + to.String() + c.Path
	case c.Kind == health.GRPC && c.Service != "":
		return to.String() + " " + c.Service
	}
	return to.String()
}

func nodeName(v *view.View, id model.NodeID) string {
	if n := v.Node(id); n != nil {
		return n.Name
	}
	return id.String()
}

func portText(p model.ServicePort) string { return fmt.Sprintf("%d/%s", p.Port, p.Protocol) }

// parts is what nodes should agree on, by name, as far as it is not the default.
func parts(d *model.Service) map[string]string {
	m := make(map[string]string)
	var ports, routes []string
	for _, p := range d.Ports {
		ports = append(ports, portText(p))
	}
	for _, r := range d.Routes {
		var words []string
		for _, w := range []string{r.Host, r.PathPrefix, strings.Join(r.Methods, "|")} {
			if w != "" {
				words = append(words, w)
			}
		}
		for _, h := range slices.Sorted(maps.Keys(r.Headers)) {
			words = append(words, h+"="+r.Headers[h])
		}
		routes = append(routes, strings.Join(words, " "))
	}
	add := func(name, value string) {
		if value != "" {
			m[name] = value
		}
	}
	add("port", strings.Join(ports, " "))
	if d.VIP.IsValid() {
		add("vip", d.VIP.String())
	}
	if d.Balance != model.BalanceDefault {
		add("balance", d.Balance.String())
	}
	if d.Affinity != 0 {
		add("affinity", d.Affinity.String())
	}
	add("hosts", strings.Join(d.Hosts, " "))
	add("routes", strings.Join(routes, "; "))
	if d.DrainTime != 0 {
		add("drain", d.DrainTime.String())
	}
	return m
}

// partNames are the names of parts in the order in which they are told.
func partNames() []string {
	return []string{"port", "vip", "balance", "affinity", "hosts", "routes", "drain"}
}

// says puts a definition in words.
func says(d *model.Service) string {
	all := parts(d)
	var words []string
	for _, name := range partNames() {
		if all[name] != "" {
			words = append(words, name+" "+all[name])
		}
	}
	return strings.Join(words, ", ")
}

// differs names the parts in which two definitions are not the same.
func differs(a, b *model.Service) []string {
	x, y := parts(a), parts(b)
	var names []string
	for _, name := range partNames() {
		if x[name] != y[name] {
			names = append(names, name)
		}
	}
	return names
}
