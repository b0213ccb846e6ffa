package client

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

// ServiceList is all services of one view.
type ServiceList struct {
	Epoch        uint64 // of the view; rises with each
	Completeness string // incomplete: what is missing may only not be known yet
	Services     []Service
}

// ServiceDetail is one service of one view with all its instances.
type ServiceDetail struct {
	Epoch        uint64
	Completeness string
	Service      Service
	Definitions  []Definition
	Endpoints    []Endpoint
}

// Service is one service as the agent sees it.
type Service struct {
	Key         model.ServiceKey
	VIP         string   // empty: none
	Ports       []string // 80/tcp
	Ready       int      // endpoints that take connections
	Total       int      // instances, those of dead nodes included
	DefinedBy   string   // name of the node whose definition counts; empty: nobody's
	DefinedByID model.NodeID
	Disagreeing []string // names of nodes that define it in another way
	Source      string   // where the agent's own node defines it: a file and line, or api
	Conflicts   []Conflict
}

// Conflict is what a service wants and another one has.
type Conflict struct {
	Kind   string    // frontend, host
	What   string    // 10.200.0.10:80/tcp
	Holder string    // namespace/name of the service that has it
	Node   string    // whose definition of the holder counts
	Since  time.Time // of the holder's registration; zero: it is built in
	Remedy string
}

// Definition is what one node says of a service.
type Definition struct {
	Node       string
	NodeID     model.NodeID
	Counts     bool
	Up         bool // the node is not dead and did not leave
	Registered time.Time
	Says       string   // in words
	Differs    []string // in which parts, from the one that counts
}

// Endpoint is an instance, and whether connections go to it.
type Endpoint struct {
	Node        string
	NodeID      model.NodeID
	Instance    string
	In          bool   // it is an endpoint
	Reason      string // ready, failing, node-dead …; scripts match it
	Detail      string // for people
	Addr        string // as the agent's node reaches it; empty unless it is an endpoint
	AddrForeign string // the same for other network namespaces
	State       string // what its node says: passing, critical, draining, drained
	Since       time.Time
	Weight      uint16
	Own         bool          // it runs on the agent's node
	Checks      []CheckResult // of own ones only
}

// CheckResult is what the last probe of a check found.
type CheckResult struct {
	Kind, Target string
	Passing      bool
	Output       string
	At           time.Time // zero: none yet
	Successes    int       // in a row
	Failures     int       // in a row
}

// Registration is what Register did.
type Registration struct {
	Services []string // namespace/name
	Changed  bool     // false: all of it was registered already
}

// Services lists the services of all nodes by name.
func (c *Client) Services(ctx context.Context) (ServiceList, error) {
	r, err := c.agent.Services(ctx, &fairleadv1.ServicesRequest{})
	if err != nil {
		return ServiceList{}, c.callError("services", err)
	}
	list := ServiceList{Epoch: r.GetEpoch(), Completeness: r.GetCompleteness()}
	for _, s := range r.GetServices() {
		list.Services = append(list.Services, service(s))
	}
	return list, nil
}

// Endpoints returns a service, NAME or NAMESPACE/NAME, with all its instances.
func (c *Client) Endpoints(ctx context.Context, name string) (ServiceDetail, error) {
	r, err := c.agent.Endpoints(ctx, &fairleadv1.EndpointsRequest{Service: name})
	if err != nil {
		return ServiceDetail{}, c.callError("endpoints", err)
	}
	d := ServiceDetail{Epoch: r.GetEpoch(), Completeness: r.GetCompleteness(), Service: service(r.GetService())}
	for _, def := range r.GetDefinitions() {
		d.Definitions = append(d.Definitions, Definition{
			Node: def.GetNode(), NodeID: model.NodeID(def.GetNodeId()), Counts: def.GetCounts(), Up: def.GetUp(),
			Registered: def.GetRegistered().AsTime(), Says: def.GetSays(), Differs: def.GetDiffers(),
		})
	}
	for _, e := range r.GetEndpoints() {
		d.Endpoints = append(d.Endpoints, endpoint(e))
	}
	return d, nil
}

// Register makes the agent's node run a service with its instances. The
// definition is YAML or JSON in the form that services has in the
// configuration: one service, or several under services. Name is what errors
// call it. Instances that were registered before stay, unless replace is set
// and the definition leaves them out.
func (c *Client) Register(ctx context.Context, name, definition string, replace bool) (Registration, error) {
	r, err := c.agent.Register(ctx, &fairleadv1.RegisterRequest{Name: name, Definition: definition, Replace: replace})
	if err != nil {
		return Registration{}, c.callError("register", err)
	}
	return Registration{Services: r.GetServices(), Changed: r.GetChanged()}, nil
}

// Deregister takes back a service that was registered, or with a name one
// instance of it. It returns the instances that are gone.
func (c *Client) Deregister(ctx context.Context, service, instance string) ([]string, error) {
	r, err := c.agent.Deregister(ctx, &fairleadv1.DeregisterRequest{Service: service, Instance: instance})
	if err != nil {
		return nil, c.callError("deregister", err)
	}
	return r.GetInstances(), nil
}

// Maintenance takes instances of the agent's node out of service, or puts them
// back: one, those of a service, or all if both names are empty. Changed is
// false if they were so already.
func (c *Client) Maintenance(ctx context.Context, on bool, service, instance string) (changed bool, err error) {
	r, err := c.agent.Maintenance(ctx, &fairleadv1.MaintenanceRequest{On: on, Service: service, Instance: instance})
	if err != nil {
		return false, c.callError("maintenance", err)
	}
	return r.GetChanged(), nil
}

func service(s *fairleadv1.Service) Service {
	out := Service{
		Key: model.ServiceKey{Namespace: s.GetNamespace(), Name: s.GetName()}, VIP: s.GetVip(), Ports: s.GetPorts(),
		Ready: int(s.GetReady()), Total: int(s.GetTotal()), DefinedBy: s.GetDefinedBy(), DefinedByID: model.NodeID(s.GetDefinedById()),
		Disagreeing: s.GetDisagreeing(), Source: s.GetSource(),
	}
	for _, c := range s.GetConflicts() {
		one := Conflict{Kind: c.GetKind(), What: c.GetWhat(), Holder: c.GetHolder(), Node: c.GetNode(), Remedy: c.GetRemedy()}
		if c.GetSince() != nil {
			one.Since = c.GetSince().AsTime()
		}
		out.Conflicts = append(out.Conflicts, one)
	}
	return out
}

func endpoint(e *fairleadv1.Endpoint) Endpoint {
	out := Endpoint{
		Node: e.GetNode(), NodeID: model.NodeID(e.GetNodeId()), Instance: e.GetInstance(), In: e.GetIn(), Reason: e.GetReason(), Detail: e.GetDetail(),
		Addr: e.GetAddr(), AddrForeign: e.GetAddrForeign(), State: e.GetState(), Since: e.GetSince().AsTime(),
		Weight: uint16(e.GetWeight()), Own: e.GetOwn(),
	}
	for _, r := range e.GetChecks() {
		check := CheckResult{
			Kind: r.GetKind(), Target: r.GetTarget(), Passing: r.GetPassing(), Output: r.GetOutput(),
			Successes: int(r.GetSuccesses()), Failures: int(r.GetFailures()),
		}
		if r.GetAt() != nil {
			check.At = r.GetAt().AsTime()
		}
		out.Checks = append(out.Checks, check)
	}
	return out
}
