package host

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
)

// Allowed are addresses that datagrams to a frontend may still go to.
type Allowed map[dataplane.Binding]map[netip.AddrPort]bool

// FlushUDP forgets the flows to these frontends that go elsewhere. A socket that goes
// on sending is led anew then, instead of to an endpoint that is gone, or to none.
func FlushUDP(allowed Allowed) (int, error) {
	total := 0
	for i, f := range families() {
		if !involves(allowed, i) {
			continue
		}
		filter := filterFunc(func(flow *netlink.ConntrackFlow) bool {
			to, of := binding(flow)
			ends, ours := allowed[to]
			return of && ours && to.Protocol == dataplane.UDP && !ends[destination(flow)]
		})
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(f), filter)
		total += int(n)
		if err != nil && !missing(err) {
			return total, fmt.Errorf("connection tracking of %s: %w", familyName(i), err)
		}
	}
	return total, nil
}

func involves(allowed Allowed, family int) bool {
	for b := range allowed {
		if familyOf(b.Addr.Addr()) == family {
			return true
		}
	}
	return false
}

// Live finds which of some frontends connections were led from that go on.
func Live(frontends []dataplane.Binding) (map[dataplane.Binding]int, error) {
	ours := make(map[dataplane.Binding]bool, len(frontends))
	for _, f := range frontends {
		ours[f] = true
	}
	live := make(map[dataplane.Binding]int)
	if len(ours) == 0 {
		return live, nil
	}
	for i, f := range families() {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(f))
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("connection tracking of %s: %w", familyName(i), err)
		}
		for _, flow := range flows {
			if to, of := binding(flow); of && ours[to] && destination(flow) != to.Addr {
				live[to]++
			}
		}
	}
	return live, nil
}

// CanTrack says whether connection tracking answers.
func CanTrack() error {
	_, err := Live([]dataplane.Binding{{}})
	return err
}

type filterFunc func(*netlink.ConntrackFlow) bool

func (f filterFunc) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

// binding is what a flow was made to.
func binding(flow *netlink.ConntrackFlow) (dataplane.Binding, bool) {
	b := dataplane.Binding{Addr: addrPort(flow.Forward.DstIP, flow.Forward.DstPort), Protocol: dataplane.TCP}
	switch flow.Forward.Protocol {
	case syscall.IPPROTO_TCP:
	case syscall.IPPROTO_UDP:
		b.Protocol = dataplane.UDP
	default:
		return b, false
	}
	return b, true
}

// destination is where a flow was led.
func destination(flow *netlink.ConntrackFlow) netip.AddrPort {
	return addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort)
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
