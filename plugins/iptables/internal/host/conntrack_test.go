package host

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// led has connections and datagrams to an address of this namespace led to a port.
func led(t *testing.T, to netip.AddrPort, protocol, endpoint string) {
	t.Helper()
	run := func(action string) {
		out, err := exec.Command("iptables-nft", "-w", "5", "-t", "nat", action, "OUTPUT", "-p", protocol, "-d", to.Addr().String(),
			"--dport", fmt.Sprint(to.Port()), "-j", "DNAT", "--to-destination", endpoint).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("-A")
	t.Cleanup(func() { run("-D") })
}

// of lists the flows that were sent to an address.
func of(t *testing.T, to netip.AddrPort) (found []Flow) {
	t.Helper()
	err := Flows(V4, func(f Flow) {
		if f.Frontend.Addr == to {
			found = append(found, f)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestFlowOfConnection: an entry says where from, to and whither, has an id that is its
// own, and is over when both sides closed the connection, or one reset it.
func TestFlowOfConnection(t *testing.T) {
	netns.Isolated(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := netip.MustParseAddrPort("127.9.9.9:80")
	led(t, to, "tcp", l.Addr().String())
	pair := func() (client, server net.Conn) {
		t.Helper()
		if client, err = net.Dial("tcp4", to.String()); err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	client, server := pair()
	want := Flow{
		Client: client.LocalAddr().(*net.TCPAddr).AddrPort(), Frontend: dataplane.Binding{Addr: to, Protocol: dataplane.TCP},
		Endpoint: l.Addr().(*net.TCPAddr).AddrPort(),
	}
	found := of(t, to)
	if len(found) != 1 || found[0].ID == 0 || !found[0].Translated() {
		t.Fatalf("flows are %+v, want one with an id, led elsewhere", found)
	}
	id := found[0].ID
	if found[0].ID = 0; found[0] != want {
		t.Errorf("the flow is %+v, want %+v", found[0], want)
	}
	other, otherServer := pair()
	if all := of(t, to); len(all) != 2 || all[0].ID == all[1].ID {
		t.Errorf("two connections are %+v", all)
	}
	client.Close()
	if all := of(t, to); slices.ContainsFunc(all, func(f Flow) bool { return f.Over }) {
		t.Errorf("one side closed: %+v", all)
	}
	server.Close()
	over := func(n int) func() bool {
		return func() bool {
			all := of(t, to)
			return len(slices.DeleteFunc(all, func(f Flow) bool { return !f.Over })) == n
		}
	}
	netns.Eventually(t, await.Patience, over(1), "the connection that both sides closed to be over")
	if all := of(t, to); !slices.ContainsFunc(all, func(f Flow) bool { return f.ID == id && f.Over }) {
		t.Errorf("it has another id: %+v, was %d", all, id)
	}
	_ = other.(*net.TCPConn).SetLinger(0)
	other.Close()
	netns.Eventually(t, await.Patience, over(2), "the connection that was reset to be over")
	otherServer.Close()
}

// TestDeleteFlows: entries of UDP that match go, others and those of TCP stay.
func TestDeleteFlows(t *testing.T) {
	netns.Isolated(t)
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	goes, stays := netip.MustParseAddrPort("127.9.9.8:53"), netip.MustParseAddrPort("127.9.9.7:53")
	for _, to := range []netip.AddrPort{goes, stays} {
		led(t, to, "udp", server.LocalAddr().String())
		c, err := net.Dial("udp4", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if all := of(t, to); len(all) != 1 || all[0].Frontend.Protocol != dataplane.UDP || all[0].Over {
			t.Fatalf("flows are %+v", all)
		}
	}
	for _, want := range []int{1, 0} {
		if n, err := DeleteFlows(V4, func(f Flow) bool { return f.Frontend.Addr == goes }); n != want || err != nil {
			t.Errorf("%d deleted, %v; want %d", n, err, want)
		}
	}
	if len(of(t, goes)) != 0 || len(of(t, stays)) != 1 {
		t.Errorf("left are %+v and %+v", of(t, goes), of(t, stays))
	}
}

// TestDecodeOfAnything: a message that is cut off, or has other things in it, is none.
func TestDecodeOfAnything(t *testing.T) {
	netns.Isolated(t)
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := netip.MustParseAddrPort("127.9.9.6:53")
	led(t, to, "udp", server.LocalAddr().String())
	c, err := net.Dial("udp4", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var message []byte
	err = dump(V4, func(f Flow, m []byte) {
		if f.Frontend.Addr == to {
			message = bytes.Clone(m)
		}
	})
	if err != nil || message == nil {
		t.Fatalf("no message, %v", err)
	}
	whole, ok := decode(message)
	if !ok {
		t.Fatal("the message of the kernel is none")
	}
	for n := range message {
		if f, ok := decode(message[:n:n]); ok && (f.Frontend != whole.Frontend || f.Endpoint != whole.Endpoint) {
			t.Errorf("of %d bytes it is %+v", n, f)
		}
		spoilt := bytes.Clone(message)
		spoilt[n] ^= 0xff
		_, _ = decode(spoilt) // without a panic
	}
}
