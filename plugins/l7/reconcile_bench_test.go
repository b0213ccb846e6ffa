package l7

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

func many(n, per int) []*dataplane.Service {
	list := make([]*dataplane.Service, n)
	for i := range list {
		var endpoints []dataplane.Endpoint
		for e := range per {
			endpoints = append(endpoints, dataplane.Endpoint{
				ID: uint64(e + 1), Name: fmt.Sprintf("web-%d-%d", i, e), Weight: 1,
				Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), uint16(8000+e)),
			})
		}
		list[i] = &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}, Endpoints: dataplane.NewEndpoints(endpoints...)}
	}
	return list
}

func snapshotOf(generation uint64, services ...*dataplane.Service) *dataplane.Snapshot {
	e := (&dataplane.Snapshot{Session: dataplane.Session{AgentID: "a", BootEpoch: 1}, Generation: generation, Completeness: dataplane.Exchanged}).Edit()
	for _, s := range services {
		e.Set(s)
	}
	return e.Done()
}

// BenchmarkSnapshot is the first snapshot of 10,000 services with 10 endpoints
// each.
func BenchmarkSnapshot(b *testing.B) {
	snap := snapshotOf(1, many(10_000, 10)...)
	delta := dataplane.Diff(&dataplane.Snapshot{}, snap, nil)
	for b.Loop() {
		p := configured(b, `{"listen": "127.0.0.1:0"}`)
		if _, err := p.Reconcile(b.Context(), snap, delta); err != nil {
			b.Fatal(err)
		}
		end(p)
	}
}

// BenchmarkOneEndpoint is one endpoint that changes among 10,000 services.
func BenchmarkOneEndpoint(b *testing.B) {
	services := many(10_000, 10)
	was := snapshotOf(1, services...)
	p := configured(b, `{"listen": "127.0.0.1:0"}`)
	defer end(p)
	if _, err := p.Reconcile(b.Context(), was, dataplane.Diff(&dataplane.Snapshot{}, was, nil)); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		svc := *services[i%len(services)]
		list := svc.Endpoints.Slice()
		list[0].State = dataplane.EndpointState(i % 2)
		list[1].Weight = uint16(1 + i%7)
		svc.Endpoints = dataplane.NewEndpoints(list...)
		edit := was.Edit()
		edit.Set(&svc)
		now := edit.Done()
		now.Generation++
		c, _ := dataplane.Compare(was.Service(svc.Key), &svc, nil)
		if _, err := p.Reconcile(b.Context(), now, dataplane.Delta{Changes: []dataplane.Change{c}}); err != nil {
			b.Fatal(err)
		}
		was = now
	}
}
