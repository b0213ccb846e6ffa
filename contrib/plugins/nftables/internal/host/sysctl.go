package host

import (
	"os"
	"strings"
)

// RouteLocalnet reports whether loopback addresses may leave the loopback device.
func RouteLocalnet() bool { return isOn("net/ipv4/conf/all/route_localnet") }

// Forwards reports whether the host forwards IPv4 packets.
func Forwards() bool { return isOn("net/ipv4/ip_forward") }

func isOn(name string) bool {
	b, err := os.ReadFile("/proc/sys/" + name)
	return err == nil && strings.TrimSpace(string(b)) == "1"
}
