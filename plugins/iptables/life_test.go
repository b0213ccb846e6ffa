package iptables

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
)

// TestLeads: a connection to a VIP gets to its endpoint, IPv4 and IPv6, TCP and UDP,
// though this host has no route to anywhere.
func TestLeads(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		four, six := listenTCP(t, "127.0.0.1:0", "four"), listenTCP(t, "[::1]:0", "six")
		w.good(w.apply(
			service("four", vip("10.200.1.1:80", dataplane.TCP), four),
			service("six", vip("[fd00:200::1]:80", dataplane.TCP), six),
			service("empty", vip("10.200.1.3:80", dataplane.TCP)),
		))
		answers(t, "10.200.1.1:80", "four")
		answers(t, "[fd00:200::1]:80", "six")
		if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
			t.Errorf("Health says %+v", h)
		}
	})
}
