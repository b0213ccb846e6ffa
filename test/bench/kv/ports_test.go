package kv

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// ports gives out ports of loopback at which nobody listens, each once. They are
// below those that the kernel gives to connections, so that a member which is
// started again finds its own free.
type ports struct{ given map[uint16]bool }

func (p *ports) next(t *testing.T) netip.AddrPort {
	t.Helper()
	if p.given == nil {
		p.given = map[uint16]bool{}
	}
	for range 1000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(10_000+rand.IntN(20_000)))
		if p.given[at.Port()] {
			continue
		}
		tcp, err := net.Listen("tcp", at.String())
		if err != nil {
			continue
		}
		tcp.Close()
		udp, err := net.ListenPacket("udp", at.String())
		if err != nil {
			continue
		}
		udp.Close()
		p.given[at.Port()] = true
		return at
	}
	t.Fatal("no free port on 127.0.0.1")
	return netip.AddrPort{}
}
