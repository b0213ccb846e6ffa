package host

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// What marks routes and rules as ours.
const (
	protocol     = 71
	rulePriority = 32901 // after main and default
	tablePrefix  = 0x47
	loopback     = 1 // index of lo in every network namespace
)

// Routes are one instance's, in a routing table of its own. A packet of this host is
// routed before nftables sees it, so connect fails where there is no route. The
// table is asked last, for packets of this host only, and leads to lo by unicast: no
// address becomes local, so nothing that listens on this host answers at it.
type Routes struct {
	table uint32
	have  map[netip.Addr]bool // nil: not known
	ruled [2]bool             // by family
}

// NewRoutes returns those of an instance, named by the hexadecimal end of its tag.
func NewRoutes(tag string) *Routes {
	b, _ := hex.DecodeString(tag[strings.LastIndexByte(tag, '-')+1:])
	var n [4]byte
	copy(n[1:], b)
	return &Routes{table: tablePrefix<<24 | binary.BigEndian.Uint32(n[:])}
}

const familyCount = 2 // IPv4, IPv6

func families() [familyCount]int { return [familyCount]int{netlink.FAMILY_V4, netlink.FAMILY_V6} }

func familyName(i int) string { return [familyCount]string{"IPv4", "IPv6"}[i] }

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Set makes the routes those to want, and says how many were added and removed.
func (r *Routes) Set(want map[netip.Addr]bool) (int, error) {
	if r.have == nil {
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	ops := 0
	var h *netlink.Handle
	var source net.IP
	for a := range want {
		if r.have[a] {
			continue
		}
		if h == nil {
			var err error
			if h, err = netlink.NewHandle(); err != nil {
				return ops, fmt.Errorf("routes: %w", err)
			}
			defer h.Close()
			if source, err = onlyAddress(h); err != nil {
				return ops, err
			}
		}
		route := r.route(a)
		if a.Is4() {
			route.Src = source
		}
		if err := h.RouteReplace(route); err != nil {
			r.have = nil
			return ops, fmt.Errorf("route to %v: %w", a, err)
		}
		r.have[a] = true
		ops++
	}
	for a := range r.have {
		if want[a] {
			continue
		}
		if err := netlink.RouteDel(r.route(a)); err != nil && !errors.Is(err, syscall.ESRCH) {
			r.have = nil
			return ops, fmt.Errorf("route to %v: %w", a, err)
		}
		delete(r.have, a)
		ops++
	}
	n, err := r.setRules()
	return ops + n, err
}

// Recheck reads anew at the next Set what is there.
func (r *Routes) Recheck() { r.have = nil }

func (r *Routes) setRules() (ops int, err error) {
	var needed [2]bool
	for a := range r.have {
		needed[familyOf(a)] = true
	}
	for i, needs := range needed {
		if needs == r.ruled[i] {
			continue
		}
		if err := r.setRule(i, needs); err != nil {
			return ops, err
		}
		r.ruled[i] = needs
		ops++
	}
	return ops, nil
}

func (r *Routes) setRule(family int, want bool) error {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table, rule.IifName, rule.Protocol = families()[family], rulePriority, int(r.table), "lo", protocol
	change := netlink.RuleDel
	if want {
		change = netlink.RuleAdd
	}
	if err := change(rule); err != nil {
		return fmt.Errorf("%s rule %d that leads to the routes of services: %w", familyName(family), rulePriority, err)
	}
	return nil
}

func (r *Routes) route(a netip.Addr) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: loopback, Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Table: int(r.table), Protocol: protocol,
	}
	if a.Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

// onlyAddress is what IPv4 packets to services come from where no device but lo has
// an address: the kernel takes none of lo by itself. Nil: it chooses.
func onlyAddress(h *netlink.Handle) (net.IP, error) {
	list, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	for _, a := range list {
		if !a.IP.IsLoopback() {
			return nil, nil
		}
	}
	return net.IPv4(127, 0, 0, 1), nil
}

func (r *Routes) load() error {
	all, err := list()
	if err != nil {
		return err
	}
	have, ruled := make(map[netip.Addr]bool), [2]bool{}
	for _, o := range all {
		switch {
		case o.table != r.table:
		case o.rule != nil:
			ruled[o.family] = true
		default:
			if a, ok := netip.AddrFromSlice(o.route.Dst.IP); ok {
				have[a.Unmap()] = true
			}
		}
	}
	r.have, r.ruled = have, ruled
	return nil
}

// object is a route or a rule of ours.
type object struct {
	family int
	table  uint32
	rule   *netlink.Rule // nil: it is route
	route  netlink.Route
}

// list reads those of all instances.
func list() ([]object, error) {
	var all []object
	for i, f := range families() {
		rules, err := netlink.RuleList(f)
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s routing rules: %w", familyName(i), err)
		}
		for _, rule := range rules {
			if rule.Protocol == protocol && rule.Table>>24 == tablePrefix {
				all = append(all, object{family: i, table: uint32(rule.Table), rule: &rule})
			}
		}
		routes, err := netlink.RouteListFiltered(f, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil && !missing(err) {
			return nil, fmt.Errorf("%s routes: %w", familyName(i), err)
		}
		for _, route := range routes {
			if route.Table>>24 == tablePrefix && route.Dst != nil {
				all = append(all, object{family: i, table: uint32(route.Table), route: route})
			}
		}
	}
	return all, nil
}

// missing reports whether a kernel lacks a family, or rules.
func missing(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP)
}

// Left is what is there of the routes of one instance.
type Left struct {
	Table   uint32
	objects []object
}

// String names it for people.
func (l Left) String() string {
	return fmt.Sprintf("routing table %d, with %d routes and rules", l.Table, len(l.objects))
}

// Of reports whether it is that of an instance.
func (l Left) Of(tag string) bool { return NewRoutes(tag).table == l.Table }

// FindRoutes lists what instances left.
func FindRoutes() ([]Left, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	var found []Left
	at := make(map[uint32]int)
	for _, o := range all {
		i, there := at[o.table]
		if !there {
			i = len(found)
			at[o.table], found = i, append(found, Left{Table: o.table})
		}
		found[i].objects = append(found[i].objects, o)
	}
	return found, nil
}

// Remove removes it.
func (l Left) Remove() error {
	var errs error
	for _, o := range l.objects {
		var err error
		if o.rule != nil {
			err = netlink.RuleDel(o.rule)
		} else {
			err = netlink.RouteDel(&o.route)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.ENOENT) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}
