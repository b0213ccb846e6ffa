package dataplane

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

// nodes is how many nodes the endpoints are spread over.
const nodes = 250

// views publishes views as a viewer does.
type views struct {
	mu      sync.Mutex
	latest  *view.View
	changed chan struct{}
	seen    []view.Seen // the present state of each node
}

// newViews are views of services with so many endpoints each.
func newViews(tb testing.TB, services, each int) *views {
	tb.Helper()
	v := &views{latest: view.Apply(view.New(1, 1), view.Completed{Completeness: view.Exchanged}), changed: make(chan struct{})}
	defs := make([]record.Definition, nodes)
	for s := range services {
		key := model.ServiceKey{Namespace: "default", Name: fmt.Sprintf("service-%05d", s)}
		svc := model.Service{
			Key: key, Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}, DrainTime: 30 * time.Second, Registered: 1,
			VIP: netip.AddrFrom4([4]byte{10, 200, byte(s >> 8), byte(s)}),
		}
		for i := range each {
			d := &defs[(s+i*(nodes/each))%nodes]
			d.Services = append(d.Services, svc)
			d.Instances = append(d.Instances, model.Instance{
				ID: fmt.Sprintf("service-%05d-%d", s, i), Service: key, Addr: netip.MustParseAddrPort("127.0.0.1:9000"),
				HostPort: uint16(10000 + len(d.Instances)), Weight: 1,
			})
		}
	}
	at := time.Unix(1_700_000_000, 0)
	for i, d := range defs {
		states := make([]model.InstanceState, len(d.Instances))
		for j := range states {
			states[j] = model.InstancePassing
		}
		id := model.NodeID(i + 2)
		member := view.Member{
			ID: id, Name: fmt.Sprintf("node-%03d", i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 7400),
			Value: model.Value{Epoch: 1, State: model.StateAlive}, Since: at,
		}
		v.seen = append(v.seen, view.Seen{At: at, Member: member, Record: view.NewRecord(d, states, at)})
		v.latest = view.Apply(v.latest, v.seen[i])
	}
	if v.latest.Len() != services || v.latest.EndpointCount() != services*each {
		tb.Fatalf("%d services, %d endpoints", v.latest.Len(), v.latest.EndpointCount())
	}
	return v
}

// Latest returns the newest view.
func (v *views) Latest() *view.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.latest
}

// Changed is closed at the next view.
func (v *views) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// flip turns the health of n instances at once, as many on each node.
func (v *views) flip(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var left [nodes]int
	for i := range n {
		left[i%nodes]++
	}
	for i, count := range left {
		e := v.seen[i]
		if count == 0 {
			continue
		}
		states := append([]model.InstanceState(nil), e.Record.States...)
		for j := range count { // others than on the next node, or they would share services
			at := (j*nodes + i) % len(states)
			states[at] = model.InstancePassing + model.InstanceCritical - states[at]
		}
		e.At = e.At.Add(time.Second)
		e.Record = e.Record.With(states, e.At)
		v.seen[i] = e
		v.latest = view.Apply(v.latest, e)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}
