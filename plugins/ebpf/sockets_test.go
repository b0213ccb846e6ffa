package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// TestConnectedSocketSendsElsewhere: sendto(B) on a socket connected via A shows B
// as the source of the answer, and A as the peer.
func TestConnectedSocketSendsElsewhere(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("a", vip("10.200.1.1:53", dataplane.UDP), listenUDP(t, "127.0.0.1:0", "a")),
		service("b", vip("10.200.1.2:53", dataplane.UDP), listenUDP(t, "127.0.0.1:0", "b")),
	))
	fd := rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	a, b := sockaddr("10.200.1.1:53"), sockaddr("10.200.1.2:53")
	if err := unix.Connect(fd, a); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, nil, 0, b); err != nil {
		t.Fatal(err)
	}
	// A connected socket hears only its peer, so this one lets go first.
	if err := disconnect(fd); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, nil, 0, b); err != nil {
		t.Fatal(err)
	}
	if got := source(t, fd); got != "10.200.1.2:53" {
		t.Errorf("the answer came from %s", got)
	}
	if err := unix.Connect(fd, a); err != nil {
		t.Fatal(err)
	}
	if got := peer(t, fd); got != "10.200.1.1:53" {
		t.Errorf("the peer is %s", got)
	}
}

// TestLaterConnectForgetsTheService: connect with AF_UNSPEC runs no hook, so what
// the next connect goes to counts.
func TestLaterConnectForgetsTheService(t *testing.T) {
	w := newWorld(t)
	endpoint := listenUDP(t, "127.0.0.1:0", "a")
	w.good(w.apply(service("a", vip("10.200.1.1:53", dataplane.UDP), endpoint)))
	fd := rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err := unix.Connect(fd, sockaddr("10.200.1.1:53")); err != nil {
		t.Fatal(err)
	}
	if err := disconnect(fd); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sockaddr(endpoint.String())); err != nil {
		t.Fatal(err)
	}
	if got := peer(t, fd); got != endpoint.String() {
		t.Errorf("connected to the endpoint itself, the peer shows as %s", got)
	}
}

// TestWaysToConnect: fast open goes through the hook; an MPTCP socket is led, and
// shows the endpoint as its peer, since getpeername asks its first subflow.
func TestWaysToConnect(t *testing.T) {
	w := newWorld(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	w.good(w.apply(service("a", vip("10.200.1.1:80", dataplane.TCP), endpoint)))
	t.Run("fast open", func(t *testing.T) {
		fd := rawSocket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
		if err := unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, sockaddr("10.200.1.1:80")); err != nil {
			t.Skipf("skipped: no fast open here: %v", err)
		}
		if got := peer(t, fd); got != "10.200.1.1:80" {
			t.Errorf("the peer is %s", got)
		}
	})
	t.Run("mptcp", func(t *testing.T) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
		if err != nil {
			t.Skipf("skipped: no MPTCP here: %v", err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sockaddr("10.200.1.1:80")); err != nil {
			t.Fatal(err)
		}
		if got := peer(t, fd); got != endpoint.String() {
			t.Errorf("the peer is %s, want %v: README.md says that it shows the instance", got, endpoint)
		}
	})
	t.Run("bound to a device", func(t *testing.T) {
		d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") }), err)
		}}
		c, err := d.Dial("tcp", "10.200.1.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := hear(c); got != "a" {
			t.Errorf("answer %q, %v", got, err)
		}
	})
	t.Run("bound to loopback", func(t *testing.T) {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
		c, err := d.Dial("tcp", "10.200.1.1:80")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}

// TestStorageIsOfLedSockets and of no others.
func TestStorageIsOfLedSockets(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(service("a", vip("10.200.1.1:53", dataplane.UDP), listenUDP(t, "127.0.0.1:0", "a"))))
	fd := rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err := unix.Connect(fd, sockaddr("10.200.1.1:53")); err != nil {
		t.Fatal(err)
	}
	var value [48]byte
	sockets := w.provider.data.Shared("sockets")
	if err := sockets.Lookup(uint32(fd), &value); err != nil {
		t.Fatalf("the socket has no storage: %v", err)
	}
	other := rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err := unix.Connect(other, sockaddr("127.0.0.1:9")); err != nil {
		t.Fatal(err)
	}
	if err := sockets.Lookup(uint32(other), &value); err == nil {
		t.Error("a socket that was not led has storage")
	}
}

func rawSocket(t *testing.T, family, kind, proto int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	return fd
}

func sockaddr(s string) unix.Sockaddr {
	a := netip.MustParseAddrPort(s)
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func text(sa unix.Sockaddr) string {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	}
	return fmt.Sprint(sa)
}

func peer(t *testing.T, fd int) string {
	t.Helper()
	sa, err := unix.Getpeername(fd)
	if err != nil {
		t.Fatal(err)
	}
	return text(sa)
}

func source(t *testing.T, fd int) string {
	t.Helper()
	_, from, err := unix.Recvfrom(fd, make([]byte, 64), 0)
	if err != nil {
		t.Fatal(err)
	}
	return text(from)
}

// disconnect undoes a connect; package unix has no address of family AF_UNSPEC.
func disconnect(fd int) error {
	var unspec [16]byte // the family is 0
	_, _, errno := syscall.Syscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), uintptr(len(unspec)))
	if errno != 0 {
		return os.NewSyscallError("connect", errno)
	}
	return nil
}
