package l4

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// silence is how long nothing may come where nothing should.
const silence = 150 * time.Millisecond

// client is where and how sockets are opened.
type client struct {
	space  *space
	mapped bool           // IPv4 addresses through IPv6 sockets
	from   netip.AddrPort // bound to it, if valid
	answer time.Duration
}

func (c client) boundTo(addr netip.Addr) client {
	c.from = netip.AddrPortFrom(addr, 0)
	return c
}

// socket opens a socket in the namespace. Where it is used does not matter.
func (c client) socket(network string, v6 bool) (int, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if v6 || c.mapped {
		family = unix.AF_INET6
	}
	if network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd := -1
	err := c.space.do(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("socket in %s: %w", c.space.name, err)
	}
	if c.from.IsValid() {
		if err := unix.Bind(fd, c.sockaddr(c.from)); err != nil {
			return -1, errors.Join(fmt.Errorf("bind to %v: %w", c.from, err), unix.Close(fd))
		}
	}
	return fd, nil
}

func (c client) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() && !c.mapped {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// connect connects without blocking for longer than timeout.
func (c client) connect(fd int, to netip.AddrPort, timeout time.Duration) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	err := unix.Connect(fd, c.sockaddr(to))
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	if err := await(fd, unix.POLLOUT, timeout); err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// await waits until a socket is ready, or in error.
func await(fd int, events int16, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n > 0:
			return nil
		case time.Now().After(deadline):
			return os.ErrDeadlineExceeded
		}
	}
}

// dial connects, and returns a connection of package net.
func (c client) dial(network string, to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	fd, err := c.socket(network, to.Addr().Is6())
	if err != nil {
		return nil, err
	}
	if err := c.connect(fd, to, timeout); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), network)
	defer f.Close()
	return net.FileConn(f)
}

// ask connects, and returns the name of the instance that answers.
func (c client) ask(network string, to netip.AddrPort) (string, error) {
	return c.askFor(network, to, c.answer)
}

func (c client) askFor(network string, to netip.AddrPort, timeout time.Duration) (string, error) {
	conn, err := c.dial(network, to, timeout)
	if err != nil {
		return "", err
	}
	defer hangUp(conn)
	return hear(conn, timeout)
}

// hangUp closes a connection without a trace in the tables of ports.
func hangUp(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// hear reads the name of the instance on a connection that was just made.
func hear(conn net.Conn, timeout time.Duration) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(timeout))
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	if _, ok := conn.(*net.UDPConn); ok {
		if _, err := conn.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	b := make([]byte, 128)
	n, err := conn.Read(b)
	name, _, _ := strings.Cut(string(b[:n]), "|")
	return name, err
}

// alive has the instance at the other end echo a byte.
func (g *rig) alive(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(g.options.Answer))
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	if _, err := conn.Write([]byte("+")); err != nil {
		return err
	}
	b := make([]byte, 128)
	_, err := conn.Read(b)
	return err
}

// ended waits until a connection fails, and returns why; nil if it lives on.
func ended(conn net.Conn, timeout time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(timeout))
	_, err := conn.Read(make([]byte, 8))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// peerOf is the address that an application sees at the other end.
func peerOf(conn net.Conn) string {
	a, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}

// datagrams is a socket for datagrams that is not connected.
type datagrams struct {
	client
	fd int
}

func (c client) datagrams(v6 bool) (*datagrams, error) {
	fd, err := c.socket("udp", v6)
	if err != nil {
		return nil, err
	}
	return &datagrams{client: c, fd: fd}, nil
}

// disconnect undoes a connect. Package unix has no address of family AF_UNSPEC.
func (d *datagrams) disconnect() error {
	var unspec [16]byte // the family is 0
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(d.fd), uintptr(unsafe.Pointer(&unspec)), uintptr(len(unspec)))
	if errno != 0 {
		return os.NewSyscallError("connect", errno)
	}
	return nil
}

func (d *datagrams) close() { _ = unix.Close(d.fd) }

func (d *datagrams) send(to netip.AddrPort, text string) error {
	return unix.Sendto(d.fd, []byte(text), 0, d.sockaddr(to))
}

// receive returns the next datagram, and where it came from as it shows.
func (d *datagrams) receive(timeout time.Duration) (name, text string, from netip.AddrPort, err error) {
	if err := await(d.fd, unix.POLLIN, timeout); err != nil {
		return "", "", from, err
	}
	b := make([]byte, 64<<10)
	n, sa, err := unix.Recvfrom(d.fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return "", "", from, err
	}
	name, text, _ = strings.Cut(string(b[:n]), "|")
	return name, text, addrPort(sa), nil
}
