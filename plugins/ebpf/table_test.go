package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// listenTCP answers each connection with a name, and returns where.
func listenTCP(t *testing.T, addr, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				fmt.Fprint(c, name)
				_, _ = c.Read(make([]byte, 1))
				c.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// listenUDP echoes each datagram with a name before it.
func listenUDP(t *testing.T, addr, name string) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(append([]byte(name), b[:n]...), from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

const patience = 2 * time.Second

// ask connects, and returns the name that answers.
func ask(network, addr string) (string, error) {
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return hear(c)
}

func hear(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, ok := c.(*net.UDPConn); ok {
		if _, err := c.Write(nil); err != nil {
			return "", err
		}
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// TestTable: a VIP or an intercept address, TCP or UDP, IPv4, IPv6, or IPv4 through
// an IPv6 socket: all lead to an endpoint, and show the frontend as their peer.
func TestTable(t *testing.T) {
	w := newWorld(t)
	for _, family := range []struct{ name, vip, intercept, mapped, local string }{
		{"v4", "10.200.0.1:80", "127.0.0.1:8001", "[::ffff:10.200.0.1]:80", "127.0.0.1:0"},
		{"v6", "[fd00:200::1]:80", "[::1]:8001", "", "[::1]:0"},
	} {
		tcp, udp := listenTCP(t, family.local, "a"), listenUDP(t, family.local, "a")
		w.good(w.apply(
			service("vip-tcp", vip(family.vip, dataplane.TCP), tcp), service("vip-udp", vip(family.vip, dataplane.UDP), udp),
			service("near-tcp", intercept(family.intercept, dataplane.TCP), tcp), service("near-udp", intercept(family.intercept, dataplane.UDP), udp),
		))
		for _, addr := range []string{family.vip, family.intercept, family.mapped} {
			for _, network := range []string{"tcp", "udp"} {
				if addr == "" {
					continue
				}
				t.Run(network+" "+addr, func(t *testing.T) {
					c, err := dialer(addr, network)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if got, err := hear(c); got != "a" {
						t.Errorf("answer %q, %v", got, err)
					}
				})
			}
		}
	}
}

// dialer connects; a mapped address goes by an IPv6 socket, which package net
// would not do by itself.
func dialer(addr, network string) (net.Conn, error) {
	a := netip.MustParseAddrPort(addr)
	if !a.Addr().Is4In6() {
		c, err := net.DialTimeout(network, addr, patience)
		if err == nil && c.RemoteAddr().String() != addr {
			return nil, errors.Join(fmt.Errorf("the peer of %s shows as %v", addr, c.RemoteAddr()), c.Close())
		}
		return c, err
	}
	return dialMapped(network, a)
}

func TestNoEndpointIsRefused(t *testing.T) {
	w := newWorld(t)
	local := listenTCP(t, "127.0.0.1:8002", "own")
	pass := intercept(local.String(), dataplane.TCP)
	refuse := intercept("127.0.0.1:8003", dataplane.TCP)
	refuse[0].OnEmpty = dataplane.OnEmptyRefuse
	w.good(w.apply(
		service("four", vip("10.200.0.2:80", dataplane.TCP)), service("six", vip("[fd00:200::2]:80", dataplane.TCP)),
		service("udp", vip("10.200.0.2:80", dataplane.UDP)), service("pass", pass), service("refuse", refuse),
	))
	listenTCP(t, "127.0.0.1:8003", "hidden")
	for _, c := range []struct{ network, addr string }{
		{"tcp", "10.200.0.2:80"}, {"tcp", "[fd00:200::2]:80"}, {"udp", "10.200.0.2:80"}, {"tcp", "127.0.0.1:8003"},
	} {
		start := time.Now()
		if _, err := ask(c.network, c.addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s %s: %v, want ECONNREFUSED", c.network, c.addr, err)
		}
		if took := time.Since(start); took > patience/2 {
			t.Errorf("%s %s was refused after %v", c.network, c.addr, took)
		}
	}
	if got, err := ask("tcp", local.String()); got != "own" {
		t.Errorf("an intercept address without endpoints answers %q, %v; want its own listener", got, err)
	}
}

func TestHealthFollowsTheHooks(t *testing.T) {
	w := newWorld(t)
	w.apply()
	if h := w.provider.Health(context.Background()); h.State != dataplane.HealthReady {
		t.Fatalf("%v %v", h.State, h.Reasons)
	}
}
