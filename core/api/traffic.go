package api

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

// ErrTooMany: as many callers as there may be do the same already.
var ErrTooMany = errors.New("too many")

// Traffic tells what data planes do with connections.
type Traffic interface {
	// Observe yields flows from now on, until ctx ends or the data planes stop.
	// It may wrap ErrNotFound, if there is no such service, or ErrTooMany.
	Observe(ctx context.Context, filter FlowFilter) iter.Seq2[Observed, error]
	// Counters returns the counters of a service, or all with the zero key. It
	// may wrap ErrNotFound.
	Counters(ctx context.Context, service model.ServiceKey) (Counters, error)
}

// FlowFilter says which flows to yield.
type FlowFilter struct {
	Service model.ServiceKey // zero: all
	Verdict string           // empty: any
	OneIn   int              // sample; 0 and 1: each
	Rate    int              // at most so many in a second; 0: the default
}

// Observed is one item of a stream of flows: one field is set.
type Observed struct {
	Began *[]string // first: the providers that are asked
	Flow  *Flow
	Lost  *LostFlows
}

// Flow is one decision of a data plane. What is not known is zero.
type Flow struct {
	At          time.Time
	Provider    string
	Service     model.ServiceKey
	EndpointID  uint64
	Instance    string
	Node        string
	Protocol    string
	Source      netip.AddrPort
	Frontend    netip.AddrPort
	Destination netip.AddrPort
	Verdict     string
	Reason      string
	PID         uint32
	Process     string
	Cgroup      string
	CgroupID    uint64
}

// LostFlows counts what an observer was not given.
type LostFlows struct {
	Slow, OverRate, Provider uint64
}

// Counters is what data planes counted.
type Counters struct {
	Counters []Counter
	Problems []CounterProblem
}

// Counter is one number of a data plane.
type Counter struct {
	Provider   string
	Service    model.ServiceKey // zero: of the data plane
	EndpointID uint64           // 0: of the service
	Instance   string
	Node       string
	Name       string
	Value      uint64
}

// CounterProblem is a data plane whose counters are not all there.
type CounterProblem struct {
	Provider, Error string
}

// Observe implements fairleadv1.AgentServer.
func (s *service) Observe(req *fairleadv1.ObserveRequest, stream fairleadv1.Agent_ObserveServer) error {
	filter := FlowFilter{Verdict: req.GetVerdict(), OneIn: int(req.GetSampleOneIn()), Rate: int(req.GetMaxPerSecond())}
	var err error
	if filter.Service, err = someService(req.GetService()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	for item, err := range s.backend.Traffic.Observe(ctx, filter) {
		switch {
		case errors.Is(err, ErrTooMany):
			return status.Error(codes.ResourceExhausted, err.Error())
		case errors.Is(err, ErrNotFound):
			return refusal(err)
		case err != nil:
			return s.streamError(ctx, err)
		}
		if err := stream.Send(observedToProto(item)); err != nil {
			return err
		}
	}
	return errStopping // it ends by itself only with the data planes
}

// Stats implements fairleadv1.AgentServer.
func (s *service) Stats(ctx context.Context, req *fairleadv1.StatsRequest) (*fairleadv1.StatsResponse, error) {
	key, err := someService(req.GetService())
	if err != nil {
		return nil, err
	}
	list, err := s.backend.Traffic.Counters(ctx, key)
	if err != nil {
		return nil, refusal(err)
	}
	resp := &fairleadv1.StatsResponse{}
	for _, c := range list.Counters {
		resp.Counters = append(resp.Counters, &fairleadv1.Counter{
			Provider: c.Provider, Service: keyText(c.Service), EndpointId: c.EndpointID, Instance: c.Instance, Node: c.Node, Name: c.Name, Value: c.Value,
		})
	}
	for _, p := range list.Problems {
		resp.Problems = append(resp.Problems, &fairleadv1.StatsProblem{Provider: p.Provider, Error: p.Error})
	}
	return resp, nil
}

// someService is zero for an empty name.
func someService(name string) (model.ServiceKey, error) {
	if name == "" {
		return model.ServiceKey{}, nil
	}
	return serviceKey(name)
}

// keyText is empty for no service.
func keyText(k model.ServiceKey) string {
	if k == (model.ServiceKey{}) {
		return ""
	}
	return k.String()
}

func observedToProto(o Observed) *fairleadv1.ObserveResponse {
	switch {
	case o.Began != nil:
		return &fairleadv1.ObserveResponse{Item: &fairleadv1.ObserveResponse_Began{Began: &fairleadv1.ObserveBegan{Providers: *o.Began}}}
	case o.Lost != nil:
		return &fairleadv1.ObserveResponse{Item: &fairleadv1.ObserveResponse_Lost{
			Lost: &fairleadv1.LostFlows{Slow: o.Lost.Slow, OverRate: o.Lost.OverRate, Provider: o.Lost.Provider},
		}}
	}
	f := o.Flow
	return &fairleadv1.ObserveResponse{Item: &fairleadv1.ObserveResponse_Flow{Flow: &fairleadv1.Flow{
		At: timestamppb.New(f.At), Provider: f.Provider, Service: keyText(f.Service), EndpointId: f.EndpointID, Instance: f.Instance, Node: f.Node,
		Protocol: f.Protocol, Source: addrText(f.Source), Frontend: addrText(f.Frontend), Destination: addrText(f.Destination),
		Verdict: f.Verdict, Reason: f.Reason, Pid: f.PID, Process: f.Process, Cgroup: f.Cgroup, CgroupId: f.CgroupID,
	}}}
}
