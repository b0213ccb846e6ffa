package membership

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/port"
)

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func listen(t *testing.T, bind string) Transport {
	t.Helper()
	tr, err := ListenNet(netip.MustParseAddrPort(bind))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func TestUDPAndTCPShareOnePort(t *testing.T) {
	for _, bind := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		t.Run(bind, func(t *testing.T) {
			if c, err := net.ListenPacket("udp", bind); err == nil {
				c.Close()
			} else if errors.Is(err, syscall.EADDRNOTAVAIL) {
				t.Skip("this machine has no IPv6")
			}
			a := listen(t, bind)
			to := a.LocalAddr()
			switch {
			case to.Port() == 0:
				t.Fatal("no port")
			case to.Addr().IsUnspecified(): // a dual-stack socket hears IPv4 too
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), to.Port())
			}
			b := listen(t, netip.AddrPortFrom(to.Addr(), 0).String())
			if err := b.WritePacket([]byte("hello"), to); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			n, from, err := a.ReadPacket(buf)
			if err != nil || string(buf[:n]) != "hello" || from != b.LocalAddr() {
				t.Errorf("read %q from %v, %v; want hello from %v, unmapped", buf[:n], from, err, b.LocalAddr())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			near, err := b.DialStream(ctx, to)
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			far, err := a.AcceptStream()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
		})
	}
}

func TestAddressInUseNamesItAndTheRemedy(t *testing.T) {
	taken := listen(t, "127.0.0.1:0").LocalAddr()
	_, err := ListenNet(taken)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), taken.String()) || !strings.Contains(err.Error(), "gossip.bind") {
		t.Errorf("got %v, want EADDRINUSE naming %v and gossip.bind", err, taken)
	}

	// UDP alone is enough to be in the way, and the TCP half is given back.
	if !slices.ContainsFunc(make([]int, 20), func(int) bool { return halfIsGivenBack(t) }) {
		t.Error("the TCP half was kept")
	}

	_, err = ListenNet(netip.MustParseAddrPort("192.0.2.1:7400"))
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "no such address") {
		t.Errorf("foreign address: %v, want EADDRNOTAVAIL with the remedy", err)
	}
}

// halfIsGivenBack takes a UDP port and reports whether the refused listener
// left the TCP port free. Somebody else on this host may hold that one.
func halfIsGivenBack(t *testing.T) bool {
	t.Helper()
	udp, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	half := udp.LocalAddr().(*net.UDPAddr).AddrPort()
	if _, err := ListenNet(half); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("UDP port taken: %v, want EADDRINUSE", err)
	}
	tcp, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(half))
	if err != nil {
		return false
	}
	return tcp.Close() == nil
}

func TestOnlyARefusedConnectIsRefused(t *testing.T) {
	a, gone := listen(t, "127.0.0.1:0"), netip.MustParseAddrPort(port.Free(t))
	if _, err := a.DialStream(t.Context(), gone); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v, want ECONNREFUSED", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.DialStream(ctx, gone); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ended context: %v, want anything but ECONNREFUSED", err)
	}
}

func TestCloseEndsBothWaits(t *testing.T) {
	a := listen(t, "127.0.0.1:0")
	ended := make(chan error, 2)
	go func() { _, _, err := a.ReadPacket(make([]byte, 10)); ended <- err }()
	go func() { _, err := a.AcceptStream(); ended <- err }()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ended by %v, want net.ErrClosed", err)
		}
	}
}
