package netns

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	port    = 7000
	patient = 30 * time.Second // for what must happen, also on a machine that is busy
)

// socket is a datagram socket of a node, with what it has heard.
type socket struct {
	conn  net.PacketConn
	heard chan string
}

// open binds addr in the node.
func open(t *testing.T, n *Node, addr netip.Addr) *socket {
	t.Helper()
	conn, err := n.ListenPacket("udp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		t.Fatalf("%s: listen on %v: %v", n.Name(), addr, err)
	}
	s := &socket{conn: conn, heard: make(chan string, 10_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 64); ; {
			size, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			s.heard <- string(buf[:size])
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return s
}

func (s *socket) send(t *testing.T, to netip.Addr, text string) {
	t.Helper()
	if _, err := s.conn.WriteTo([]byte(text), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port))); err != nil {
		t.Fatalf("send to %v: %v", to, err)
	}
}

// expect sends text again and again until it is heard.
func (s *socket) expect(t *testing.T, at *socket, to netip.Addr, text string) {
	t.Helper()
	Eventually(t, patient, func() bool {
		s.send(t, to, text)
		for {
			select {
			case got := <-at.heard:
				if got == text {
					return true
				}
			default:
				return false
			}
		}
	}, "%q from %v heard at %v", text, s.conn.LocalAddr(), to)
}

// refuse sends text and shows that the switch has swallowed it.
func (s *socket) refuse(t *testing.T, topo *Topology, at *socket, to netip.Addr, text string) {
	t.Helper()
	before, _ := topo.Dropped()
	s.send(t, to, text)
	Eventually(t, patient, func() bool { cut, _ := topo.Dropped(); return cut > before }, "%q to %v cut", text, to)
	for {
		select {
		case got := <-at.heard:
			if got == text {
				t.Fatalf("%q was heard at %v through a cut", text, to)
			}
		default:
			return
		}
	}
}

// sockets opens one socket for each node.
func sockets(t *testing.T, topo *Topology) []*socket {
	t.Helper()
	var all []*socket
	for _, n := range topo.Nodes() {
		all = append(all, open(t, n, n.Addr()))
	}
	return all
}

func TestEveryNodeReachesEveryOther(t *testing.T) {
	topo := New(t, Options{Nodes: 3})
	for _, address := range []func(*Node) netip.Addr{(*Node).Addr, (*Node).Addr6} {
		if !address(topo.Node(0)).IsValid() {
			t.Log("no IPv6 in this kernel")
			continue
		}
		var all []*socket
		for _, n := range topo.Nodes() {
			all = append(all, open(t, n, address(n)))
		}
		for i, from := range all {
			for j, to := range all {
				from.expect(t, to, address(topo.Node(j)), fmt.Sprintf("from %d to %d", i, j))
			}
		}
	}
}

func TestStreamAndLoopback(t *testing.T) {
	topo := New(t, Options{Nodes: 2})
	a, b := topo.Node(0), topo.Node(1)
	for _, test := range []struct {
		at, from *Node
		address  string
	}{
		{b, a, net.JoinHostPort(b.Addr().String(), "7001")},
		{b, a, "[fd77::2]:7001"},
		{a, a, "127.0.0.1:7002"},
		{a, a, "[::1]:7002"},
	} {
		if strings.HasPrefix(test.address, "[") && !a.Addr6().IsValid() {
			continue // no IPv6 in this kernel
		}
		l, err := test.at.Listen("tcp", test.address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if conn, err := l.Accept(); err == nil {
				io.Copy(conn, conn)
				conn.Close()
			}
		}()
		conn, err := test.from.DialContext(t.Context(), "tcp", test.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		want := bytes.Repeat([]byte("fairlead"), 8<<10)
		go conn.Write(want)
		got := make([]byte, len(want))
		conn.SetReadDeadline(time.Now().Add(patient))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: echo of %d bytes: %v", test.address, len(want), err)
		}
	}
	// Loopback of one node is not that of another, nor that of the machine.
	if conn, err := b.DialContext(t.Context(), "tcp", "127.0.0.1:7002"); err == nil {
		conn.Close()
		t.Errorf("%s reaches the loopback of %s", b.Name(), a.Name())
	}
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:7002", patient); err == nil {
		conn.Close()
		t.Error("the machine reaches the loopback of a node")
	}
}

func TestChangeOfAddress(t *testing.T) {
	topo := New(t, Options{Nodes: 3})
	a, b, c := topo.Node(0), topo.Node(1), topo.Node(2)
	s := sockets(t, topo)
	s[0].expect(t, s[1], b.Addr(), "before")
	s[0].expect(t, s[2], c.Addr(), "before")

	// Two nodes swap: the others must not send to who had the address before.
	oldB, oldC := b.Addr(), c.Addr()
	b.SetAddr(netip.MustParseAddr("10.77.0.99"))
	c.SetAddr(oldB)
	b.SetAddr(oldC)
	b.SetAddr(oldC)
	if b.Addr() != oldC || c.Addr() != oldB {
		t.Errorf("addresses are %v and %v after the swap of %v and %v", b.Addr(), c.Addr(), oldB, oldC)
	}
	s[1].conn.Close()
	s[2].conn.Close()
	newB, newC := open(t, b, oldC), open(t, c, oldB)
	s[0].expect(t, newB, oldC, "to b")
	s[0].expect(t, newC, oldB, "to c")
	if conn, err := b.ListenPacket("udp", netip.AddrPortFrom(oldB, port).String()); err == nil {
		conn.Close()
		t.Errorf("%s still has %v", b.Name(), oldB)
	}
	// Faults follow the node, not the address.
	topo.Cut(a, b)
	s[0].refuse(t, topo, newB, oldC, "cut")
	topo.Heal()

	extra, extra6 := netip.MustParseAddr("10.77.0.200"), netip.MustParseAddr("fd77::99")
	b.AddAddr(extra)
	b.AddAddr(extra)
	b.SetAddr(netip.MustParseAddr("10.77.0.201")) // the extra one outlives the removal of the first
	s[0].expect(t, open(t, b, extra), extra, "extra")
	b.DelAddr(extra)
	if b.Addr6().IsValid() {
		b.SetAddr(extra6)
		open(t, a, a.Addr6()).expect(t, open(t, b, extra6), extra6, "to the new IPv6 address")
	}
	if err := checkAddr(netip.MustParseAddr("10.78.0.1")); err == nil {
		t.Error("an address outside of the network is accepted")
	}
}

func TestTrafficCounts(t *testing.T) {
	topo := New(t, Options{Nodes: 2})
	s := sockets(t, topo)
	a, b := topo.Node(0), topo.Node(1)
	s[0].expect(t, s[1], b.Addr(), "warm")
	s[1].expect(t, s[0], a.Addr(), "warm")
	before, lo := a.Traffic("eth0"), a.Traffic("lo")
	const count = 50
	for range count {
		s[0].send(t, b.Addr(), "0123456789")
	}
	const frame = 10 + 8 + 20 + 14 // UDP, IPv4, Ethernet
	sent := a.Traffic("eth0").Sub(before)
	if sent.TxPackets < count || sent.TxPackets > count+5 || sent.TxBytes < count*frame {
		t.Errorf("counted %+v after %d datagrams of %d bytes", sent, count, frame)
	}
	s[0].expect(t, s[0], a.Addr(), "to itself")
	if got := a.Traffic("lo").Sub(lo); got.RxPackets == 0 || got.RxPackets != got.TxPackets {
		t.Errorf("loopback counted %+v after a datagram of the node to itself", got)
	}
	if _, err := parseTraffic("eth0: 1 2 3 4 5 6 7 8 x", "eth0"); err == nil {
		t.Error("broken counters are accepted")
	}
	if _, err := parseTraffic("lo: 1 2", "eth0"); err == nil {
		t.Error("a missing device is accepted")
	}
}

func TestMachineKeepsItsDevices(t *testing.T) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	topo := New(t, Options{Nodes: 2})
	topo.Cut(topo.Node(0), topo.Node(1))
	after, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(names(before)) != fmt.Sprint(names(after)) {
		t.Errorf("devices of the machine were %v, are %v", names(before), names(after))
	}
	inside := 0
	if err := topo.Node(0).Do(func() error {
		own, err := net.Interfaces()
		inside = len(own)
		return err
	}); err != nil || inside < 2 {
		t.Errorf("Do sees %d devices, want lo and eth0: %v", inside, err)
	}
	if link, err := os.Readlink("/proc/self/ns/net"); err != nil || link == fmt.Sprintf("net:[%d]", topo.Node(0).space.inode) {
		t.Errorf("the process itself is in namespace %s: %v", link, err)
	}
}

func names(devices []net.Interface) (all []string) {
	for _, d := range devices {
		all = append(all, d.Name)
	}
	return all
}
