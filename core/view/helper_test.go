package view_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

const (
	self  model.NodeID = 1
	other model.NodeID = 2
)

// at is a moment of the test's own clock, n seconds in.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0).UTC() }

func key(name string) model.ServiceKey { return model.ServiceKey{Namespace: "default", Name: name} }

func member(id model.NodeID, s model.State) view.Member {
	return view.Member{
		ID: id, Name: fmt.Sprintf("n%d", id), Addr: netip.AddrPortFrom(advertise(id), 7400), Value: model.Value{Epoch: 1, State: s}, Since: at(0),
	}
}

func advertise(id model.NodeID) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(id)}) }

func service(name string, registered int64) model.Service {
	return model.Service{
		Key: key(name), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}, VIP: netip.MustParseAddr("10.200.0.10"),
		DrainTime: 30 * time.Second, Registered: registered,
	}
}

func instance(id, service, addr string, hostPort uint16) model.Instance {
	return model.Instance{ID: id, Service: key(service), Addr: netip.MustParseAddrPort(addr), HostPort: hostPort, Weight: 1}
}

func server(group, term uint64, learner bool) *record.Server {
	return &record.Server{ID: 7, Group: group, RPC: netip.MustParseAddrPort("10.9.0.1:7401"), Term: term, Learner: learner}
}

// leaderInstance is what a server has of model.LeaderService.
func leaderInstance() model.Instance {
	return model.Instance{ID: "api", Service: model.LeaderService(), Addr: netip.MustParseAddrPort("10.9.0.1:7402"), Weight: 1}
}

// rec is a record of services and instances, all of them passing.
func rec(services []model.Service, instances ...model.Instance) *view.Record {
	states := make([]model.InstanceState, len(instances))
	for i := range states {
		states[i] = model.InstancePassing
	}
	return view.NewRecord(record.Definition{Services: services, Instances: instances}, states, at(0))
}

// apply applies events in turn and checks after each that Build agrees.
func apply(t *testing.T, v *view.View, events ...view.Event) *view.View {
	t.Helper()
	for _, e := range events {
		next := view.Apply(v, e)
		if next != v && next.Epoch != v.Epoch+1 {
			t.Fatalf("epoch %d after %d", next.Epoch, v.Epoch)
		}
		v = next
		checkBuilt(t, v)
	}
	return v
}

func checkBuilt(t *testing.T, v *view.View) {
	t.Helper()
	built := view.Build(v.Self, v.Epoch, v.Completeness, slices.Collect(v.Nodes()))
	if got, want := dump(v), dump(built); got != want {
		t.Fatalf("Apply and Build disagree at epoch %d:\nApply\n%s\nBuild\n%s", v.Epoch, got, want)
	}
}

// dump prints all that a view says.
func dump(v *view.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v services=%d endpoints=%d nodes=%d\n", v.Self, v.Completeness, v.Len(), v.EndpointCount(), v.NodeCount())
	for n := range v.Nodes() {
		fmt.Fprintf(&b, "node %v %s %v %v %v since=%v suspected=%v problem=%q\n", n.ID, n.Name, n.Addr, n.Value, n.Role, n.Since, n.SuspectedSince, n.Problem)
	}
	for s := range v.Shards() {
		fmt.Fprintf(&b, "shard %+v\n", *s)
	}
	for s := range v.Services() {
		b.WriteString(dumpService(s))
	}
	return b.String()
}

// dumpService prints all of a service but Changed, a field that is still to come too.
func dumpService(s *view.Service) string {
	head := *s
	head.Changed, head.Endpoints = 0, nil
	var b strings.Builder
	fmt.Fprintf(&b, "service %+v\n", head)
	for _, e := range s.Endpoints {
		fmt.Fprintf(&b, "  %+v\n", e)
	}
	return b.String()
}

// world makes random events about a small cluster.
type world struct {
	rng     *rand.Rand
	now     int
	members map[model.NodeID]view.Member
	records map[model.NodeID]*view.Record
}

func newWorld(seed uint64) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 0)), members: map[model.NodeID]view.Member{}, records: map[model.NodeID]*view.Record{}}
}

func (w *world) next() view.Event {
	w.now++
	id := model.NodeID(1 + w.rng.IntN(6))
	m, known := w.members[id]
	if !known {
		m = member(id, model.StateAlive)
	}
	switch w.rng.IntN(12) {
	case 0:
		delete(w.members, id)
		delete(w.records, id)
		return view.Forgotten{ID: id}
	case 1:
		if w.rng.IntN(10) == 0 {
			return view.Completed{Completeness: view.Completeness(w.rng.IntN(4))}
		}
	case 2, 3, 4, 5:
		m.Value.Incarnation++
		m.Value.State = model.State(w.rng.IntN(4))
		m.Since = at(w.now)
	case 6:
		m.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(w.rng.IntN(3))}), 7400)
	}
	w.members[id] = m
	e := view.Seen{At: at(w.now), Member: m}
	switch w.rng.IntN(4) {
	case 0:
		e.Record = w.record()
		w.records[id] = e.Record
	case 1:
		if r := w.records[id]; r != nil {
			e.Record = r.With(w.states(len(r.States)), at(w.now))
		}
	case 2:
		if w.rng.IntN(10) == 0 {
			e.Problem = "made by another version"
		}
	}
	return e
}

func (w *world) states(n int) []model.InstanceState {
	out := make([]model.InstanceState, n)
	for i := range out {
		out[i] = model.InstancePassing
		if w.rng.IntN(3) == 0 {
			out[i] = model.InstanceState(w.rng.IntN(4))
		}
	}
	return out
}

func (w *world) record() *view.Record {
	var d record.Definition
	if w.rng.IntN(3) > 0 {
		d.Zone = fmt.Sprintf("z%d", w.rng.IntN(2))
	}
	if w.rng.IntN(3) > 0 {
		d.Advertise = netip.AddrFrom4([4]byte{10, 9, 2, byte(w.rng.IntN(3))})
	}
	for i := range 4 {
		name := fmt.Sprintf("s%d", i)
		if w.rng.IntN(2) == 0 {
			s := service(name, int64(w.rng.IntN(3)))
			if w.rng.IntN(3) == 0 {
				s.VIP = netip.AddrFrom4([4]byte{10, 200, 0, byte(w.rng.IntN(2))})
			}
			if w.rng.IntN(3) == 0 {
				s.Intercept = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001")}
			}
			d.Services = append(d.Services, s)
		}
		for j := range w.rng.IntN(3) {
			addr := []string{"127.0.0.1:9001", "[::1]:9002", "10.88.0.4:9003"}[w.rng.IntN(3)]
			d.Instances = append(d.Instances, instance(fmt.Sprintf("%s-%d", name, j), name, addr, uint16(w.rng.IntN(2)*19000)))
		}
	}
	if w.rng.IntN(2) == 0 {
		d.Server = server(uint64(w.rng.IntN(3)), uint64(w.rng.IntN(4)), w.rng.IntN(3) == 0)
		if w.rng.IntN(4) > 0 {
			d.Instances = append(d.Instances, leaderInstance())
		}
	}
	return view.NewRecord(d, w.states(len(d.Instances)), at(w.now))
}
