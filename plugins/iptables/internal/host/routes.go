package host

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// # Routes to VIPs
//
// A packet of this host is routed before the nat table sees it: without any route to
// the VIP, connect fails. Where there is none we make one that nobody else uses:
//
//	rule 32900: iif lo lookup TABLE      after main and default: asked only when those know nothing,
//	                                     and only for packets that this host itself sends
//	TABLE: VIP/32 dev lo proto 70        unicast: the VIP becomes no local address, so no listener
//	                                     of this host answers at it
//
// The source address is chosen as for any route without one: an address of another
// device of this host, so that answers from elsewhere find back. A host that has
// none but loopback's takes 127.0.0.1. What is sent to such a VIP and matches no
// rule comes back through lo, where a packet from an own address is dropped.
const (
	// RouteProtocol marks rules and routes as ours.
	RouteProtocol = 70
	rulePriority  = 32900
	// tablePrefix is the upper byte of our table numbers; the others are of the
	// instance.
	tablePrefix = 0x46
)

// Routes are the routes of one instance in one table.
type Routes struct{ Table uint32 }

// NewRoutes returns the table that an instance has by its tag, a hash.
func NewRoutes(tag uint32) Routes { return Routes{Table: tablePrefix<<24 | tag&0xffffff} }

// Reachable reports whether this host has a route to an address, ours or another. An
// error is that it could not be asked.
func Reachable(a netip.Addr) (bool, error) {
	routes, err := routeTo(a)
	return len(routes) > 0, err
}

// routeTo is what the kernel would take; none if it knows none.
func routeTo(a netip.Addr) ([]netlink.Route, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	switch {
	case err == nil:
		return routes, nil
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EINVAL):
		return nil, nil // none, unreachable, prohibit, blackhole
	}
	return nil, fmt.Errorf("host: the route to %v: %w", a, err)
}

// dataPlanes are the upper bytes of the tables of Fairlead's data planes: ours and,
// after it, those of others.
const dataPlanes = 10

// ReachableAlone reports whether the host would have a route to an address if it had no
// data plane: another one's goes when that does.
func ReachableAlone(a netip.Addr) (bool, error) {
	routes, err := routeTo(a)
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		prefix := uint32(r.Table) >> 24
		return prefix < tablePrefix || prefix >= tablePrefix+dataPlanes
	}), err
}

// Set makes the table hold just these VIPs, of both families, and says how many
// routes and rules it had to change.
func (r Routes) Set(vips []netip.Addr) (changes int, err error) {
	for _, f := range []Family{V4, V6} {
		var want []netip.Addr
		for _, a := range vips {
			if a.Is4() == (f == V4) {
				want = append(want, a)
			}
		}
		n, err := r.set(f, want)
		changes += n
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

func (r Routes) set(f Family, want []netip.Addr) (changes int, err error) {
	have, err := r.list(f)
	if err != nil {
		return 0, err
	}
	ruled, err := r.rules(f)
	if err != nil || len(want) == 0 && len(have) == 0 && len(ruled) == 0 {
		return 0, err
	}
	source, err := source(f)
	if err != nil {
		return 0, err
	}
	keep := make(map[netip.Addr]bool, len(want))
	for _, a := range want {
		keep[a] = true
	}
	for _, route := range have {
		if a, ok := netip.AddrFromSlice(route.Dst.IP); ok && keep[a.Unmap()] && route.Src.Equal(source) {
			delete(keep, a.Unmap())
		} else if ok && keep[a.Unmap()] {
			continue // replaced below
		} else if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, syscall.ESRCH) {
			return changes, fmt.Errorf("host: remove the route to %v: %w", route.Dst, err)
		} else {
			changes++
		}
	}
	for _, a := range want {
		if !keep[a] {
			continue
		}
		if err := netlink.RouteReplace(r.route(a, source)); err != nil {
			return changes, fmt.Errorf("host: add a route to %v: %w", a, err)
		}
		changes++
	}
	n, err := r.setRule(f, ruled, len(want) > 0)
	return changes + n, err
}

func (r Routes) route(a netip.Addr, source net.IP) *netlink.Route {
	return &netlink.Route{
		LinkIndex: loopback, Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Src: source,
		Table: int(r.Table), Protocol: RouteProtocol, Scope: cmp.Or(scopeOf(a), netlink.SCOPE_UNIVERSE),
	}
}

// loopback is the index of lo in every network namespace.
const loopback = 1

// scopeOf is link for IPv4, as the route has no gateway; IPv6 has no scopes.
func scopeOf(a netip.Addr) netlink.Scope {
	if a.Is4() {
		return netlink.SCOPE_LINK
	}
	return netlink.SCOPE_UNIVERSE
}

// setRule makes or removes the rule that leads to the table.
func (r Routes) setRule(f Family, have []netlink.Rule, want bool) (changes int, err error) {
	if want && len(have) > 0 {
		have = have[1:] // one is enough
	} else if want {
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table, rule.IifName, rule.Protocol = family(f), rulePriority, int(r.Table), "lo", RouteProtocol
		if err := netlink.RuleAdd(rule); err != nil {
			return 0, fmt.Errorf("host: add the %v rule %d that leads to the routes of VIPs: %w", f, rulePriority, err)
		}
		return 1, nil
	}
	for _, rule := range have {
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, syscall.ENOENT) {
			return changes, fmt.Errorf("host: remove the %v rule %d: %w", f, rulePriority, err)
		}
		changes++
	}
	return changes, nil
}

func (r Routes) list(f Family) ([]netlink.Route, error) {
	list, err := netlink.RouteListFiltered(family(f), &netlink.Route{Table: int(r.Table), Protocol: RouteProtocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host: the %v routes of table %d: %w", f, r.Table, err)
	}
	return slices.DeleteFunc(list, func(r netlink.Route) bool { return r.Dst == nil }), nil
}

func (r Routes) rules(f Family) ([]netlink.Rule, error) {
	all, err := ourRules(f)
	return slices.DeleteFunc(all, func(rule netlink.Rule) bool { return uint32(rule.Table) != r.Table }), err
}

// ourRules are those of all instances.
func ourRules(f Family) ([]netlink.Rule, error) {
	list, err := netlink.RuleList(family(f))
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP) {
		return nil, nil // no such family, or no rules, so none of ours
	}
	if err != nil {
		return nil, fmt.Errorf("host: the %v routing rules: %w", f, err)
	}
	return slices.DeleteFunc(list, func(rule netlink.Rule) bool {
		return rule.Protocol != RouteProtocol || uint32(rule.Table)>>24 != tablePrefix
	}), nil
}

// FindRoutes returns what instances have, whoever they are.
func FindRoutes() ([]Routes, error) {
	var found []Routes
	for _, f := range []Family{V4, V6} {
		rules, err := ourRules(f)
		if err != nil {
			return nil, err
		}
		for _, rule := range rules {
			found = append(found, Routes{Table: uint32(rule.Table)})
		}
		routes, err := netlink.RouteListFiltered(family(f), &netlink.Route{Protocol: RouteProtocol}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("host: the %v routes: %w", f, err)
		}
		for _, route := range routes {
			if uint32(route.Table)>>24 == tablePrefix {
				found = append(found, Routes{Table: uint32(route.Table)})
			}
		}
	}
	slices.SortFunc(found, func(a, b Routes) int { return cmp.Compare(a.Table, b.Table) })
	return slices.Compact(found), nil
}

// VIPs are those that the instance has routes to, IPv4 first.
func (r Routes) VIPs() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, f := range []Family{V4, V6} {
		routes, err := r.list(f)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			if a, ok := netip.AddrFromSlice(route.Dst.IP); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// Objects names what the instance has.
func (r Routes) Objects() ([]string, error) {
	var out []string
	for _, f := range []Family{V4, V6} {
		rules, err := r.rules(f)
		if err != nil {
			return nil, err
		}
		for range rules {
			out = append(out, fmt.Sprintf("%v routing rule %d to table %d", f, rulePriority, r.Table))
		}
		routes, err := r.list(f)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			out = append(out, fmt.Sprintf("route %v of table %d", route.Dst, r.Table))
		}
	}
	return out, nil
}

// source is what IPv4 packets to a VIP come from if no device but lo has an address:
// the kernel takes none of lo by itself. nil: it chooses.
func source(f Family) (net.IP, error) {
	if f == V6 {
		return nil, nil
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("host: the addresses of this host: %w", err)
	}
	for _, a := range addrs {
		if a.Scope == int(netlink.SCOPE_UNIVERSE) {
			return nil, nil
		}
	}
	return net.IPv4(127, 0, 0, 1).To4(), nil
}

func family(f Family) int {
	if f == V6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
