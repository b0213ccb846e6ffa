package e2e

import (
	"testing"
	"time"
)

// TestForwardedBesideEBPF: a host with the planes ebpf, iptables in mode forwarded, and
// l7 leads its own sockets, and those of a client that is routed through it.
func TestForwardedBesideEBPF(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	a, outside := f.agents[0], f.agents[1].node
	h := newPlaneHost(a, "ebpf,iptables,l7", object{"iptables": object{"mode": "forwarded"}, "l7": object{"listen": "127.0.0.1:8080"}})
	h.install("l7", "l7")
	h.does("sysctl", "-qw", "net.ipv4.ip_forward=1")
	if _, err := outside.Run(t.Context(), "ip", "route", "add", "10.200.0.0/16", "via", a.node.Addr().String()); err != nil {
		t.Fatal(err)
	}
	h.serves("ebpf", 2)
	h.programmed("iptables", 2)
	own := h.dials("--to", vipOfWeb, "--rate", "50")
	client := &dialer{outside.Start(plugins+"/dialer", []string{"--to", vipOfWeb, "--rate", "50", "--limit", dialLimit().String()})}
	own.answers(a, "a", "b")
	client.answers(a, "a", "b")
	h.eventually(20*time.Second, "the proxy answers", func() error {
		_, err := h.asks("127.0.0.1:8080", "web")
		return err
	})
	h.refuses(vipOfEmpty)
	own.stopped(t, "a", "b")
	client.stopped(t, "a", "b")
}
