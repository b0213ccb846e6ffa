package iptables

import (
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// A UDP sender that does not pause keeps its entry in conntrack, and with it the
// endpoint that its first datagram was led to, or that it was refused. So entries
// that a change made wrong are deleted; those of endpoints that stay are not.

// reach is where datagrams to a frontend may go.
type reach struct {
	endpoints map[netip.AddrPort]bool // that the service has, draining ones too
	passes    bool                    // untouched: no endpoint takes new senders, and they are not refused
}

// allows reports whether a flow may go on.
func (r reach) allows(f host.Flow) bool {
	if !f.Translated() {
		return r.passes
	}
	return r.endpoints[f.Endpoint]
}

// deleteFlows deletes the entries that a change made wrong: one dump per family at
// most, and none if no frontend of UDP is concerned.
func deleteFlows(d dataplane.Delta) error {
	touched := touchedFrontends(d)
	var err error
	for _, f := range rules.Families() {
		mine := false
		for b := range touched {
			mine = mine || f.Of(b.Addr.Addr())
		}
		if !mine {
			continue
		}
		_, e := host.DeleteFlows(hostFamily(f), func(flow host.Flow) bool {
			r, ours := touched[flow.Frontend]
			return ours && !r.allows(flow)
		})
		err = errors.Join(err, e)
	}
	return err
}

// touchedFrontends are the frontends of UDP whose senders may have to go elsewhere.
func touchedFrontends(d dataplane.Delta) map[dataplane.Binding]reach {
	touched := make(map[dataplane.Binding]reach)
	for _, c := range d.Changes {
		if c.Old != nil {
			for _, f := range c.Old.Frontends {
				if f.Protocol == dataplane.UDP {
					touched[f.Binding()] = reach{passes: true} // unless it is still one, see below
				}
			}
		}
	}
	for _, c := range d.Changes {
		if c.New == nil {
			continue
		}
		var endpoints map[netip.AddrPort]bool
		usable := len(c.New.Usable()) > 0
		for _, f := range c.New.Frontends {
			if f.Protocol != dataplane.UDP {
				continue
			}
			if endpoints == nil {
				endpoints = addresses(c.New)
			}
			touched[f.Binding()] = reach{endpoints: endpoints, passes: !usable && !f.Refuses()}
		}
	}
	return touched
}

func addresses(svc *dataplane.Service) map[netip.AddrPort]bool {
	all := make(map[netip.AddrPort]bool, svc.Endpoints.Len())
	for e := range svc.Endpoints.All() {
		all[e.Addr], all[e.Foreign()] = true, true
	}
	return all
}
