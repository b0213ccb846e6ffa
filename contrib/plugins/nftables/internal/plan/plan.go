package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Side is whose packets an entry is for.
type Side uint8

// The sides. What stands under Local counts for packets from elsewhere too, unless
// the same address stands under Foreign.
const (
	Local   Side = iota // of this host
	Foreign             // from elsewhere, by the endpoints' foreign addresses
)

// Place is one address that is captured.
type Place struct {
	dataplane.Binding
	Side Side
}

// Entry is what stands at a place. It is immutable.
type Entry struct {
	Service   dataplane.Key
	Endpoints []Endpoint // in the order of their ids; none: connections are refused
	Slots     []uint64   // ids of Endpoints; each slot is chosen equally often
	Sticky    time.Duration
}

// Endpoint is where connections go.
type Endpoint struct {
	ID   uint64
	Addr netip.AddrPort
}

// Equal reports whether two entries are the same.
func (e *Entry) Equal(o *Entry) bool {
	return e == o || e != nil && o != nil && e.Service == o.Service && e.Sticky == o.Sticky &&
		slices.Equal(e.Endpoints, o.Endpoints) && slices.Equal(e.Slots, o.Slots)
}

// Host is what plans depend on beside the service.
type Host struct {
	Forwarded bool // packets from elsewhere only
	Loopback  bool // route_localnet is on, so 127.0.0.0/8 can be led elsewhere
	NoIPv6    bool
}

// Plan is a service compiled.
type Plan struct {
	Entries map[Place]*Entry
	Problem *dataplane.Problem // nil: as asked. Only with StatusPartial are there entries
}

// MaxKeyBytes bounds "namespace/name", which the kernel keeps as a comment.
const MaxKeyBytes = 240

// Compile works out what a service needs. The service passed Check.
func Compile(svc *dataplane.Service, host Host) Plan {
	if n := len(svc.Key.String()); n > MaxKeyBytes {
		return refuse(dataplane.StatusUnsupported, dataplane.ReasonLimit,
			"the name takes %d bytes, %d at most in nftables: choose a shorter one", n, MaxKeyBytes)
	}
	c := compiler{svc: svc, host: host, usable: svc.Usable(), entries: make(map[Place]*Entry)}
	served := 0
	for _, f := range svc.Frontends {
		if why := c.cannot(f.Addr.Addr()); why != "" {
			c.lacks(why)
			continue
		}
		served++
		c.frontend(f)
	}
	if served == 0 && len(svc.Frontends) > 0 {
		return refuse(dataplane.StatusUnsupported, dataplane.ReasonUnsupported, "%s", c.missing)
	}
	if svc.Balance > dataplane.BalanceRandom {
		c.lacks(fmt.Sprintf("balance %v is not available in nftables, random is used: choose it, or use the HTTP proxy", svc.Balance))
	}
	p := Plan{Entries: c.entries}
	if c.missing != "" {
		p.Problem = &dataplane.Problem{Status: dataplane.StatusPartial, Reason: dataplane.ReasonUnsupported, Message: c.missing}
	}
	return p
}

func refuse(status dataplane.Status, reason, format string, args ...any) Plan {
	return Plan{Problem: &dataplane.Problem{Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

type compiler struct {
	svc     *dataplane.Service
	host    Host
	usable  []dataplane.Endpoint
	entries map[Place]*Entry
	missing string // the first thing that is
}

func (c *compiler) lacks(what string) { c.missing = cmp.Or(c.missing, what) }

// cannot says why a frontend cannot be captured; "" if it can.
func (c *compiler) cannot(a netip.Addr) string {
	switch {
	case a.Is6() && c.host.NoIPv6:
		return fmt.Sprintf("frontend %v: nftables has no NAT for IPv6 on this kernel: load nf_tables with IPv6", a)
	case a.IsLoopback() && (a.Is6() || !c.host.Loopback):
		return fmt.Sprintf("frontend %v: NAT cannot lead a loopback address to other hosts: use the ebpf data plane, or a service address", a)
	}
	return ""
}

func (c *compiler) frontend(f dataplane.Frontend) {
	local := func(e dataplane.Endpoint) netip.AddrPort { return e.Addr }
	if c.host.Forwarded {
		c.entry(Place{f.Binding(), Local}, f, dataplane.Endpoint.Foreign)
		return
	}
	c.entry(Place{f.Binding(), Local}, f, local)
	if slices.ContainsFunc(c.usable, func(e dataplane.Endpoint) bool { return e.Foreign() != e.Addr || c.homebound(e.Foreign()) }) {
		c.entry(Place{f.Binding(), Foreign}, f, dataplane.Endpoint.Foreign)
	}
}

// homebound reports whether packets from elsewhere cannot be led to a.
func (c *compiler) homebound(a netip.AddrPort) bool {
	return a.Addr().IsLoopback() && (a.Addr().Is6() || !c.host.Loopback)
}

// entry adds what stands at a place, which may be nothing.
func (c *compiler) entry(at Place, f dataplane.Frontend, addr func(dataplane.Endpoint) netip.AddrPort) {
	e := &Entry{Service: c.svc.Key}
	var weights []uint16
	for _, u := range c.usable {
		a := addr(u)
		if a.Addr().Is4() != f.Addr.Addr().Is4() {
			c.lacks(fmt.Sprintf("frontend %v cannot be led to %v, which is of the other IP version: give the service a frontend of each", f.Addr, a))
			continue
		}
		if (at.Side == Foreign || c.host.Forwarded) && c.homebound(a) {
			continue
		}
		e.Endpoints = append(e.Endpoints, Endpoint{ID: u.ID, Addr: a})
		weights = append(weights, u.Weight)
	}
	if len(e.Endpoints) == 0 {
		if f.Refuses() || at.Side == Foreign { // which would fall through to the local one
			c.entries[at] = e
		}
		return
	}
	for i, n := range Share(weights) {
		for range n {
			e.Slots = append(e.Slots, e.Endpoints[i].ID)
		}
	}
	if c.svc.Affinity.ByClient {
		e.Sticky = max(c.svc.Affinity.TTL, time.Second)
	}
	c.entries[at] = e
}

// Endpoint returns that of an id.
func (e *Entry) Endpoint(id uint64) (Endpoint, bool) {
	for _, ep := range e.Endpoints {
		if ep.ID == id {
			return ep, true
		}
	}
	return Endpoint{}, false
}

// Sort puts the endpoints into their order.
func (e *Entry) Sort() {
	slices.SortFunc(e.Endpoints, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
}

// Merge adds the endpoints of what a former process left, except those of which its
// service says something now.
func (e *Entry) Merge(old *Entry, said func(id uint64) bool) *Entry {
	if old == nil || old.Service != e.Service {
		return e
	}
	var kept []Endpoint
	for _, o := range old.Endpoints {
		if !said(o.ID) {
			kept = append(kept, o)
		}
	}
	if len(kept) == 0 {
		return e
	}
	m := *e
	m.Endpoints = append(slices.Clone(e.Endpoints), kept...)
	m.Sort()
	m.Slots = slices.Clone(e.Slots)
	for _, id := range old.Slots {
		if slices.ContainsFunc(kept, func(k Endpoint) bool { return k.ID == id }) {
			m.Slots = append(m.Slots, id)
		}
	}
	return &m
}
