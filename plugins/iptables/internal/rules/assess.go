package rules

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
)

// Assess says what of a service cannot be done here: nil for nothing,
// StatusPartial for a service that works with less than it asks for, and
// StatusUnsupported for one that Build leaves as it was. It looks at both families.
func Assess(svc *dataplane.Service, o Options) *dataplane.Problem {
	served, left := 0, (*dataplane.Problem)(nil)
	for _, f := range svc.Frontends {
		if p := o.refuses(f.Addr); p != nil {
			left = p
		} else {
			served++
		}
	}
	switch {
	case left != nil && served == 0:
		return left
	case left != nil:
		left.Status = dataplane.StatusPartial
		return left
	}
	switch svc.Balance {
	case dataplane.BalanceDefault, dataplane.BalanceRandom:
	default:
		return partial("balance %v is asked for, random by weight is what a connection gets", svc.Balance)
	}
	if svc.Affinity.ByClient && svc.Affinity.TTL > maxAffinity {
		return partial("affinity of %v is asked for, %v is the longest that the kernel counts", svc.Affinity.TTL, maxAffinity)
	}
	return o.assessEndpoints(svc)
}

// refuses says why a frontend cannot be captured.
func (o Options) refuses(f netip.AddrPort) *dataplane.Problem {
	switch a := f.Addr(); {
	case a.Is6() && o.NoIPv6:
		return unsupported("frontend %v needs ip6tables, which does not work here: `fairlead plugin explain` says why", f)
	case !a.IsLoopback() || o.Mode == Forwarded: // no forwarded packet goes to a loopback address, so none is missed
		return nil
	case a.Is6():
		return unsupported("frontend %v is a loopback address, from which no IPv6 packet can be led off the host: use an address of the host, or the ebpf data plane", f)
	case !o.RouteLocalnet:
		return unsupported("frontend %v is a loopback address, from which packets may leave the host only with net.ipv4.conf.all.route_localnet = 1: use an address of the host or the ebpf data plane, or set it if you know what it exposes", f)
	}
	return nil
}

// assessEndpoints says why none of the endpoints can be reached through any of the
// frontends.
func (o Options) assessEndpoints(svc *dataplane.Service) *dataplane.Problem {
	usable := svc.Usable()
	if len(svc.Frontends) == 0 || len(usable) == 0 {
		return nil
	}
	sameFamily := false
	for _, f := range Families() {
		if !needs(svc, f) {
			continue
		}
		for _, e := range usable {
			if o.Mode == All && f.Of(e.Addr.Addr()) {
				return nil
			}
			sameFamily = sameFamily || f.Of(e.Foreign().Addr())
			if o.reachable(f, pre, e).IsValid() {
				return nil
			}
		}
	}
	if sameFamily {
		return partial("none of %d endpoints has an address that forwarded packets can be led to: give the instances a host_port or an address that is not of the loopback device", len(usable))
	}
	return partial("none of %d endpoints has an address of a frontend's family: a packet of one family cannot be led to another", len(usable))
}

// reachable is the address by which packets of a hook reach an endpoint; zero if
// there is none of the family. A forwarded packet that is led to a loopback address
// is dropped unless the kernel was told otherwise, for IPv6 always.
func (o Options) reachable(f Family, h hook, e dataplane.Endpoint) netip.AddrPort {
	addr := e.Addr
	if h == pre {
		addr = e.Foreign()
		if addr.Addr().IsLoopback() && (f == IPv6 || !o.RouteLocalnet) {
			return netip.AddrPort{}
		}
	}
	if !f.Of(addr.Addr()) {
		return netip.AddrPort{}
	}
	return addr
}

// needs reports whether a service has a frontend of the family.
func needs(svc *dataplane.Service, f Family) bool {
	for _, frontend := range svc.Frontends {
		if f.Of(frontend.Addr.Addr()) {
			return true
		}
	}
	return false
}

func partial(format string, args ...any) *dataplane.Problem {
	return &dataplane.Problem{Status: dataplane.StatusPartial, Reason: dataplane.ReasonUnsupported, Message: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) *dataplane.Problem {
	p := partial(format, args...)
	p.Status = dataplane.StatusUnsupported
	return p
}
