package l4

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// instance is a server, which answers with its name. For TCP it says the name to
// who connects and then echoes; for UDP it echoes with the name in front.
type instance struct {
	name   string
	at     dataplane.Endpoint // with id 0
	closes func()
}

// listen starts an instance in a namespace. One of the host is reached by
// loopback from there, and by the host's address from elsewhere.
func (w *world) listen(s *space, network, name string, v6 bool) (*instance, error) {
	addr := w.addr(s, v6)
	in := &instance{name: name, at: dataplane.Endpoint{Weight: 1, Name: name}}
	var port uint16
	var err error
	if network == "tcp" {
		port, err = in.listenTCP(s, v6)
	} else {
		addrs := []netip.Addr{addr}
		if s == w.host {
			addrs = append(addrs, loopback(v6))
		}
		port, err = in.listenUDP(s, addrs)
	}
	if err != nil {
		return nil, fmt.Errorf("l4: listen in %s: %w", s.name, err)
	}
	in.at.Addr = netip.AddrPortFrom(addr, port)
	if s == w.host {
		in.at.Addr, in.at.AddrForeign = netip.AddrPortFrom(loopback(v6), port), in.at.Addr
	}
	return in, nil
}

// listenTCP listens at all addresses, so that whoever makes a VIP an address of
// the host is found out.
func (in *instance) listenTCP(s *space, v6 bool) (uint16, error) {
	all := netip.IPv4Unspecified()
	if v6 {
		all = netip.IPv6Unspecified()
	}
	fd, port, err := bound(s, "tcp", netip.AddrPortFrom(all, 0))
	if err == nil {
		in.closes, err = serveTCP(fd, in.name)
	}
	return port, err
}

// listenUDP has a socket for each address: one for all would not know from which
// to answer.
func (in *instance) listenUDP(s *space, addrs []netip.Addr) (uint16, error) {
	for tries := 0; ; tries++ {
		var port uint16
		var closes []func()
		in.closes = func() {
			for _, f := range closes {
				f()
			}
		}
		var err error
		for _, addr := range addrs {
			var fd int
			var one func()
			if fd, port, err = bound(s, "udp", netip.AddrPortFrom(addr, port)); err == nil {
				one, err = serveUDP(fd, in.name)
			}
			if err != nil {
				break
			}
			closes = append(closes, one)
		}
		if err == nil {
			return port, nil
		}
		in.closes()
		if tries == 10 || !errors.Is(err, unix.EADDRINUSE) { // the port was free at one address only
			return 0, err
		}
	}
}

func loopback(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// bound is a socket of a server, and its port.
func bound(s *space, network string, at netip.AddrPort) (fd int, port uint16, err error) {
	c := client{space: s}
	if fd, err = c.socket(network, at.Addr().Is6()); err != nil {
		return -1, 0, err
	}
	if at.Addr().Is6() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	err = unix.Bind(fd, c.sockaddr(at))
	if err == nil && network == "tcp" {
		err = unix.Listen(fd, 1024)
	}
	var sa unix.Sockaddr
	if err == nil {
		sa, err = unix.Getsockname(fd)
	}
	if err != nil {
		return -1, 0, errors.Join(err, unix.Close(fd))
	}
	return fd, addrPort(sa).Port(), nil
}

func serveTCP(fd int, name string) (func(), error) {
	f := file(fd)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	open := make(map[net.Conn]bool)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			go func() {
				_, _ = conn.Write([]byte(name))
				b := make([]byte, 64)
				for {
					n, err := conn.Read(b)
					if err != nil {
						break
					}
					_, _ = conn.Write(b[:n])
				}
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
				_ = conn.Close()
			}()
		}
	}()
	return func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for conn := range open {
			hangUp(conn)
		}
	}, nil
}

func serveUDP(fd int, name string) (func(), error) {
	f := file(fd)
	defer f.Close()
	conn, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // who asked is gone
			}
			_, _ = conn.WriteTo(append([]byte(name+"|"), b[:n]...), from)
		}
	}()
	return func() { _ = conn.Close() }, nil
}
