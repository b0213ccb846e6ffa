package l4

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// patience is for what takes microseconds on an idle machine.
const patience = 20 // seconds

// socket opens one on which nothing is waited for forever.
func socket(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience})
}

// uninterrupted repeats what a signal of the Go runtime interrupted. Calls that
// have a time limit do not go on by themselves.
func uninterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// listen opens a socket that takes connections or datagrams for all addresses, and
// returns its port.
func listen(kind int) (fd int, port uint16, err error) {
	if fd, err = socket(kind); err != nil {
		return 0, 0, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{})
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 128)
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		return 0, 0, errors.Join(err, unix.Close(fd))
	}
	return fd, uint16(at.(*unix.SockaddrInet4).Port), nil
}

// connect times one connect, and ends it by a reset, so that no port waits.
func connect(listener int, to netip.AddrPort) (took time.Duration, err error) {
	client, server, took, err := pair(listener, to)
	if err != nil {
		return 0, err
	}
	err = unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return took, errors.Join(err, unix.Close(client), unix.Close(server))
}

// pair opens a connection that a listener of this process takes. Only the connect
// is timed.
func pair(listener int, to netip.AddrPort) (client, server int, took time.Duration, err error) {
	if client, err = socket(unix.SOCK_STREAM); err != nil {
		return 0, 0, 0, err
	}
	at := sockaddr(to)
	begun := time.Now()
	err = unix.Connect(client, at)
	took = time.Since(begun)
	if err != nil {
		return 0, 0, 0, errors.Join(fmt.Errorf("connect to %v: %w", to, err), unix.Close(client))
	}
	err = uninterrupted(func() (err error) {
		server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return 0, 0, 0, errors.Join(err, unix.Close(client))
	}
	return client, server, took, nil
}

// channel is an open connection or a pair of sockets that exchange datagrams, both
// ends on this thread.
type channel struct {
	client, server int
	to             *unix.SockaddrInet4 // of each datagram; nil: connected
	datagrams      bool
	bytes          []byte
}

// forth sends n bytes from the client to the server.
func (c *channel) forth(n int) (from unix.Sockaddr, err error) {
	if c.to != nil {
		err = unix.Sendto(c.client, c.bytes[:n], 0, c.to)
	} else {
		_, err = unix.Write(c.client, c.bytes[:n])
	}
	if err != nil {
		return nil, err
	}
	if c.datagrams {
		return c.receive(c.server, n)
	}
	return nil, readFull(c.server, c.bytes[:n])
}

// receive takes one datagram of n bytes.
func (c *channel) receive(fd, n int) (from unix.Sockaddr, err error) {
	err = uninterrupted(func() error {
		got, at, err := unix.Recvfrom(fd, c.bytes, 0)
		if err == nil && got != n {
			err = fmt.Errorf("%d bytes came of %d", got, n)
		}
		from = at
		return err
	})
	return from, err
}

// round sends n bytes there and back.
func (c *channel) round(n int) error {
	from, err := c.forth(n)
	if err != nil {
		return err
	}
	if c.datagrams {
		err = unix.Sendto(c.server, c.bytes[:n], 0, from)
	} else {
		_, err = unix.Write(c.server, c.bytes[:n])
	}
	if err != nil {
		return err
	}
	if c.to == nil {
		return readFull(c.client, c.bytes[:n])
	}
	shown, err := c.receive(c.client, n)
	if at, ok := shown.(*unix.SockaddrInet4); err == nil && (!ok || at.Addr != c.to.Addr || at.Port != c.to.Port) {
		err = fmt.Errorf("an answer from %v, want %v", shown, c.to)
	}
	return err
}

func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the other end closed")
		}
		b = b[n:]
	}
	return nil
}
