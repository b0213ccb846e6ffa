package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection for one probe. It is made by hand because instances are
// on this machine: there a connection stands when connect returns, so most of
// what a dialer and a poller do would be cost without use.
type conn struct {
	fd   int
	addr unix.Sockaddr
	file *os.File // nil until somebody has to wait
}

// open begins to connect, and does not wait. With reset a later close resets the
// connection, so that nothing of it stays behind on either side.
func open(target netip.AddrPort, reset bool) (*conn, error) {
	addr, family, err := sockaddr(target)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	c := &conn{fd: fd, addr: addr}
	if reset {
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err == nil {
		_, err = c.try()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// try connects, or asks how far that has come.
func (c *conn) try() (done bool, err error) {
	err = unix.Connect(c.fd, c.addr)
	switch {
	case err == nil, errors.Is(err, unix.EISCONN):
		return true, nil
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY), errors.Is(err, unix.EINTR):
		return false, nil
	}
	return false, err
}

// connect waits until the connection stands.
func (c *conn) connect() error {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return err
	}
	var done bool
	waited := raw.Write(func(uintptr) bool {
		done, err = c.try()
		return done || err != nil
	})
	return errors.Join(err, waited)
}

// wait makes the connection one whose reads and writes wait, until the deadline
// or until ctx ends. stop has to be called.
func (c *conn) wait(ctx context.Context, deadline time.Time) (stop func() bool, err error) {
	c.file = os.NewFile(uintptr(c.fd), "the connection")
	if err := c.file.SetDeadline(deadline); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = c.file.SetDeadline(time.Unix(1, 0)) }), nil
}

// isSelf reports a socket that is connected to itself, as it happens when a
// port of the ephemeral range is dialled on this machine.
func (c *conn) isSelf(target netip.AddrPort) bool {
	own, err := syscall.Getsockname(c.fd)
	if err != nil {
		return false
	}
	switch own := own.(type) {
	case *syscall.SockaddrInet4:
		return own.Port == int(target.Port()) && netip.AddrFrom4(own.Addr) == target.Addr().Unmap()
	case *syscall.SockaddrInet6:
		return own.Port == int(target.Port()) && netip.AddrFrom16(own.Addr) == target.Addr().WithZone("")
	}
	return false
}

func (c *conn) close() {
	if c.file != nil {
		_ = c.file.Close() // nothing that was sent matters any more
		return
	}
	_ = unix.Close(c.fd)
}

func sockaddr(a netip.AddrPort) (unix.Sockaddr, int, error) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, unix.AF_INET, nil
	}
	s := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	if zone := ip.Zone(); zone != "" {
		if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			s.ZoneId = uint32(n)
		} else if dev, err := net.InterfaceByName(zone); err == nil {
			s.ZoneId = uint32(dev.Index) //nolint:gosec // the kernel's own number
		} else {
			return nil, 0, fmt.Errorf("the zone of %s: %w", a, err)
		}
	}
	return s, unix.AF_INET6, nil
}
