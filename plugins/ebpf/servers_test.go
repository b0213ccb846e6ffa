package ebpf

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
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

const patience = await.Patience

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
