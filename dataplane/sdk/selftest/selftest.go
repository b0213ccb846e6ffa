// Package selftest lets a data plane prove that it leads connections of the host that
// it is on: it programs a frontend of its own, which nothing listens on, with a
// [Target] of its process as the endpoint, and dials that when it is asked for its
// health. What the host's services do cannot be mistaken for a fault of the plane.
package selftest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Port is that of frontends.
const Port = 7499

// ErrNotLed says that the connection went to the frontend itself, where nobody
// listens: the data path does not work for this process.
var ErrNotLed = errors.New("was not led to its endpoint")

// ErrPeer says that the connection shows somebody else as its peer than was dialled.
var ErrPeer = errors.New("shows another peer")

// Frontend is what name dials: an address of 127.255.0.0/16, the same in every
// process, and for names of two most likely two.
func Frontend(name string) netip.AddrPort {
	sum := sha256.Sum256([]byte(name))
	third, fourth := sum[0], sum[1]|1 // never .0
	if third == 255 && fourth == 255 {
		fourth = 253 // that would be the broadcast address of the network
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 255, third, fourth}), Port)
}

// Target takes the connections that are led to it, and closes them.
type Target struct {
	listener net.Listener
	accepted sync.WaitGroup
}

// Listen opens a target at an address of IPv4; port 0 is a free one. Another
// process may still have the address: the one before this may not have ended yet.
func Listen(at netip.AddrPort) (*Target, error) {
	config := net.ListenConfig{Control: reusePort}
	l, err := config.Listen(context.Background(), "tcp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for the check of the data path: %w", err)
	}
	t := &Target{listener: l}
	t.accepted.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_ = c.Close()
		}
	})
	return t, nil
}

// Addr is where the target listens.
func (t *Target) Addr() netip.AddrPort { return t.listener.Addr().(*net.TCPAddr).AddrPort() }

// Close ends the target. It returns when nothing of it runs any more.
func (t *Target) Close() {
	_ = t.listener.Close()
	t.accepted.Wait()
}

// dialTime bounds it: it stays on this host.
const dialTime = time.Second

// Dial makes one connection to a frontend, and says what is wrong with it. A plane
// that shows another peer than who was dialled is wrong too.
func Dial(ctx context.Context, frontend netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", frontend.String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("a dial of %v %w (%w)", frontend, ErrNotLed, err)
	case err != nil:
		return fmt.Errorf("a dial of %v: %w", frontend, err)
	}
	defer c.Close()
	if peer := c.RemoteAddr().String(); peer != frontend.String() {
		return fmt.Errorf("a dial of %v %w: %s", frontend, ErrPeer, peer)
	}
	return nil
}

// soReusePort is SO_REUSEPORT, which package syscall lacks (asm-generic/socket.h).
const soReusePort = 15

func reusePort(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1) }); e != nil {
		return e
	}
	return err
}
