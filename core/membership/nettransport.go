package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

const (
	// portTries bounds the search for a port that is free for UDP and TCP.
	portTries = 32
	// receiveBuffer asks the kernel to hold datagrams while the process does
	// not run; it is cut to net.core.rmem_max.
	receiveBuffer = 2 << 20
)

// netTransport is UDP and TCP on one port.
type netTransport struct {
	udp   *net.UDPConn
	tcp   *net.TCPListener
	local netip.AddrPort
	dial  net.Dialer
}

var _ Transport = (*netTransport)(nil)

// ListenNet binds UDP and TCP to one port of bind. Port 0 takes one that is
// free for both.
func ListenNet(bind netip.AddrPort) (Transport, error) {
	bind = unmapped(bind)
	for try := 1; ; try++ {
		t, err := listenBoth(bind)
		if err == nil {
			return t, nil
		}
		// A port that the kernel picked for TCP may be taken for UDP.
		if bind.Port() == 0 && try < portTries && errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		return nil, explainBind(bind, err)
	}
}

func listenBoth(bind netip.AddrPort) (*netTransport, error) {
	family := ""
	switch {
	case bind.Addr().Is4():
		family = "4"
	case !bind.Addr().IsUnspecified(): // [::] stays open for both families
		family = "6"
	}
	tcp, err := net.ListenTCP("tcp"+family, net.TCPAddrFromAddrPort(bind))
	if err != nil {
		return nil, err
	}
	local := netip.AddrPortFrom(bind.Addr(), tcp.Addr().(*net.TCPAddr).AddrPort().Port())
	udp, err := net.ListenUDP("udp"+family, net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	_ = udp.SetReadBuffer(receiveBuffer) // best effort: a small buffer only loses more in a burst
	t := &netTransport{udp: udp, tcp: tcp, local: local}
	if !bind.Addr().IsUnspecified() {
		// Streams come from the address that datagrams come from.
		t.dial.LocalAddr = &net.TCPAddr{IP: bind.Addr().AsSlice(), Zone: bind.Addr().Zone()}
	}
	return t, nil
}

func explainBind(bind netip.AddrPort, err error) error {
	remedy := "set gossip.bind"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = "stop the process that holds it (ss -lntup shows it) or set gossip.bind to a free port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		remedy = "this host has no such address: set gossip.bind to one that it has"
	case errors.Is(err, syscall.EACCES):
		remedy = "ports below 1024 need a capability: set gossip.bind to a higher port"
	}
	return fmt.Errorf("membership: cannot listen on gossip address %v (UDP and TCP): %w: %s", bind, err, remedy)
}

func (t *netTransport) LocalAddr() netip.AddrPort { return t.local }

func (t *netTransport) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	n, from, err := t.udp.ReadFromUDPAddrPort(buf)
	return n, unmapped(from), err
}

func (t *netTransport) WritePacket(data []byte, to netip.AddrPort) error {
	_, err := t.udp.WriteToUDPAddrPort(data, to)
	return err
}

func (t *netTransport) DialStream(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return t.dial.DialContext(ctx, "tcp", to.String())
}

func (t *netTransport) AcceptStream() (net.Conn, error) {
	conn, err := t.tcp.Accept()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (t *netTransport) Close() error { return errors.Join(t.udp.Close(), t.tcp.Close()) }
