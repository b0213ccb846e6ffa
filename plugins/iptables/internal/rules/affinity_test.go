package rules

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// clients opens connections of many clients and returns where each was led.
type clients struct {
	t    *testing.T
	k    *kernel
	plan *Plan
	r    *rand.Rand
	now  time.Time
	recents
}

func (c *clients) be(svc *dataplane.Service) {
	c.t.Helper()
	next := Build(IPv4, slices.Values([]*dataplane.Service{svc}), fleetOptions(), c.plan)
	if c.plan == nil {
		apply(c.t, c.k, Repair(must(Parse(nil)), next))
	} else {
		apply(c.t, c.k, Restore(c.plan, next))
	}
	c.plan = next
	c.k.forget(c.recents)
}

// connect is by the frontend and the hook of a number, which must not matter.
func (c *clients) connect(svc *dataplane.Service, client byte, by int) netip.AddrPort {
	f := svc.Frontends[by%len(svc.Frontends)]
	way := c.k.trace(packet{
		hook: hook(by % 2), from: netip.AddrFrom4([4]byte{10, 1, 0, client}), to: f.Binding(),
		draw: func() uint32 { return c.r.Uint32() >> 1 }, now: c.now, lists: c.recents,
	})[0]
	if way.verdict != "DNAT" {
		c.t.Fatalf("client %d is not led: %+v", client, way)
	}
	return way.addr
}

// TestAffinity: a client stays with its endpoint while it comes within the time, by
// whatever frontend, also when others come and go; it leaves with the endpoint.
func TestAffinity(t *testing.T) {
	const ttl = 10 * time.Second
	svc := *plain(1, netip.MustParseAddrPort("10.200.0.1:80"), 12)
	svc.Affinity = dataplane.Affinity{ByClient: true, TTL: ttl}
	svc.Frontends = append(svc.Frontends, dataplane.Frontend{Addr: netip.MustParseAddrPort("10.200.0.1:53"), Protocol: dataplane.UDP, Kind: dataplane.FrontendVIP})
	c := &clients{t: t, k: newKernel(), r: rand.New(rand.NewPCG(8, 9)), now: time.Unix(1e9, 0), recents: make(recents)}
	c.be(&svc)
	first, used := make(map[byte]netip.AddrPort), make(map[netip.AddrPort]bool)
	for client := range byte(60) {
		first[client] = c.connect(&svc, client, 0)
		used[first[client]] = true
	}
	if len(used) < 6 {
		t.Fatalf("60 clients are at %d endpoints of 12", len(used))
	}
	for i := range 8 { // each time begins it anew
		c.now = c.now.Add(ttl - time.Second)
		for client, at := range first {
			if got := c.connect(&svc, client, i); got != at {
				t.Fatalf("after %v client %d moved from %v to %v", c.now, client, at, got)
			}
		}
	}

	list := svc.Endpoints.Slice()
	gone := first[0]
	fewer := svc
	fewer.Endpoints = dataplane.NewEndpoints(slices.DeleteFunc(list, func(e dataplane.Endpoint) bool { return e.Addr == gone })...)
	c.be(&fewer)
	for client, at := range first {
		got := c.connect(&fewer, client, 0)
		if moved := got != at; moved != (at == gone) {
			t.Fatalf("client %d of %v is at %v now that %v is gone", client, at, got, gone)
		}
		first[client] = got
	}
	c.be(&svc) // it is back, and knows nobody
	for client, at := range first {
		if got := c.connect(&svc, client, 1); got != at {
			t.Fatalf("client %d moved from %v to %v, which came back", client, at, got)
		}
	}

	c.now = c.now.Add(ttl + time.Second)
	moved := 0
	for client, at := range first {
		if c.connect(&svc, client, 0) != at {
			moved++
		}
	}
	if moved < 30 { // of 60, each has a chance of 11 in 12
		t.Errorf("after the time %d of 60 clients moved", moved)
	}
}
