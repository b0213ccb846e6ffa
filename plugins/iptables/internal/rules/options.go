package rules

import (
	"net/netip"
)

// Family is an IP version; each has a nat table of its own.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// Of reports whether a is an address of the family.
func (f Family) Of(a netip.Addr) bool { return a.IsValid() && a.Is4() == (f == IPv4) }

// String prints IPv4 or IPv6.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// bits is the length of an address.
func (f Family) bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// loopback is where a refused connection of this host is sent, to port 0.
func (f Family) loopback() netip.Addr {
	if f == IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// Mode says whose packets are led.
type Mode uint8

// The modes.
const (
	All       Mode = iota // of this host's sockets, and forwarded ones
	Forwarded             // forwarded ones only, beside a plane for the sockets
)

// Options are what rules depend on beside the services.
type Options struct {
	Mode     Mode
	Instance string // whose rules these are: see Tag

	// Pools are the prefixes that VIPs are given from, of either family. Nobody
	// else uses them, so one masquerade rule serves each; a frontend outside has
	// a rule of its own.
	Pools []netip.Prefix

	// RouteLocalnet says that net.ipv4.conf.all.route_localnet is 1 already, so
	// that packets from 127.0.0.1 may leave the host and others may be led to it.
	RouteLocalnet bool

	NoIPv6   bool // ip6tables does not work here
	Features Features
	Own      Own
}

// Features are what the binary and the kernel can do. Zero suits any binary since
// 1.6 that has the addrtype match.
type Features struct {
	// RandomFully says that MASQUERADE takes --random-fully (iptables 1.6.2),
	// with which two new connections do not pick one port at the same time.
	RandomFully bool
	// NoAddrType says that there is no addrtype match: then whatever leaves the
	// host is masqueraded, also where its source address would do.
	NoAddrType bool
}

// Own is the frontend by which a provider checks the data path of this host's
// sockets: a TCP address of 127.0.0.0/8 and its listener. The zero Own is none.
type Own struct {
	Frontend, Endpoint netip.AddrPort
}

// usable reports whether a family's OUTPUT chain has the frontend.
func (o Own) usable(f Family, m Mode) bool {
	return m == All && o.Frontend.IsValid() && o.Endpoint.IsValid() && f.Of(o.Frontend.Addr()) && f.Of(o.Endpoint.Addr())
}
