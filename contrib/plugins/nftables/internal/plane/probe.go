package plane

import (
	"context"
	"errors"
	"os"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/host"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// rights is the remedy for a lack of them.
const rights = "run the agent as root, or give it CAP_NET_ADMIN"

// ipv6 is the trial of all that IPv6 needs.
func ipv6() table.Trial {
	for _, t := range table.Trials() {
		if t.IPv6 {
			return t
		}
	}
	return table.Trial{}
}

// Probe tries what the provider does, in transactions that the kernel gives up. What
// comes after a required one that failed is not tried: it would fail for the same
// reason.
func (p *Provider) Probe(context.Context) (dataplane.Report, error) {
	report := dataplane.Report{Verdict: dataplane.Supported}
	add := func(c dataplane.Check, err error) {
		if err != nil {
			c.Reason = err.Error()
			if errors.Is(err, os.ErrPermission) {
				c.Remedy = rights
			}
			c.Result = dataplane.Degraded
			if c.Required {
				c.Result = dataplane.Unsupported
			}
		} else {
			c.Result, c.Remedy = dataplane.Supported, ""
		}
		report.Verdict = max(report.Verdict, c.Result)
		report.Checks = append(report.Checks, c)
	}
	for _, t := range table.Trials() {
		add(dataplane.Check{ID: t.ID, Required: !t.IPv6, Reason: t.Good, Remedy: t.Remedy}, t.Try())
		if report.Verdict == dataplane.Unsupported {
			return report, nil
		}
	}
	add(dataplane.Check{ID: "conntrack", Reason: "flows of datagrams can be forgotten", Remedy: "datagrams may go on to endpoints that are gone: use a kernel with CONFIG_NF_CT_NETLINK, or load module nf_conntrack_netlink"}, host.CanTrack())
	forwards := "net.ipv4.ip_forward is on: connections that this host forwards are led"
	if !host.Forwards() {
		forwards = "net.ipv4.ip_forward is off: connections from elsewhere are led to endpoints of this host only"
	}
	add(dataplane.Check{ID: "forwarding", Reason: forwards}, nil)
	return report, nil
}
