package hostcheck

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func addresses() []Address {
	var all []Address
	devices, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, d := range devices {
		list, err := d.Addrs()
		if err != nil {
			continue
		}
		for _, a := range list {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, Address{Device: d.Name, Loopback: d.Flags&net.FlagLoopback != 0, MTU: d.MTU, Prefix: prefix})
			}
		}
	}
	return all
}

// routes reads the main tables of both families.
func routes() []Route {
	var all []Route
	add := func(device string, prefix netip.Prefix) {
		if r := (Route{Device: device, Prefix: prefix}); device != "lo" && prefix.Bits() > 0 && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	for line := range lines("/proc/net/route") {
		if f := strings.Fields(line); len(f) >= 8 {
			if prefix, ok := route4(f[1], f[7]); ok {
				add(f[0], prefix)
			}
		}
	}
	for line := range lines("/proc/net/ipv6_route") {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		ip, err := hex.DecodeString(f[0])
		size, sizeErr := strconv.ParseUint(f[1], 16, 8)
		if a, ok := netip.AddrFromSlice(ip); ok && err == nil && sizeErr == nil && size <= 128 && !a.IsMulticast() {
			add(f[9], netip.PrefixFrom(a, int(size)))
		}
	}
	return all
}

// route4 reads an address and a mask as /proc/net/route has them: hexadecimal, in
// the byte order of the host.
func route4(address, mask string) (netip.Prefix, bool) {
	a, errA := strconv.ParseUint(address, 16, 32)
	m, errM := strconv.ParseUint(mask, 16, 32)
	if errA != nil || errM != nil {
		return netip.Prefix{}, false
	}
	var ip [4]byte
	binary.NativeEndian.PutUint32(ip[:], uint32(a))
	return netip.PrefixFrom(netip.AddrFrom4(ip), bits.OnesCount32(uint32(m))), true
}

// tryPorts listens at each address for a moment.
func tryPorts(c Config) []Port {
	all := []Port{
		tryPort("gossip.bind", "udp", c.Bind),
		tryPort("gossip.bind", "tcp", c.Bind),
	}
	for _, key := range slices.Sorted(maps.Keys(c.Listen)) {
		all = append(all, tryPort(key, "tcp", c.Listen[key]))
	}
	return all
}

func tryPort(key, transport string, at netip.AddrPort) Port {
	p := Port{Key: key, Transport: transport, Addr: at, State: PortFree}
	err := listenOnce(transport, at.String())
	switch {
	case err == nil:
	case errors.Is(err, syscall.EADDRINUSE):
		p.State = PortTaken
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		p.State = PortAbsent
	case errors.Is(err, syscall.EACCES):
		p.State = PortForbidden
	default:
		p.State, p.Error = PortUnclear, err.Error()
	}
	return p
}

func listenOnce(transport, at string) error {
	if transport == "udp" {
		conn, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	return l.Close()
}
