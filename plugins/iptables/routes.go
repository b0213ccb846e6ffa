package iptables

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// routes are the routes to VIPs that this host has no other to.
type routes struct {
	host host.Routes
	vips []netip.Addr          // of the snapshot, in order, for families that need routes
	need map[rules.Family]bool // a VIP of the family had no route: once so, all keep theirs
	set  []netip.Addr          // that the kernel holds
}

// newRoutes returns those of an instance, with what a process before left of them: a
// family that needed routes still does.
func newRoutes(instance string) (routes, error) {
	r := routes{host: host.NewRoutes(routeTag(instance)), need: make(map[rules.Family]bool)}
	var err error
	r.set, err = r.host.VIPs()
	for _, a := range r.set {
		r.need[familyOf(a)] = true
	}
	return r, err
}

func familyOf(a netip.Addr) rules.Family {
	if a.Is4() {
		return rules.IPv4
	}
	return rules.IPv6
}

// routeTag is what tells the routing tables of instances apart.
func routeTag(instance string) uint32 {
	sum := sha256.Sum256([]byte(instance))
	return binary.BigEndian.Uint32(sum[:])
}

// add makes the routes that next needs, beside those that are there.
func (r *routes) add(next *dataplane.Snapshot, s settings, o rules.Options) (changes int, err error) {
	r.vips = nil
	if s.Routes == "off" || s.mode() == rules.Forwarded {
		return 0, nil // forwarded packets are led before they are routed
	}
	byFamily := make(map[rules.Family][]netip.Addr)
	for svc := range next.Services() {
		for _, f := range svc.Frontends {
			if a := f.Addr.Addr(); f.Kind == dataplane.FrontendVIP && !a.IsLoopback() && !(a.Is6() && o.NoIPv6) {
				byFamily[familyOf(a)] = append(byFamily[familyOf(a)], a)
			}
		}
	}
	for f, vips := range byFamily {
		slices.SortFunc(vips, netip.Addr.Compare)
		vips = slices.Compact(vips)
		if !r.need[f] {
			if r.need[f], err = unreachable(vips); err != nil {
				return 0, err
			}
		}
		if r.need[f] {
			r.vips = append(r.vips, vips...)
		}
	}
	slices.SortFunc(r.vips, netip.Addr.Compare)
	all := append(slices.Clone(r.set), r.vips...)
	slices.SortFunc(all, netip.Addr.Compare)
	return r.put(slices.Compact(all))
}

// trim removes the routes that nobody needs any more.
func (r *routes) trim() (changes int, err error) { return r.put(r.vips) }

// keep makes the routes anew that somebody removed, and changes their source address
// if this host has got another. It asks for the route to one VIP of each family, and
// compares all only if that is missing, or if it is told to.
func (r *routes) keep(whole bool) (changes int, err error) {
	if len(r.set) == 0 {
		return 0, nil
	}
	if !whole {
		first, last := r.set[0], r.set[len(r.set)-1] // one of each family, if there are two
		for _, a := range []netip.Addr{first, last} {
			ok, err := host.Reachable(a)
			if err != nil {
				return 0, err
			}
			whole = whole || !ok
		}
	}
	if !whole {
		return 0, nil
	}
	return r.host.Set(r.set)
}

func (r *routes) put(vips []netip.Addr) (changes int, err error) {
	if slices.Equal(vips, r.set) {
		return 0, nil
	}
	if changes, err = r.host.Set(vips); err == nil {
		r.set = slices.Clone(vips)
	}
	return changes, err
}

// unreachable reports whether this host has no route of its own to one of the addresses.
// That of another data plane does not count, as it may be about to leave. One of
// each block of 256 is asked for: routes to VIPs come by prefixes.
func unreachable(vips []netip.Addr) (bool, error) {
	last := netip.Prefix{}
	for _, a := range vips {
		if last.IsValid() && last.Contains(a) {
			continue
		}
		last, _ = a.Prefix(a.BitLen() - 8) // in range
		if ok, err := host.ReachableAlone(a); err != nil || !ok {
			return true, err
		}
	}
	return false, nil
}
