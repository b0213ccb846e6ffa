package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection for one probe. It is made by hand because instances are
// on this machine: there a connection stands when connect returns, so most of
// what a dialer does would be cost without use.
type conn struct {
	fd   int
	file *os.File // nil until somebody has to wait
}

// dial connects within the deadline, unless ctx ends first.
func dial(ctx context.Context, target netip.AddrPort, deadline time.Time) (*conn, error) {
	addr, family, err := sockaddr(target)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	c := &conn{fd: fd}
	// Closing then resets: thousands of connections a minute would else wait for
	// late packets that no loopback ever brings.
	if err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err == nil {
		err = c.connect(ctx, addr, deadline)
	}
	if err == nil && c.isSelf() {
		// Nobody listens, and the kernel chose the target's port for this end.
		err = unix.ECONNREFUSED
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) connect(ctx context.Context, addr unix.Sockaddr, deadline time.Time) error {
	done := false
	try := func() error {
		err := unix.Connect(c.fd, addr)
		switch {
		case err == nil, errors.Is(err, unix.EISCONN):
			done = true
		case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY), errors.Is(err, unix.EINTR):
		default:
			return err
		}
		return nil
	}
	// The second one asks how the first went.
	for range 2 {
		if err := try(); err != nil || done {
			return err
		}
	}
	stop, err := c.wait(ctx, deadline)
	if err != nil {
		return err
	}
	defer stop()
	raw, err := c.file.SyscallConn()
	if err != nil {
		return err
	}
	waited := raw.Write(func(uintptr) bool {
		err = try()
		return done || err != nil
	})
	return errors.Join(err, waited)
}

// wait makes the connection one whose reads and writes wait, until the deadline
// or until ctx ends. stop has to be called.
func (c *conn) wait(ctx context.Context, deadline time.Time) (stop func() bool, err error) {
	if c.file == nil {
		c.file = os.NewFile(uintptr(c.fd), "")
	}
	if err := c.file.SetDeadline(deadline); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = c.file.SetDeadline(time.Unix(1, 0)) }), nil
}

// isSelf reports a socket that is connected to itself, as it happens when a
// port of the ephemeral range is dialled on this machine.
func (c *conn) isSelf() bool {
	own, err := unix.Getsockname(c.fd)
	if err != nil {
		return false
	}
	peer, err := unix.Getpeername(c.fd)
	if err != nil {
		return false
	}
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		peer, ok := peer.(*unix.SockaddrInet4)
		return ok && own.Port == peer.Port && own.Addr == peer.Addr
	case *unix.SockaddrInet6:
		peer, ok := peer.(*unix.SockaddrInet6)
		return ok && own.Port == peer.Port && own.Addr == peer.Addr
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
