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

// listen starts an instance at all addresses of a namespace. One of the host is
// reached by loopback from there, and by the host's address from elsewhere.
func (w *world) listen(s *space, network, name string, v6 bool) (*instance, error) {
	fd, port, err := listenSocket(s, network, v6)
	if err != nil {
		return nil, fmt.Errorf("l4: listen in %s: %w", s.name, err)
	}
	in := &instance{name: name, at: dataplane.Endpoint{Addr: netip.AddrPortFrom(w.addr(s, v6), port), Weight: 1, Name: name}}
	if s == w.host {
		in.at.AddrForeign = in.at.Addr
		in.at.Addr = netip.AddrPortFrom(loopback(v6), port)
	}
	if network == "tcp" {
		in.closes, err = serveTCP(fd, name)
	} else {
		in.closes, err = serveUDP(fd, name)
	}
	return in, err
}

func loopback(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func listenSocket(s *space, network string, v6 bool) (fd int, port uint16, err error) {
	c := client{space: s}
	if fd, err = c.socket(network, v6); err != nil {
		return -1, 0, err
	}
	any := netip.IPv4Unspecified()
	if v6 {
		any = netip.IPv6Unspecified()
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	err = unix.Bind(fd, c.sockaddr(netip.AddrPortFrom(any, 0)))
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
