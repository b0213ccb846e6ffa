package rules

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// TestSources: an endpoint sees the client's own address and port wherever its answer
// comes back by itself, and an address of the host that leads where it would not.
func TestSources(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	for _, variant := range variants {
		for _, f := range Families() {
			t.Run(fmt.Sprint(variant, " ", f), func(t *testing.T) { testSources(t, variant, f) })
		}
	}
}

func testSources(t *testing.T, variant string, f Family) {
	topo := netns.New(t, netns.Options{Nodes: 3})
	host, other, client := topo.Node(0), topo.Node(1), topo.Node(2)
	addr := func(n *netns.Node) netip.Addr {
		if f == IPv4 {
			return n.Addr()
		}
		return n.Addr6()
	}
	r := real{t, host, map[Family]string{IPv4: "iptables-", IPv6: "ip6tables-"}[f] + variant}
	pool, forwarding := fleetOptions().Pools[0], "/proc/sys/net/ipv4/ip_forward"
	if f == IPv6 {
		pool, forwarding = fleetOptions().Pools[1], "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	if err := host.Do(func() error { return os.WriteFile(forwarding, []byte("1"), 0o600) }); err != nil {
		t.Fatal(err)
	}
	ip := func(n *netns.Node, args ...string) {
		t.Helper()
		if _, err := n.Run(t.Context(), "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	ip(client, "route", "add", pool.String(), "via", addr(host).String())

	vip := netip.AddrPortFrom(pool.Addr().Next(), 80)
	var plan *Plan
	lead := func(to *netns.Node) {
		t.Helper()
		svc := *plain(1, vip, 0)
		svc.Endpoints = dataplane.NewEndpoints(dataplane.Endpoint{ID: 1, Addr: netip.AddrPortFrom(addr(to), 9000), Weight: 1})
		o := fleetOptions()
		o.Features.RandomFully = true // so that a port that stays tells
		next := Build(f, slices.Values([]*dataplane.Service{&svc}), o, plan)
		text := Restore(plan, next)
		if plan == nil {
			text = Repair(r.found(), next)
		}
		r.restore(text)
		plan = next
	}
	for _, n := range topo.Nodes() {
		mirror(t, n, netip.AddrPortFrom(addr(n), 9000))
	}

	ip(host, map[Family]string{IPv4: "-4", IPv6: "-6"}[f], "route", "add", pool.String(), "dev", "eth0")
	for _, step := range []struct {
		name     string
		from, to *netns.Node
		local    bool // the VIP is an address of the host, and so the source
		own      bool // the client's address and port stay
	}{
		{"a socket of the host", host, other, false, true},
		{"a socket of the host, to itself", host, host, false, true},
		{"a socket of the host whose source is the VIP", host, other, true, false},
		{"a forwarded client", client, other, false, false},
		{"a forwarded client, to the host", client, host, false, true},
		{"a forwarded client, to itself", client, client, false, false},
	} {
		if step.local {
			add := []string{"addr", "add", vip.Addr().String(), "dev", "lo"}
			if f == IPv6 {
				add = append(add, "nodad") // or it is no source for a moment
			}
			ip(host, add...)
		}
		lead(step.to)
		seen, own := dialMirror(t, step.from, vip)
		if step.own && seen != own || !step.own && (seen == own || seen.Addr() != addr(host)) {
			t.Errorf("%s: the endpoint sees %v of %v, the host is %v", step.name, seen, own, addr(host))
		}
		if step.local {
			ip(host, "addr", "del", vip.Addr().String(), "dev", "lo")
		}
	}
}

// mirror tells each client how it looks.
func mirror(t *testing.T, n *netns.Node, at netip.AddrPort) {
	t.Helper()
	l, err := n.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_, _ = io.WriteString(c, c.RemoteAddr().String())
			_ = c.Close()
		}
	}()
}

func dialMirror(t *testing.T, n *netns.Node, to netip.AddrPort) (seen, own netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c, err := n.DialContext(ctx, "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	seen, err = netip.ParseAddrPort(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return seen, c.LocalAddr().(*net.TCPAddr).AddrPort()
}
