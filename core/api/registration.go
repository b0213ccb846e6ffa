package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

// Services implements fairleadv1.AgentServer.
func (s *service) Services(context.Context, *fairleadv1.ServicesRequest) (*fairleadv1.ServicesResponse, error) {
	list := s.backend.Services.Services()
	resp := &fairleadv1.ServicesResponse{Epoch: list.Epoch, Completeness: list.Completeness}
	for i := range list.Services {
		resp.Services = append(resp.Services, serviceToProto(&list.Services[i]))
	}
	return resp, nil
}

// Endpoints implements fairleadv1.AgentServer.
func (s *service) Endpoints(_ context.Context, req *fairleadv1.EndpointsRequest) (*fairleadv1.EndpointsResponse, error) {
	key, err := serviceKey(req.GetService())
	if err != nil {
		return nil, err
	}
	d, err := s.backend.Services.Endpoints(key)
	if err != nil {
		return nil, refusal(err)
	}
	resp := &fairleadv1.EndpointsResponse{Epoch: d.Epoch, Completeness: d.Completeness, Service: serviceToProto(&d.Service)}
	for _, def := range d.Definitions {
		resp.Definitions = append(resp.Definitions, &fairleadv1.Definition{
			Node: def.Node, NodeId: uint64(def.NodeID), Counts: def.Counts, Up: def.Up,
			Registered: timestamppb.New(def.Registered), Says: def.Says, Differs: def.Differs,
		})
	}
	for i := range d.Endpoints {
		resp.Endpoints = append(resp.Endpoints, endpointToProto(&d.Endpoints[i]))
	}
	return resp, nil
}

// Register implements fairleadv1.AgentServer.
func (s *service) Register(_ context.Context, req *fairleadv1.RegisterRequest) (*fairleadv1.RegisterResponse, error) {
	done, err := s.backend.Registrar.Register(req.GetName(), req.GetDefinition(), req.GetReplace())
	if err != nil {
		return nil, refusal(err)
	}
	resp := &fairleadv1.RegisterResponse{Changed: done.Changed}
	for _, key := range done.Services {
		resp.Services = append(resp.Services, key.String())
	}
	return resp, nil
}

// Deregister implements fairleadv1.AgentServer.
func (s *service) Deregister(_ context.Context, req *fairleadv1.DeregisterRequest) (*fairleadv1.DeregisterResponse, error) {
	key, err := serviceKey(req.GetService())
	if err != nil {
		return nil, err
	}
	gone, err := s.backend.Registrar.Deregister(key, req.GetInstance())
	if err != nil {
		return nil, refusal(err)
	}
	return &fairleadv1.DeregisterResponse{Instances: gone}, nil
}

// Maintenance implements fairleadv1.AgentServer.
func (s *service) Maintenance(_ context.Context, req *fairleadv1.MaintenanceRequest) (*fairleadv1.MaintenanceResponse, error) {
	var key model.ServiceKey
	switch {
	case req.GetService() != "":
		var err error
		if key, err = serviceKey(req.GetService()); err != nil {
			return nil, err
		}
	case req.GetInstance() != "":
		return nil, status.Error(codes.InvalidArgument, "an instance is named without its service: name both")
	}
	changed, err := s.backend.Registrar.Maintain(req.GetOn(), key, req.GetInstance())
	if err != nil {
		return nil, refusal(err)
	}
	return &fairleadv1.MaintenanceResponse{Changed: changed}, nil
}

func serviceKey(name string) (model.ServiceKey, error) {
	key, err := model.ParseServiceKey(name)
	if err != nil {
		return key, status.Error(codes.InvalidArgument, err.Error())
	}
	return key, nil
}

// refusal gives an error of the backend the code of its kind.
func refusal(err error) error {
	code := codes.Internal
	switch {
	case errors.Is(err, ErrInvalid):
		code = codes.InvalidArgument
	case errors.Is(err, ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, ErrRefused):
		code = codes.FailedPrecondition
	}
	return status.Error(code, err.Error())
}

func serviceToProto(s *Service) *fairleadv1.Service {
	out := &fairleadv1.Service{
		Namespace: s.Key.Namespace, Name: s.Key.Name, Vip: s.VIP, Ports: s.Ports,
		Ready: uint32(s.Ready), Total: uint32(s.Total),
		DefinedBy: s.DefinedBy, DefinedById: uint64(s.DefinedByID), Disagreeing: s.Disagreeing, Source: s.Source,
	}
	for _, c := range s.Conflicts {
		one := &fairleadv1.Conflict{Kind: c.Kind, What: c.What, Holder: c.Holder.String(), Node: c.Node, Remedy: c.Remedy}
		if !c.Since.IsZero() {
			one.Since = timestamppb.New(c.Since)
		}
		out.Conflicts = append(out.Conflicts, one)
	}
	return out
}

func endpointToProto(e *Endpoint) *fairleadv1.Endpoint {
	out := &fairleadv1.Endpoint{
		Node: e.Node, NodeId: uint64(e.NodeID), Instance: e.Instance, In: e.In, Reason: e.Reason, Detail: e.Detail,
		Addr: e.Addr, AddrForeign: e.AddrForeign, State: e.State, Since: timestamppb.New(e.Since),
		Weight: uint32(e.Weight), Own: e.Own,
	}
	for _, c := range e.Checks {
		r := &fairleadv1.CheckResult{
			Kind: c.Kind, Target: c.Target, Passing: c.Passing, Output: c.Output,
			Successes: uint32(c.Successes), Failures: uint32(c.Failures),
		}
		if !c.At.IsZero() {
			r.At = timestamppb.New(c.At)
		}
		out.Checks = append(out.Checks, r)
	}
	return out
}
