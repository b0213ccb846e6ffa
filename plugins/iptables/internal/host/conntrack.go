package host

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
)

// Flow is one entry of conntrack.
type Flow struct {
	Frontend dataplane.Binding // where it was sent
	Endpoint netip.AddrPort    // where it goes; the frontend itself if nobody led it elsewhere
}

// Translated reports whether the flow was led elsewhere. What is refused was: to
// port 0.
func (f Flow) Translated() bool { return f.Frontend.Addr != f.Endpoint }

// filter lets a function choose entries.
type filter func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f filter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

// DeleteFlows deletes the UDP entries of a family that match, at the cost of one
// dump. Entries of TCP are never touched.
func DeleteFlows(f Family, match func(Flow) bool) (deleted int, err error) {
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family(f)), filter(func(c *netlink.ConntrackFlow) bool {
		flow, ok := read(c)
		return ok && flow.Frontend.Protocol == dataplane.UDP && match(flow)
	}))
	if err != nil {
		return int(n), fmt.Errorf("host: delete %v UDP entries of conntrack: %w", f, err)
	}
	return int(n), nil
}

// CountFlows counts the entries of a family that match.
func CountFlows(f Family, match func(Flow) bool) (int, error) {
	list, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family(f)))
	if err != nil {
		return 0, fmt.Errorf("host: the %v entries of conntrack: %w", f, err)
	}
	n := 0
	for _, c := range list {
		if flow, ok := read(c); ok && match(flow) {
			n++
		}
	}
	return n, nil
}

// read reads an entry; false if it is of a protocol that we do not lead.
func read(c *netlink.ConntrackFlow) (Flow, bool) {
	var p dataplane.Protocol
	switch c.Forward.Protocol {
	case syscall.IPPROTO_TCP:
		p = dataplane.TCP
	case syscall.IPPROTO_UDP:
		p = dataplane.UDP
	default:
		return Flow{}, false
	}
	to, ok := netip.AddrFromSlice(c.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(c.Reverse.SrcIP)
	if !ok || !ok2 {
		return Flow{}, false
	}
	return Flow{
		Frontend: dataplane.Binding{Addr: netip.AddrPortFrom(to.Unmap(), c.Forward.DstPort), Protocol: p},
		Endpoint: netip.AddrPortFrom(from.Unmap(), c.Reverse.SrcPort),
	}, true
}
