package reconcile_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
)

// rich is a service with all that a data plane can be told.
func rich() model.Service {
	return model.Service{
		Key: key("web"), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}, {Port: 443, Protocol: model.TCP}, {Port: 53, Protocol: model.UDP}},
		VIP: netip.MustParseAddr("10.200.0.10"), Intercept: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001")}, OnEmpty: model.OnEmptyRefuse,
		Balance: model.BalanceHash, Affinity: time.Hour, Hosts: []string{"www"}, DrainTime: time.Minute, Registered: 1,
		Routes: []model.Route{{Host: "h", PathPrefix: "/p", Headers: map[string]string{"a": "1", "b": "2"}, Methods: []string{"GET"}}},
	}
}

func says(id model.NodeID, s model.Service) view.Seen {
	in := model.Instance{ID: "web-1", Service: s.Key, Addr: netip.MustParseAddrPort("127.0.0.1:9001"), HostPort: 19001, Weight: 3}
	d := record.Definition{Zone: "z1", Services: []model.Service{s}, Instances: []model.Instance{in}}
	return view.Seen{Member: member(id, model.StateAlive), Record: view.NewRecord(d, []model.InstanceState{model.InstanceDraining}, time.Unix(1000, 0))}
}

func TestProject(t *testing.T) {
	v := view.Apply(view.Apply(view.New(self, 1), view.Completed{Completeness: view.TimedOut}), says(self, rich()))
	s := reconcile.Project(v)
	got := *s.Service(dataplane.Key(key("web")))
	endpoints := got.Endpoints.Slice()
	got.Endpoints = dataplane.Endpoints{}
	vip, icpt := netip.MustParseAddr("10.200.0.10"), netip.MustParseAddrPort("127.0.0.1:8001")
	want := dataplane.Service{
		Key: dataplane.Key(key("web")), Balance: dataplane.BalanceHash, Affinity: dataplane.Affinity{ByClient: true, TTL: time.Hour},
		Hosts: []string{"www"}, DrainTime: time.Minute, Since: 1,
		Routes: []dataplane.Route{{Host: "h", PathPrefix: "/p", Headers: map[string]string{"a": "1", "b": "2"}, Methods: []string{"GET"}}},
		Frontends: []dataplane.Frontend{
			{Addr: netip.AddrPortFrom(vip, 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP},
			{Addr: netip.AddrPortFrom(vip, 443), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP},
			{Addr: netip.AddrPortFrom(vip, 53), Protocol: dataplane.UDP, Kind: dataplane.FrontendVIP},
			{Addr: icpt, Protocol: dataplane.TCP, Kind: dataplane.FrontendIntercept, OnEmpty: dataplane.OnEmptyRefuse},
			{Addr: icpt, Protocol: dataplane.UDP, Kind: dataplane.FrontendIntercept, OnEmpty: dataplane.OnEmptyRefuse},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("projected\n%+v, want\n%+v", got, want)
	}
	wantEndpoint := dataplane.Endpoint{
		ID: view.EndpointID(key("web"), self, "web-1"), Name: "web-1", Addr: netip.MustParseAddrPort("127.0.0.1:9001"),
		AddrForeign: netip.MustParseAddrPort("10.9.0.1:19001"), State: dataplane.Draining, Weight: 3, Zone: "z1", DrainUntil: time.Unix(1060, 0),
	}
	if len(endpoints) != 1 || !endpoints[0].Equal(wantEndpoint) {
		t.Errorf("endpoints %+v, want %+v", endpoints, wantEndpoint)
	}
	if s.Completeness != dataplane.TimedOut || s.Service(dataplane.Key(key("web"))).Check() != nil {
		t.Errorf("completeness %v, check %v", s.Completeness, s.Service(dataplane.Key(key("web"))).Check())
	}

	// Another node's intercept addresses are its own matter, and without a VIP
	// there is no frontend.
	other := rich()
	other.VIP = netip.Addr{}
	s = reconcile.Project(view.Apply(view.New(self, 1), says(2, other)))
	if f := s.Service(dataplane.Key(key("web"))).Frontends; len(f) != 0 {
		t.Errorf("frontends %v of another node without a VIP", f)
	}
	// An intercept address without ports is TCP, and passes by default.
	own := model.Service{Key: key("web"), Intercept: []netip.AddrPort{icpt}}
	s = reconcile.Project(view.Apply(view.New(self, 1), says(self, own)))
	if f := s.Service(dataplane.Key(key("web"))).Frontends; len(f) != 1 || f[0].Protocol != dataplane.TCP || f[0].Refuses() {
		t.Errorf("frontends %v of an intercept address alone", f)
	}
}

// Whatever part of a service changes, the provider is told, and the digest is
// another one.
func TestEveryPartOfAServiceCounts(t *testing.T) {
	edits := []func(s *model.Service){
		func(s *model.Service) { s.Ports[0].Port = 81 },
		func(s *model.Service) { s.Ports = s.Ports[:2] },
		func(s *model.Service) { s.VIP = netip.MustParseAddr("10.200.0.11") },
		func(s *model.Service) { s.Intercept = nil },
		func(s *model.Service) { s.OnEmpty = model.OnEmptyPass },
		func(s *model.Service) { s.Balance = model.BalanceRandom },
		func(s *model.Service) { s.Affinity = 0 },
		func(s *model.Service) { s.Affinity = time.Minute },
		func(s *model.Service) { s.Hosts = []string{"w", "ww"} },
		func(s *model.Service) { s.DrainTime = time.Second },
		func(s *model.Service) { s.Registered = 2 },
		func(s *model.Service) { s.Routes[0].Host = "g" },
		func(s *model.Service) { s.Routes[0].Headers["a"] = "2" },
		func(s *model.Service) { s.Routes[0].Methods = nil },
		func(s *model.Service) { s.Routes = nil },
		func(s *model.Service) { s.Key = key("renamed") },
	}
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(says(self, rich()))
		r.serve()
		digests := map[string]bool{}
		for i, edit := range edits {
			s := rich()
			edit(&s)
			for _, state := range []view.Seen{says(self, s), says(self, rich())} {
				r.views.apply(state)
				r.pass(20 * time.Millisecond)
				r.same()
			}
			calls := r.p.history()
			digests[string(calls[len(calls)-2].begin.GetDigest())] = true
			if back := string(calls[len(calls)-1].begin.GetDigest()); back != string(calls[0].begin.GetDigest()) || len(calls) != 3+2*i {
				t.Fatalf("edit %d: %d calls, digest %x after going back, was %x", i, len(calls), back, calls[0].begin.GetDigest())
			}
		}
		if len(digests) != len(edits) {
			t.Errorf("%d digests of %d contents", len(digests), len(edits))
		}
	})
}

func TestMetricsRegisterAllOrNone(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := reconcile.NewMetrics()
	if err := m.Register(registry); err != nil {
		t.Fatal(err)
	}
	if err := reconcile.NewMetrics().Register(registry); err == nil {
		t.Error("registered twice")
	}
	m.Unregister(registry)
	if err := reconcile.NewMetrics().Register(registry); err != nil {
		t.Error(err)
	}
}
