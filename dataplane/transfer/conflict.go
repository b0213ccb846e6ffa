package transfer

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
)

// claim is a Binding in 19 bytes: it is the key of a table with an entry for
// each frontend.
type claim [19]byte

func claimOf(a netip.AddrPort, p dataplane.Protocol) claim {
	var c claim
	ip := a.Addr().As16()
	copy(c[:], ip[:])
	binary.BigEndian.PutUint16(c[16:], a.Port())
	c[18] = byte(p)
	return c
}

func (c claim) port() uint16 { return binary.BigEndian.Uint16(c[16:]) }

// owners says who has a frontend.
type owners map[claim]*dataplane.Service

// portSet is a quick no: few endpoints have the port of a frontend.
type portSet [1 << 16 / 64]uint64

func (s *portSet) add(port uint16)      { s[port/64] |= 1 << (port % 64) }
func (s *portSet) has(port uint16) bool { return s[port/64]&(1<<(port%64)) != 0 }

func refuse(reason, format string, args ...any) *dataplane.Problem {
	return &dataplane.Problem{Status: dataplane.StatusRejected, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// protocols are those of the traffic that a service's endpoints take: those of
// its frontends; without any, it is a proxy that connects.
func protocols(svc *dataplane.Service) []dataplane.Protocol {
	var tcp, udp bool
	for _, f := range svc.Frontends {
		tcp, udp = tcp || f.Protocol == dataplane.TCP, udp || f.Protocol == dataplane.UDP
	}
	switch {
	case tcp && udp:
		return []dataplane.Protocol{dataplane.TCP, dataplane.UDP}
	case udp:
		return []dataplane.Protocol{dataplane.UDP}
	}
	return []dataplane.Protocol{dataplane.TCP}
}

// takes reports whether endpoints of a service take traffic of a protocol.
func takes(svc *dataplane.Service, p dataplane.Protocol) bool {
	for _, q := range protocols(svc) {
		if p == q {
			return true
		}
	}
	return false
}

// current reports whether svc is what its service is at now.
func (r *resolver) current(svc *dataplane.Service) bool {
	c := r.byKey[svc.Key]
	return c == nil || c.now() == svc
}

// holders yields the other services that have a frontend now.
func (r *resolver) holders(b claim, except dataplane.Key) iter.Seq[*dataplane.Service] {
	return func(yield func(*dataplane.Service) bool) {
		if svc := r.base[b]; svc != nil && svc.Key != except && r.current(svc) && !yield(svc) {
			return
		}
		for _, c := range r.claims[b] {
			if c.placed && c.key != except && !yield(c.want) {
				return
			}
		}
	}
}

// conflict returns why a placed candidate cannot stay beside the others: any
// conflict if strict, else only one in which it has to give way.
func (r *resolver) conflict(c *candidate, strict bool) *dataplane.Problem {
	for _, f := range c.want.Frontends {
		b := claimOf(f.Addr, f.Protocol)
		for o := range r.holders(b, c.key) {
			if strict || r.yieldsFrontend(c, o, b) {
				return refuse(dataplane.ReasonDuplicateFrontend, "frontend %v/%v belongs to service %s: give one of them another address", f.Addr, f.Protocol, o.Key)
			}
		}
		for _, o := range r.stands[f.Addr] {
			if o.Key != c.key && r.current(o) && takes(o, f.Protocol) && (strict || r.frontendYields(c, o, b, f.Addr)) {
				return refuse(dataplane.ReasonLoop, "frontend %v/%v is where an endpoint of service %s stands: connections to it would go in a circle; give the service another address", f.Addr, f.Protocol, o.Key)
			}
		}
	}
	takes := protocols(c.want)
	for e := range c.want.Endpoints.All() {
		if p := r.endpointConflict(c, e, e.Addr, takes, strict); p != nil {
			return p
		}
		if e.AddrForeign.IsValid() {
			if p := r.endpointConflict(c, e, e.AddrForeign, takes, strict); p != nil {
				return p
			}
		}
	}
	return nil
}

// endpointConflict is conflict for one address of an endpoint.
func (r *resolver) endpointConflict(c *candidate, e dataplane.Endpoint, at netip.AddrPort, takes []dataplane.Protocol, strict bool) *dataplane.Problem {
	if !r.ports.has(at.Port()) {
		return nil
	}
	for _, p := range takes {
		b := claimOf(at, p)
		for o := range r.holders(b, c.key) {
			if strict || r.endpointYields(c, o, b, at) {
				return refuse(dataplane.ReasonLoop, "endpoint %s is at %v, which is a frontend of service %s: connections would go in a circle; give the instance another address", name(e), at, o.Key)
			}
		}
	}
	return nil
}

// settled reports whether a service does not change, or fell back: everybody
// gives way to it.
func (r *resolver) settled(svc *dataplane.Service) bool {
	c := r.byKey[svc.Key]
	return c == nil || !c.placed
}

func (r *resolver) yieldsFrontend(c *candidate, o *dataplane.Service, b claim) bool {
	if r.settled(o) {
		return true
	}
	if had := r.base[b]; had != nil && (had.Key == c.key || had.Key == o.Key) {
		return had.Key == o.Key
	}
	return o.Compare(c.want) < 0
}

// endpointYields decides for a candidate with an endpoint at a frontend of o.
func (r *resolver) endpointYields(c *candidate, o *dataplane.Service, b claim, at netip.AddrPort) bool {
	if r.settled(o) {
		return true
	}
	return !r.frontendLoses(r.byKey[o.Key], c, b, at)
}

// frontendYields decides for a candidate with a frontend at an endpoint of o.
func (r *resolver) frontendYields(c *candidate, o *dataplane.Service, b claim, at netip.AddrPort) bool {
	if r.settled(o) {
		return true
	}
	return r.frontendLoses(c, r.byKey[o.Key], b, at)
}

func (r *resolver) frontendLoses(front, end *candidate, b claim, at netip.AddrPort) bool {
	if had := r.base[b]; had != nil && had.Key == front.key {
		return false
	}
	if end.was != nil && standsAt(end.was, at) {
		return true
	}
	return end.want.Compare(front.want) < 0
}

// stand notes which endpoints are at an address that is to be a frontend anew.
// It looks at every endpoint, and only if there is such an address.
func (r *resolver) stand() {
	r.stands = make(map[netip.AddrPort][]*dataplane.Service)
	var fresh portSet
	some := false
	for b := range r.claims {
		if r.fresh(b) {
			fresh.add(b.port())
			some = true
		}
	}
	if !some {
		return
	}
	note := func(svc *dataplane.Service, at netip.AddrPort) {
		if !fresh.has(at.Port()) || !r.fresh(claimOf(at, dataplane.TCP)) && !r.fresh(claimOf(at, dataplane.UDP)) {
			return
		}
		if there := r.stands[at]; len(there) == 0 || there[len(there)-1] != svc {
			r.stands[at] = append(there, svc)
		}
	}
	noteAll := func(svc *dataplane.Service) {
		for e := range svc.Endpoints.All() {
			note(svc, e.Addr)
			if e.AddrForeign.IsValid() {
				note(svc, e.AddrForeign)
			}
		}
	}
	for svc := range r.given.Services() {
		noteAll(svc)
	}
	for _, c := range r.cands {
		if c.want != nil && !c.hopeless {
			noteAll(c.want)
		}
	}
}

// fresh reports whether an address is to be a frontend of a service that does
// not have it.
func (r *resolver) fresh(b claim) bool {
	had := r.base[b]
	for _, c := range r.claims[b] {
		if had == nil || had.Key != c.key {
			return true
		}
	}
	return false
}

func standsAt(svc *dataplane.Service, at netip.AddrPort) bool {
	for e := range svc.Endpoints.All() {
		if e.Addr == at || e.Foreign() == at {
			return true
		}
	}
	return false
}

func name(e dataplane.Endpoint) string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprintf("%016x", e.ID)
}
