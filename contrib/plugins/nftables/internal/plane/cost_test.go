package plane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/dataplane"
)

// many is a service out of 65,536, with some endpoints.
func many(n, endpoints int) *dataplane.Service {
	ip := func(a, b byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, byte(n >> 8), byte(n)}) }
	s := &dataplane.Service{
		Key:       dataplane.Key{Namespace: "default", Name: fmt.Sprintf("web-%d", n)},
		Frontends: []dataplane.Frontend{{Addr: netip.AddrPortFrom(ip(10, 201), 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
	}
	var list []dataplane.Endpoint
	for e := range endpoints {
		list = append(list, dataplane.Endpoint{ID: uint64(e + 1), Addr: netip.AddrPortFrom(ip(10, 202), uint16(8000+e)), Weight: 1})
	}
	s.Endpoints = dataplane.NewEndpoints(list...)
	return s
}

// TestOneChangeAmongManyServices: at 10,000 services of five endpoints one change takes
// at most 20 ms. The least of many counts: the machine may be busy.
func TestOneChangeAmongManyServices(t *testing.T) {
	const services, endpoints, bound = 10_000, 5, 20 * time.Millisecond
	a := start(t, "cost", `{"check_interval": "1h"}`)
	_, all := a.timed(func(e *dataplane.Editor) {
		for n := range services {
			e.Set(many(n, endpoints))
		}
	})
	t.Logf("all of %d services: %v", services, all)
	var took []time.Duration
	for i := 0; i < max(21, netspace.N(200)) || i < 500 && slices.Min(took) > bound; i++ {
		_, one := a.timed(func(e *dataplane.Editor) { e.Set(many(i*37%services, endpoints-1)) })
		took = append(took, one)
	}
	slices.Sort(took)
	t.Logf("one change: %v at least, %v median, %v at most", took[0], took[len(took)/2], took[len(took)-1])
	if took[0] > bound {
		t.Errorf("one change took %v at least, want %v", took[0], bound)
	}
	begin := time.Now()
	p := New()
	if _, err := p.Configure(t.Context(), dataplane.Config{InstanceID: "cost", JSON: []byte(`{"check_interval": "1h"}`)}); err != nil {
		t.Fatal(err)
	}
	t.Logf("to find all of it again: %v", time.Since(begin))
	if s, _ := p.State(t.Context()); s.Generation != a.snapshot.Generation {
		t.Errorf("found generation %d, want %d", s.Generation, a.snapshot.Generation)
	}
	if err := p.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
		t.Error(err)
	}
}
