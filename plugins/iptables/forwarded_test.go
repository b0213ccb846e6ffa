package iptables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// TestForwardedBesideSockets: a host whose sockets are led by the ebpf data plane
// leads what it forwards by this one. Neither meets what the other does: the host's
// own connections are not translated by conntrack, those of others are.
func TestForwardedBesideSockets(t *testing.T) {
	ours, sockets := build(t), buildCommand(t, "fairlead-dataplane-ebpf")
	eachVariant(t, func(t *testing.T, v host.Variant) {
		// The host's processes have a cgroup; the client, which is another host, is none of them.
		cgroup := netns.Cgroup(t)
		topo := netns.New(t, netns.Options{Nodes: 3})
		router, client, server := topo.Node(0), topo.Node(1), topo.Node(2)
		if err := router.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Run(t.Context(), "ip", "route", "add", "10.200.0.0/16", "via", router.Addr().String()); err != nil {
			t.Fatal(err)
		}
		l, err := server.Listen("tcp", net.JoinHostPort(server.Addr().String(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "server")
				c.Close()
			}
		}()
		const addr = "10.200.11.1:80"
		w := &world{t: t, now: &dataplane.Snapshot{}}
		next := w.snapshot(service("a", vip(addr, dataplane.TCP), l.Addr().(*net.TCPAddr).AddrPort()), service("empty", vip("10.200.11.2:80", dataplane.TCP)))
		config := func(s any) []byte {
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		for _, p := range []*process{
			{path: ours, config: dataplane.Config{JSON: config(settings{Variant: string(v), Mode: "forwarded"})}},
			{path: sockets, config: dataplane.Config{JSON: config(map[string]string{"cgroup": cgroup})}},
		} {
			p.t, p.node, p.cgroup = t, router, cgroup
			p.config.InstanceID, p.config.StateDir = "test."+t.Name(), t.TempDir()
			p.start()
			if r := p.apply(next); len(r.GetStatuses()) > 0 {
				t.Fatalf("%s: %v", p.path, r)
			}
			h, err := p.client.Health(t.Context(), &pb.HealthRequest{})
			if err != nil || h.GetState() != pb.HealthState_HEALTH_STATE_READY {
				t.Errorf("%s: Health says %v, %v", p.path, h, err)
			}
			defer func() {
				_, err := p.client.Cleanup(context.Background(), &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED, InstanceId: p.config.InstanceID})
				if err != nil {
					t.Error(err)
				}
				p.conn.Close()
			}()
		}
		asks := func(n *netns.Node, addr string) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			c, err := n.DialContext(ctx, "tcp", addr)
			if err != nil {
				return "", err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(await.Patience))
			b, err := io.ReadAll(c)
			return string(b), err
		}
		own := func(addr string) (string, error) {
			ip, port, _ := net.SplitHostPort(addr)
			return router.Run(t.Context(), "sh", append(inCgroup(cgroup), "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%s && cat <&3", ip, port))...)
		}
		led := func() (n int) {
			t.Helper()
			err := router.Do(func() error {
				return host.Flows(host.V4, func(f host.Flow) {
					if f.Frontend.Addr == netip.MustParseAddrPort(addr) {
						n++
					}
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if got, err := own(addr); got != "server" || err != nil {
			t.Errorf("the host itself: %q, %v", got, err)
		}
		if n := led(); n != 0 {
			t.Errorf("the host's own connection has %d entries in conntrack, want none", n)
		}
		if got, err := asks(client, addr); got != "server" || err != nil {
			t.Errorf("a client that is forwarded: %q, %v", got, err)
		}
		if n := led(); n != 1 {
			t.Errorf("a forwarded connection has %d entries in conntrack, want 1", n)
		}
		for who, ask := range map[string]func(string) (string, error){"the host": own, "a client": func(addr string) (string, error) { return asks(client, addr) }} {
			if got, err := ask("10.200.11.2:80"); err == nil || !strings.Contains(fmt.Sprint(err), "refused") {
				t.Errorf("%s at a service without endpoints: %q, %v; want it refused", who, got, err)
			}
		}
		out, err := router.Run(t.Context(), "iptables-"+string(v), "-w", "20", "-t", "nat", "-S", "OUTPUT")
		if err != nil || strings.Contains(out, ourComments) {
			t.Errorf("OUTPUT holds %s, %v", out, errors.Join(err))
		}
	})
}
