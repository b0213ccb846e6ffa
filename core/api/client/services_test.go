package client

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

// steered answers what concerns services and plugins, and remembers requests.
type steered struct {
	fairleadv1.UnimplementedAgentServer
	fairleadv1.UnimplementedPluginsServer
	err   error
	asked []any
}

func (s *steered) Services(_ context.Context, r *fairleadv1.ServicesRequest) (*fairleadv1.ServicesResponse, error) {
	return &fairleadv1.ServicesResponse{Epoch: 7, Completeness: "alone", Services: []*fairleadv1.Service{{Namespace: "ops", Name: "db", Vip: "10.200.0.1", Ready: 1, Total: 2}}}, s.err
}

func (s *steered) Endpoints(_ context.Context, r *fairleadv1.EndpointsRequest) (*fairleadv1.EndpointsResponse, error) {
	s.asked = append(s.asked, r.GetService())
	at := timestamppb.New(time.Unix(9, 0))
	return &fairleadv1.EndpointsResponse{
		Epoch: 8, Service: &fairleadv1.Service{Name: "db"},
		Definitions: []*fairleadv1.Definition{{Node: "n1", NodeId: 3, Counts: true, Registered: at, Says: "port 1/tcp"}},
		Endpoints: []*fairleadv1.Endpoint{{Instance: "a", In: true, Since: at, Weight: 5, Checks: []*fairleadv1.CheckResult{
			{Kind: "tcp", Failures: 2}, {Kind: "http", Passing: true, At: at},
		}}},
	}, s.err
}

func (s *steered) Register(_ context.Context, r *fairleadv1.RegisterRequest) (*fairleadv1.RegisterResponse, error) {
	s.asked = append(s.asked, r.GetName()+r.GetDefinition(), r.GetReplace())
	return &fairleadv1.RegisterResponse{Changed: true, Services: []string{"ops/db"}}, s.err
}

func (s *steered) Deregister(_ context.Context, r *fairleadv1.DeregisterRequest) (*fairleadv1.DeregisterResponse, error) {
	s.asked = append(s.asked, r.GetService()+r.GetInstance())
	return &fairleadv1.DeregisterResponse{Instances: []string{"a"}}, s.err
}

func (s *steered) Maintenance(_ context.Context, r *fairleadv1.MaintenanceRequest) (*fairleadv1.MaintenanceResponse, error) {
	s.asked = append(s.asked, r.GetOn(), r.GetService()+r.GetInstance())
	return &fairleadv1.MaintenanceResponse{Changed: true}, s.err
}

func (s *steered) Leave(_ context.Context, r *fairleadv1.LeaveRequest) (*fairleadv1.LeaveResponse, error) {
	s.asked = append(s.asked, r.GetHoldMs())
	return &fairleadv1.LeaveResponse{Name: "n1"}, s.err
}

func (s *steered) ListPlugins(context.Context, *fairleadv1.ListPluginsRequest) (*fairleadv1.ListPluginsResponse, error) {
	return &fairleadv1.ListPluginsResponse{Warnings: []string{"w"}, Plugins: []*fairleadv1.Plugin{{
		Name: "l7", Pid: 3, Reconciliation: &fairleadv1.Reconciliation{Generation: 4, Troubles: []*fairleadv1.ServiceTrouble{{Service: "ops/db", Status: "PARTIAL"}}},
	}}}, s.err
}

func (s *steered) RestartPlugin(_ context.Context, r *fairleadv1.RestartPluginRequest) (*fairleadv1.RestartPluginResponse, error) {
	s.asked = append(s.asked, r.GetName())
	return &fairleadv1.RestartPluginResponse{Plugin: &fairleadv1.Plugin{Name: "l7", Since: timestamppb.New(time.Unix(9, 0))}}, s.err
}

func dialSteered(t *testing.T, s *steered) *Client {
	t.Helper()
	return dialServer(t, func(server *grpc.Server) {
		fairleadv1.RegisterAgentServer(server, s)
		fairleadv1.RegisterPluginsServer(server, s)
	})
}

func TestSteeringAnswers(t *testing.T) {
	s := &steered{}
	c, ctx := dialSteered(t, s), t.Context()
	at := time.Unix(9, 0).UTC()

	list, err := c.Services(ctx)
	if want := (ServiceList{Epoch: 7, Completeness: "alone", Services: []Service{{Key: model.ServiceKey{Namespace: "ops", Name: "db"}, VIP: "10.200.0.1", Ready: 1, Total: 2}}}); err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("Services: %v: %+v", err, list)
	}
	detail, err := c.Endpoints(ctx, "ops/db")
	if want := (ServiceDetail{
		Epoch: 8, Service: Service{Key: model.ServiceKey{Name: "db"}}, Definitions: []Definition{{Node: "n1", NodeID: 3, Counts: true, Registered: at, Says: "port 1/tcp"}},
		Endpoints: []Endpoint{{Instance: "a", In: true, Since: at, Weight: 5, Checks: []CheckResult{{Kind: "tcp", Failures: 2}, {Kind: "http", Passing: true, At: at}}}},
	}); err != nil || !reflect.DeepEqual(detail, want) {
		t.Errorf("Endpoints: %v: %+v", err, detail)
	}
	if done, err := c.Register(ctx, "f", "x", true); err != nil || !done.Changed || len(done.Services) != 1 {
		t.Errorf("Register: %v: %+v", err, done)
	}
	if gone, err := c.Deregister(ctx, "db", "a"); err != nil || len(gone) != 1 {
		t.Errorf("Deregister: %v: %q", err, gone)
	}
	if changed, err := c.Maintenance(ctx, true, "db", "a"); err != nil || !changed {
		t.Errorf("Maintenance: %v: %v", err, changed)
	}
	if name, err := c.Restart(ctx, time.Second); err != nil || name != "n1" {
		t.Errorf("Restart: %v: %q", err, name)
	}
	if plugins, err := c.Plugins(ctx); err != nil || len(plugins.Plugins) != 1 || plugins.Plugins[0].PID != 3 || !plugins.Plugins[0].Since.IsZero() ||
		plugins.Plugins[0].Told.Troubles[0].Status != "PARTIAL" || plugins.Warnings[0] != "w" {
		t.Errorf("Plugins: %v: %+v", err, plugins)
	}
	if p, err := c.RestartPlugin(ctx, "l7"); err != nil || p.Told != nil || !p.Since.Equal(at) {
		t.Errorf("RestartPlugin: %v: %+v", err, p)
	}
	if want := []any{"ops/db", "fx", true, "dba", true, "dba", uint32(1000), "l7"}; !reflect.DeepEqual(s.asked, want) {
		t.Errorf("asked %v, want %v", s.asked, want)
	}
}

func TestSteeringErrorsNameTheCall(t *testing.T) {
	c, ctx := dialSteered(t, &steered{err: status.Error(codes.FailedPrecondition, "no")}), t.Context()
	for call, do := range map[string]func() error{
		"services":       func() error { _, err := c.Services(ctx); return err },
		"endpoints":      func() error { _, err := c.Endpoints(ctx, "a"); return err },
		"register":       func() error { _, err := c.Register(ctx, "f", "x", false); return err },
		"deregister":     func() error { _, err := c.Deregister(ctx, "a", ""); return err },
		"maintenance":    func() error { _, err := c.Maintenance(ctx, true, "", ""); return err },
		"restart":        func() error { _, err := c.Restart(ctx, 0); return err },
		"leave":          func() error { _, err := c.Leave(ctx); return err },
		"plugins":        func() error { _, err := c.Plugins(ctx); return err },
		"plugin restart": func() error { _, err := c.RestartPlugin(ctx, "a"); return err },
	} {
		if err := do(); err == nil || !strings.HasPrefix(err.Error(), call+": no") {
			t.Errorf("%s: %v", call, err)
		}
	}
}
