package view_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

// web is one instance of service web, in some state on some node in some state.
func web(id model.NodeID, node model.State, addr string, hostPort uint16, s model.InstanceState) view.Seen {
	d := record.Definition{Advertise: advertise(id), Zone: "z1", Services: []model.Service{service("web", 1)}, Instances: []model.Instance{instance("web-1", "web", addr, hostPort)}}
	return view.Seen{At: at(10), Member: member(id, node), Record: view.NewRecord(d, []model.InstanceState{s}, at(10))}
}

func TestWhatBecomesOfAnInstance(t *testing.T) {
	const passing, draining = model.InstancePassing, model.InstanceDraining
	for _, c := range []struct {
		name          string
		e             view.Seen
		reason        view.Reason
		addr, foreign string // empty: no endpoint
		state         view.EndpointState
	}{
		{"other node", web(2, model.StateAlive, "10.9.0.2:9001", 0, passing), view.ReasonReady, "10.9.0.2:9001", "10.9.0.2:9001", view.Ready},
		{"other node, host port", web(2, model.StateAlive, "127.0.0.1:9001", 19001, passing), view.ReasonReady, "10.9.0.2:19001", "10.9.0.2:19001", view.Ready},
		{"other node, container address", web(2, model.StateAlive, "10.88.0.7:80", 8080, passing), view.ReasonReady, "10.9.0.2:8080", "10.9.0.2:8080", view.Ready},
		{"other node, loopback", web(2, model.StateAlive, "127.0.0.1:9001", 0, passing), view.ReasonLocalOnly, "", "", 0},
		{"other node, loopback v6", web(2, model.StateAlive, "[::1]:9001", 0, passing), view.ReasonLocalOnly, "", "", 0},
		{"other node, loopback v4 in v6", web(2, model.StateAlive, "[::ffff:127.0.0.1]:9001", 0, passing), view.ReasonLocalOnly, "", "", 0},
		{"own node", web(1, model.StateAlive, "127.0.0.1:9001", 19001, passing), view.ReasonReady, "127.0.0.1:9001", "10.9.0.1:19001", view.Ready},
		{"own node, no host port", web(1, model.StateAlive, "10.88.0.7:9001", 0, passing), view.ReasonReady, "10.88.0.7:9001", "10.9.0.1:9001", view.Ready},
		{"own node, left", web(1, model.StateLeft, "10.88.0.7:9001", 0, passing), view.ReasonReady, "10.88.0.7:9001", "10.9.0.1:9001", view.Ready},
		{"suspect", web(2, model.StateSuspect, "10.9.0.2:1", 0, passing), view.ReasonSuspect, "10.9.0.2:1", "10.9.0.2:1", view.Suspect},
		{"suspect and draining", web(2, model.StateSuspect, "10.9.0.2:1", 0, draining), view.ReasonDraining, "10.9.0.2:1", "10.9.0.2:1", view.Draining},
		{"draining", web(2, model.StateAlive, "10.9.0.2:1", 0, draining), view.ReasonDraining, "10.9.0.2:1", "10.9.0.2:1", view.Draining},
		{"critical", web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstanceCritical), view.ReasonFailing, "", "", 0},
		{"drained", web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstanceDrained), view.ReasonDrained, "", "", 0},
		{"unknown state", web(2, model.StateAlive, "10.9.0.2:1", 0, 77), view.ReasonFailing, "", "", 0},
		{"dead", web(2, model.StateDead, "10.9.0.2:1", 0, passing), view.ReasonNodeDead, "", "", 0},
		{"left", web(2, model.StateLeft, "10.9.0.2:1", 0, passing), view.ReasonNodeLeft, "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := apply(t, view.New(self, 1), c.e)
			got := v.Explain(key("web"))
			if len(got) != 1 || got[0].Reason != c.reason || (got[0].Endpoint != nil) != (c.addr != "") {
				t.Fatalf("explained as %+v, want %s", got, c.reason)
			}
			if c.reason != view.ReasonReady && got[0].Detail == "" {
				t.Error("no detail")
			}
			s := v.Service(key("web"))
			if c.addr == "" {
				if len(s.Endpoints) != 0 {
					t.Fatalf("endpoints %+v, want none", s.Endpoints)
				}
				return
			}
			e := s.Endpoints[0]
			if e.Addr.String() != c.addr || e.AddrForeign.String() != c.foreign || e.State != c.state || e.Zone != "z1" || e.Weight != 1 {
				t.Errorf("endpoint %+v, want %s, foreign %s, %v", e, c.addr, c.foreign, c.state)
			}
			if want := view.EndpointID(key("web"), c.e.Member.ID, "web-1"); e.ID != want || e != *got[0].Endpoint {
				t.Errorf("endpoint %+v, explained as %+v, want id %x", e, got[0].Endpoint, want)
			}
			if want := at(40); (c.state == view.Draining) != e.DrainUntil.Equal(want) {
				t.Errorf("drains until %v, want %v if draining", e.DrainUntil, want)
			}
		})
	}
}

// On one host a loopback address is as good as any.
func TestLoopbackInstanceOfANodeOnLoopback(t *testing.T) {
	e := web(2, model.StateAlive, "127.0.0.5:9001", 0, model.InstancePassing)
	d := e.Record.Definition
	d.Advertise = netip.MustParseAddr("127.0.0.1")
	e.Record = view.NewRecord(d, []model.InstanceState{model.InstancePassing}, at(0))
	v := apply(t, view.New(self, 1), e)
	if got := v.Explain(key("web"))[0]; got.Reason != view.ReasonReady || got.Endpoint.Addr.String() != "127.0.0.5:9001" || got.Endpoint.AddrForeign != got.Endpoint.Addr {
		t.Errorf("explained as %+v, want an endpoint at 127.0.0.5:9001", got)
	}
}

func TestAdvertisedAddressDefaultsToThatOfGossip(t *testing.T) {
	e := web(2, model.StateAlive, "127.0.0.1:9001", 19001, model.InstancePassing)
	d := e.Record.Definition
	d.Advertise = netip.Addr{}
	e.Record = view.NewRecord(d, []model.InstanceState{model.InstancePassing}, at(0))
	e.Member.Addr = netip.MustParseAddrPort("10.1.1.1:7400")
	v := apply(t, view.New(self, 1), e)
	if got := v.Service(key("web")).Endpoints[0].Addr.String(); got != "10.1.1.1:19001" {
		t.Errorf("endpoint at %s, want 10.1.1.1:19001", got)
	}
	e.Member.Addr = netip.AddrPort{}
	v = apply(t, v, e)
	if got := v.Explain(key("web"))[0]; got.Reason != view.ReasonNoAddress {
		t.Errorf("without any address: %+v", got)
	}
	e.Member = member(self, model.StateAlive)
	e.Member.Addr = netip.AddrPort{}
	v = apply(t, view.New(self, 1), e)
	if got := v.Service(key("web")).Endpoints[0]; got.Addr != got.AddrForeign {
		t.Errorf("own node without an address: %+v, want one address", got)
	}
}

func TestDrainTimeRunsFromWhenDrainingBegan(t *testing.T) {
	e := web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstanceDraining)
	v := apply(t, view.New(self, 1), e)
	later := e
	later.At, later.Member.Value.Incarnation = at(20), 5
	later.Record = e.Record.With([]model.InstanceState{model.InstanceDraining}, at(20))
	v = apply(t, v, later)
	if got := v.Service(key("web")).Endpoints[0].DrainUntil; !got.Equal(at(40)) {
		t.Errorf("said again: drains until %v, want %v", got, at(40))
	}
	// A new definition, in which the instance has another position.
	d := e.Record.Definition
	d.Instances = append([]model.Instance{instance("web-0", "web", "10.9.0.2:2", 0)}, d.Instances...)
	later.Record = view.NewRecord(d, []model.InstanceState{model.InstancePassing, model.InstanceDraining}, at(25))
	v = apply(t, v, later)
	got, _ := v.Service(key("web")).Endpoint(view.EndpointID(key("web"), 2, "web-1"))
	if !got.DrainUntil.Equal(at(40)) {
		t.Errorf("at another position: drains until %v, want %v", got.DrainUntil, at(40))
	}
	if _, found := v.Service(key("web")).Endpoint(4711); found {
		t.Error("found an endpoint that is not there")
	}
}

func TestRemovalSaysWhy(t *testing.T) {
	up := web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstancePassing)
	suspect := view.Seen{At: at(30), Member: member(2, model.StateSuspect)}
	dead := view.Seen{At: at(35), Member: member(2, model.StateDead)}
	again := view.Seen{At: at(32), Member: suspect.Member}
	again.Member.Value.Incarnation++
	none := view.NewRecord(record.Definition{}, nil, at(30))
	for _, c := range []struct {
		name   string
		events []view.Event
		want   view.RemovalReason
		since  time.Time
	}{
		{"still there", nil, view.NotRemoved, time.Time{}},
		{"suspect", []view.Event{suspect}, view.NotRemoved, time.Time{}},
		{"dead", []view.Event{suspect, again, dead}, view.Dead, at(30)},
		{"dead, changed again", []view.Event{suspect, dead, view.Seen{At: at(60), Member: view.Member{ID: 2, Name: "renamed", Value: model.Value{Epoch: 1, State: model.StateDead}}}}, view.Dead, at(30)},
		{"dead at once", []view.Event{dead}, view.Dead, time.Time{}},
		{"left", []view.Event{view.Seen{At: at(30), Member: member(2, model.StateLeft)}}, view.Left, time.Time{}},
		{"failing", []view.Event{web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstanceCritical)}, view.Failing, time.Time{}},
		{"drained", []view.Event{web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstanceDrained)}, view.Drained, time.Time{}},
		{"deregistered", []view.Event{view.Seen{At: at(30), Member: member(2, model.StateAlive), Record: none}}, view.Deregistered, time.Time{}},
		{"now local-only", []view.Event{web(2, model.StateAlive, "127.0.0.1:1", 0, model.InstancePassing)}, view.Deregistered, time.Time{}},
		{"forgotten", []view.Event{dead, view.Forgotten{ID: 2}}, view.Dead, time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := apply(t, view.New(self, 1), up)
			e := v.Service(key("web")).Endpoints[0]
			v = apply(t, v, c.events...)
			reason, since := v.Removal(key("web"), e.Node, e.Instance)
			if reason != c.want || !since.Equal(c.since) {
				t.Errorf("removed because %v, suspected since %v, want %v, %v", reason, since, c.want, c.since)
			}
		})
	}
}

func TestSuspicionThatEndedIsForgotten(t *testing.T) {
	v := apply(t, view.New(self, 1), view.Seen{At: at(1), Member: member(2, model.StateSuspect)})
	if got := v.Node(2).SuspectedSince; !got.Equal(at(1)) {
		t.Errorf("suspected since %v, want %v", got, at(1))
	}
	v = apply(t, v, view.Seen{At: at(2), Member: member(2, model.StateAlive)}, view.Seen{At: at(3), Member: member(2, model.StateDead)})
	if got := v.Node(2).SuspectedSince; !got.IsZero() {
		t.Errorf("died without a suspicion, suspected since %v", got)
	}
}

func TestFirstRegisteredDefinitionCounts(t *testing.T) {
	define := func(id model.NodeID, state model.State, registered int64, vip string) view.Seen {
		s := service("web", registered)
		s.VIP = netip.MustParseAddr(vip)
		s.Intercept = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(8000+id))}
		return view.Seen{Member: member(id, state), Record: rec([]model.Service{s})}
	}
	const alive = model.StateAlive
	for _, c := range []struct {
		name    string
		events  []view.Event
		by      model.NodeID
		against string
	}{
		{"alone", []view.Event{define(3, alive, 5, "10.200.0.1")}, 3, "[]"},
		{"agree", []view.Event{define(3, alive, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.1")}, 3, "[]"},
		{"earlier counts", []view.Event{define(3, alive, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.2")}, 3, "[0000000000000002]"},
		{"then the smaller id", []view.Event{define(3, alive, 5, "10.200.0.1"), define(2, alive, 5, "10.200.0.2")}, 2, "[0000000000000003]"},
		{"suspects count", []view.Event{define(3, model.StateSuspect, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.2")}, 3, "[0000000000000002]"},
		{"the living before the dead", []view.Event{define(3, model.StateDead, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.2")}, 2, "[]"},
		{"the dead before those who left", []view.Event{define(3, model.StateLeft, 5, "10.200.0.1"), define(2, model.StateDead, 6, "10.200.0.2")}, 2, "[]"},
		{"the last one that left still counts", []view.Event{define(3, model.StateLeft, 5, "10.200.0.1")}, 3, "[]"},
		{"own node counts whatever it is", []view.Event{define(1, model.StateLeft, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.2")}, 1, "[0000000000000002]"},
		{"death hands over", []view.Event{
			define(3, alive, 5, "10.200.0.1"), define(2, alive, 6, "10.200.0.2"),
			view.Seen{Member: member(3, model.StateDead)},
		}, 2, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := apply(t, view.New(self, 1), c.events...)
			s := v.Service(key("web"))
			if s.DefinedBy != c.by || fmt.Sprint(s.Disagreeing) != c.against {
				t.Errorf("defined by %v against %v, want %v against %s", s.DefinedBy, s.Disagreeing, c.by, c.against)
			}
			if s.Since != 5 {
				t.Errorf("since %d, want 5, when it was first registered, wherever that was", s.Since)
			}
			var own []netip.AddrPort
			if c.by == self {
				own = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001")}
			}
			if !slices.Equal(s.Definition.Intercept, own) {
				t.Errorf("intercepts %v, want those of this node only, %v", s.Definition.Intercept, own)
			}
		})
	}
}

// When a service was first registered orders services, so Diff names it where that
// alone is new: here it is what a dead node says, whose definition does not count.
func TestAnEarlierRegistrationIsAChange(t *testing.T) {
	of := func(id model.NodeID, state model.State, registered int64) view.Seen {
		return view.Seen{Member: member(id, state), Record: rec([]model.Service{service("web", registered)})}
	}
	was := apply(t, view.New(self, 1), of(2, model.StateAlive, 6), of(3, model.StateDead, 5))
	is := apply(t, was, of(3, model.StateDead, 4))
	before, now := was.Service(key("web")), is.Service(key("web"))
	if before.DefinedBy != 2 || now.DefinedBy != 2 || before.Since != 5 || now.Since != 4 {
		t.Fatalf("defined by %v since %d, then by %v since %d; want 2 since 5, then 4", before.DefinedBy, before.Since, now.DefinedBy, now.Since)
	}
	// A view of another lineage is compared in full.
	for _, from := range []*view.View{was, view.Build(self, 1, was.Completeness, slices.Collect(was.Nodes()))} {
		if got := view.Diff(from, is); len(got) != 1 || got[0].Key != key("web") {
			t.Errorf("Diff %v, want web", got)
		}
	}
}

func TestOwnInterceptCountsUnderAnothersDefinition(t *testing.T) {
	mine := service("web", 9)
	mine.Intercept, mine.OnEmpty = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001")}, model.OnEmptyRefuse
	v := apply(t, view.New(self, 1),
		view.Seen{Member: member(2, model.StateAlive), Record: rec([]model.Service{service("web", 1)})},
		view.Seen{Member: member(1, model.StateAlive), Record: rec([]model.Service{mine})})
	s := v.Service(key("web"))
	if s.DefinedBy != 2 || len(s.Definition.Intercept) != 1 || s.Definition.OnEmpty != model.OnEmptyRefuse || s.Disagreeing != nil {
		t.Errorf("defined by %v, intercept %v, on_empty %v, against %v", s.DefinedBy, s.Definition.Intercept, s.Definition.OnEmpty, s.Disagreeing)
	}
}

// Each node's word is shown, and whether it is the one that counts.
func TestDefinitionsOfAllNodes(t *testing.T) {
	mine, theirs := service("web", 20), service("web", 10)
	theirs.VIP = netip.MustParseAddr("10.200.0.11")
	v := apply(t, view.New(self, 1),
		view.Seen{Member: member(self, model.StateAlive), Record: rec([]model.Service{mine}, instance("a", "web", "127.0.0.1:1", 0), instance("b", "web", "127.0.0.1:2", 0))},
		view.Seen{Member: member(2, model.StateAlive), Record: rec([]model.Service{theirs})},
		view.Seen{Member: member(3, model.StateDead), Record: rec([]model.Service{service("web", 1)})},
		view.Seen{Member: member(4, model.StateAlive), Record: rec(nil, instance("c", "web", "10.9.0.4:1", 0))},
	)
	got := v.Definitions(key("web"))
	if len(got) != 3 || got[0].Node != self || got[0].Counts || got[0].Agrees || !got[0].Up ||
		!got[1].Counts || !got[1].Agrees || got[1].Definition.VIP != theirs.VIP || got[2].Node != 3 || got[2].Up {
		t.Errorf("definitions %+v", got)
	}
	if v.Definitions(key("db")) != nil {
		t.Error("definitions of a service that nobody has")
	}
	if n := v.Node(self).Instances(key("web")); n != 2 {
		t.Errorf("%d instances of this node, want 2", n)
	}
	if p := v.Explain(key("web"))[2]; p.Addr.String() != "10.9.0.4:1" || p.Weight != 1 || p.State != model.InstancePassing || !p.Since.Equal(at(0)) {
		t.Errorf("placement %+v", p)
	}
}

func TestInstancesWithoutDefinitionMakeAService(t *testing.T) {
	v := apply(t, view.New(self, 1), view.Seen{Member: member(2, model.StateAlive), Record: rec(nil, instance("a", "web", "10.9.0.2:1", 0))})
	s := v.Service(key("web"))
	if s == nil || s.DefinedBy != 0 || s.Definition.Key != key("web") || len(s.Endpoints) != 1 {
		t.Errorf("service %+v, want an empty definition and one endpoint", s)
	}
	if v = apply(t, v, view.Seen{Member: member(2, model.StateAlive), Record: rec(nil)}); v.Service(key("web")) != nil || v.Explain(key("web")) != nil {
		t.Error("the service outlives its last instance and definition")
	}
}

func TestWhatChangesNothingIsNoView(t *testing.T) {
	e := web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstancePassing)
	v := apply(t, view.New(self, 1), e, view.Completed{Completeness: view.Alone})
	again := web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstancePassing)
	again.At = at(99)
	for _, e := range []view.Event{
		e, again,
		view.Forgotten{ID: 9},
		view.Completed{Completeness: view.Exchanged},
		view.Completed{},
		view.Seen{Member: e.Member, At: at(50)},
	} {
		if next := view.Apply(v, e); next != v {
			t.Errorf("%T made view %d out of %d", e, next.Epoch, v.Epoch)
		}
	}
}

func TestProblemStaysUntilAGoodRecord(t *testing.T) {
	e := web(2, model.StateAlive, "10.9.0.2:1", 0, model.InstancePassing)
	v := apply(t, view.New(self, 1), e, view.Seen{Member: e.Member, Problem: "unreadable"}, view.Seen{Member: member(2, model.StateSuspect)})
	if n := v.Node(2); n.Problem != "unreadable" || n.Record == nil || v.EndpointCount() != 1 {
		t.Errorf("problem %q, record %v: want the problem beside the record before it", n.Problem, n.Record)
	}
	if v = apply(t, v, e); v.Node(2).Problem != "" {
		t.Errorf("problem %q after a good record", v.Node(2).Problem)
	}
}

func TestEndpointIDsTellPartsApart(t *testing.T) {
	ids := map[uint64]string{}
	for _, c := range []struct {
		ns, name string
		node     model.NodeID
		instance string
	}{{"a", "bc", 1, "d"}, {"ab", "c", 1, "d"}, {"a", "b", 1, "cd"}, {"a", "bc", 2, "d"}, {"a", "bc", 1, "e"}} {
		id := view.EndpointID(model.ServiceKey{Namespace: c.ns, Name: c.name}, c.node, c.instance)
		if was := ids[id]; was != "" || id == 0 {
			t.Errorf("%v has id %x, like %s", c, id, was)
		}
		ids[id] = fmt.Sprint(c)
	}
	if got := view.EndpointID(key("web"), 7, "web-1"); got != 0xc7128abe98a35d15 {
		t.Errorf("id of default/web on 7, web-1 is %#x: it has to stay what it was in all versions", got)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		view.Ready.String(): "ready", view.Draining.String(): "draining", view.EndpointState(9).String(): "unknown",
		view.RoleFailed.String(): "failed", view.Role(9).String(): "left", view.TimedOut.String(): "timeout", view.Completeness(9).String(): "timeout",
		view.Deregistered.String(): "deregistered", view.RemovalReason(9).String(): "unknown",
	} {
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}
