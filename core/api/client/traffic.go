package client

import (
	"context"
	"iter"
	"time"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// FlowFilter says which flows Observe yields.
type FlowFilter struct {
	Service string // NAME or NAMESPACE/NAME; empty: all
	Verdict string // forwarded, refused, denied, passed; empty: any
	OneIn   uint32 // sample; 0 and 1: each
	Rate    uint32 // at most so many in a second; 0: 100
}

// Observed is one item of a stream of flows: one field is set.
type Observed struct {
	Began *Began // the first item
	Flow  *Flow
	Lost  *LostFlows
}

// Began names the data planes that are asked for flows.
type Began struct {
	Providers []string
}

// Flow is one decision of a data plane on a connection or datagram. What is not
// known is zero.
type Flow struct {
	At          time.Time
	Provider    string
	Service     string // namespace/name
	EndpointID  uint64 // 0: none was chosen
	Instance    string
	Node        string
	Protocol    string // tcp, udp
	Source      string // host:port
	Frontend    string // what was asked for
	Destination string // where it went
	Verdict     string
	Reason      string // the data plane's own word
	PID         uint32
	Process     string
	Cgroup      string // path below the root of cgroup v2
	CgroupID    uint64
}

// LostFlows counts flows that were not yielded since the last such item.
type LostFlows struct {
	Slow     uint64 // this side did not read them in time
	OverRate uint64 // beyond the rate; there may be more that nobody counted
	Provider uint64 // the agent did not read them in time
}

// Counters is what the data planes of the agent's node counted.
type Counters struct {
	Counters []Counter // by provider
	Problems []CounterProblem
}

// Counter is one number of a data plane. It only rises while that runs, except
// for the gauges programmed_services and programmed_endpoints.
type Counter struct {
	Provider   string
	Service    string // namespace/name; empty: of the data plane
	EndpointID uint64 // 0: of the service
	Instance   string // of the endpoint; empty: it is none any more
	Node       string
	Name       string
	Value      uint64
}

// CounterProblem is a data plane whose counters are not all there.
type CounterProblem struct {
	Provider, Error string
}

// Observe yields what data planes decide on connections from now on, until ctx
// ends, the caller stops, or the agent does. An error ends the sequence.
func (c *Client) Observe(ctx context.Context, filter FlowFilter) iter.Seq2[Observed, error] {
	return func(yield func(Observed, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream when the caller stops early
		stream, err := c.agent.Observe(ctx, &fairleadv1.ObserveRequest{
			Service: filter.Service, Verdict: filter.Verdict, SampleOneIn: filter.OneIn, MaxPerSecond: filter.Rate,
		})
		for err == nil {
			var r *fairleadv1.ObserveResponse
			if r, err = stream.Recv(); err == nil && !yield(observed(r), nil) {
				return
			}
		}
		yield(Observed{}, c.callError("observe", err))
	}
}

// Counters asks for the counters of a service, NAME or NAMESPACE/NAME, or with
// an empty name for all.
func (c *Client) Counters(ctx context.Context, service string) (Counters, error) {
	r, err := c.agent.Stats(ctx, &fairleadv1.StatsRequest{Service: service})
	if err != nil {
		return Counters{}, c.callError("stats", err)
	}
	var out Counters
	for _, n := range r.GetCounters() {
		out.Counters = append(out.Counters, Counter{
			Provider: n.GetProvider(), Service: n.GetService(), EndpointID: n.GetEndpointId(), Instance: n.GetInstance(), Node: n.GetNode(),
			Name: n.GetName(), Value: n.GetValue(),
		})
	}
	for _, p := range r.GetProblems() {
		out.Problems = append(out.Problems, CounterProblem{Provider: p.GetProvider(), Error: p.GetError()})
	}
	return out, nil
}

// observed has no field set for an item of a later version.
func observed(r *fairleadv1.ObserveResponse) Observed {
	switch item := r.GetItem().(type) {
	case *fairleadv1.ObserveResponse_Began:
		return Observed{Began: &Began{Providers: item.Began.GetProviders()}}
	case *fairleadv1.ObserveResponse_Lost:
		return Observed{Lost: &LostFlows{Slow: item.Lost.GetSlow(), OverRate: item.Lost.GetOverRate(), Provider: item.Lost.GetProvider()}}
	case *fairleadv1.ObserveResponse_Flow:
		f := item.Flow
		return Observed{Flow: &Flow{
			At: f.GetAt().AsTime(), Provider: f.GetProvider(), Service: f.GetService(), EndpointID: f.GetEndpointId(), Instance: f.GetInstance(), Node: f.GetNode(),
			Protocol: f.GetProtocol(), Source: f.GetSource(), Frontend: f.GetFrontend(), Destination: f.GetDestination(),
			Verdict: f.GetVerdict(), Reason: f.GetReason(), PID: f.GetPid(), Process: f.GetProcess(), Cgroup: f.GetCgroup(), CgroupID: f.GetCgroupId(),
		}}
	}
	return Observed{}
}
