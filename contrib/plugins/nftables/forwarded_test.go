package main

import (
	"testing"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/conformance/l4"
)

// TestForwarded asks the same of mode forwarded: containers are led, this host is
// not.
func TestForwarded(t *testing.T) {
	netspace.Require(t)
	path, config := build(t), []byte(`{"mode": "forwarded"}`)
	t.Run("conformance", func(t *testing.T) {
		conformance.TestWith(t, conformance.Target{Exec: path, Child: true}, conformance.Options{
			Config: config, Services: netspace.N(10_000), Only: []string{"config", "reconcile", "health", "cleanup", "crash"},
		})
	})
	t.Run("traffic", func(t *testing.T) {
		var only []string // the other checks have clients of the host
		for _, kind := range []string{"vip", "intercept"} {
			for _, of := range []string{"tcp-v4", "tcp-mapped", "tcp-v6", "udp-v4", "udp-mapped", "udp-v6"} {
				only = append(only, "table.container-"+kind+"-"+of)
			}
		}
		l4.Test(t, l4.Target{Exec: path}, profile(), l4.Options{Config: config, Scale: netspace.Scale(), Only: only})
	})
}
