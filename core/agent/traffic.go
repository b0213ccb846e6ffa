package agent

import (
	"context"
	"errors"
	"iter"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/observe"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
)

var _ api.Traffic = traffic{}

// traffic tells what data planes do, in the words of the view.
type traffic struct{ planes *planes }

// Observe implements api.Traffic.
func (t traffic) Observe(ctx context.Context, filter api.FlowFilter) iter.Seq2[api.Observed, error] {
	return func(yield func(api.Observed, error) bool) {
		if err := t.exists(filter.Service); err != nil {
			yield(api.Observed{}, err)
			return
		}
		options := observe.Options{Service: dataplane.Key(filter.Service), Verdict: filter.Verdict, OneIn: filter.OneIn, Rate: filter.Rate}
		for item, err := range t.planes.flows.Observe(ctx, options) {
			switch {
			case errors.Is(err, observe.ErrClosed):
				return // the agent stops; the API tells
			case errors.Is(err, observe.ErrTooMany):
				err = refuse(api.ErrTooMany, "%w", err)
			}
			if err != nil {
				yield(api.Observed{}, err)
				return
			}
			if !yield(t.observed(item), nil) {
				return
			}
		}
	}
}

// Counters implements api.Traffic.
func (t traffic) Counters(ctx context.Context, service model.ServiceKey) (api.Counters, error) {
	if err := t.exists(service); err != nil {
		return api.Counters{}, err
	}
	var out api.Counters
	v := t.planes.views.Latest()
	for _, s := range t.planes.flows.Stats(ctx, dataplane.Key(service)) {
		for _, c := range s.Counters {
			n := api.Counter{Provider: s.Provider, Service: model.ServiceKey(c.Service), EndpointID: c.Endpoint, Name: c.Name, Value: c.Value}
			n.Instance, n.Node = endpointNames(v, n.Service, c.Endpoint)
			out.Counters = append(out.Counters, n)
		}
		if s.Err != nil {
			out.Problems = append(out.Problems, api.CounterProblem{Provider: s.Provider, Error: s.Err.Error()})
		}
	}
	return out, nil
}

// exists is about a service that was asked for, if any.
func (t traffic) exists(key model.ServiceKey) error {
	if key == (model.ServiceKey{}) {
		return nil
	}
	c := catalogue{agent: t.planes.agent}
	v := c.view()
	if v.Service(key) != nil {
		return nil
	}
	return c.unknown(v, key)
}

func (t traffic) observed(item observe.Item) api.Observed {
	if item.Flow == nil {
		if item.Lost.Any() {
			return api.Observed{Lost: &api.LostFlows{Slow: item.Lost.Slow, OverRate: item.Lost.OverRate, Provider: item.Lost.Provider}}
		}
		return api.Observed{Began: &item.Began}
	}
	f := item.Flow
	out := &api.Flow{
		At: f.At, Provider: f.Provider, Service: model.ServiceKey(f.Service), EndpointID: f.Endpoint, Protocol: f.Frontend.Protocol.String(),
		Source: f.Source.Addr, Frontend: f.Frontend.Addr, Destination: f.Destination.Addr, Verdict: f.Verdict, Reason: f.Reason,
		PID: f.Process.PID, Process: f.Process.Name, Cgroup: f.Process.Cgroup, CgroupID: f.Process.CgroupID,
	}
	out.Instance, out.Node = endpointNames(t.planes.views.Latest(), out.Service, f.Endpoint)
	return api.Observed{Flow: out}
}

// endpointNames are empty for an endpoint that the view does not have, or 0.
func endpointNames(v *view.View, key model.ServiceKey, id uint64) (instance, node string) {
	if s := v.Service(key); s != nil && id != 0 {
		if e, found := s.Endpoint(id); found {
			return e.Instance, nodeName(v, e.Node)
		}
	}
	return "", ""
}
