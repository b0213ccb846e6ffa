package host

import (
	"os"
	"strings"
)

// Sysctl reads a setting of the kernel, "" if it has none of this name. Nothing
// here writes one.
func Sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// RouteLocalnet reports whether packets to loopback addresses may be led elsewhere,
// and from elsewhere: frontends on 127.0.0.0/8 need it.
func RouteLocalnet() bool { return Sysctl("net/ipv4/conf/all/route_localnet") == "1" }

// Forwards reports whether the host forwards packets of a family.
func Forwards(f Family) bool {
	if f == V6 {
		return Sysctl("net/ipv6/conf/all/forwarding") == "1"
	}
	return Sysctl("net/ipv4/ip_forward") == "1"
}

// StrictPathFilter reports whether packets are dropped whose source would be
// answered through another device.
func StrictPathFilter() bool { return Sysctl("net/ipv4/conf/all/rp_filter") == "1" }

// HasIPv6 reports whether this network namespace has IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil && Sysctl("net/ipv6/conf/all/disable_ipv6") != "1"
}
