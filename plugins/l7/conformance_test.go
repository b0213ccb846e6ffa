package l7

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/test/scale"
)

// TestConformance runs the suite for data planes against the program, started by
// itself and as an agent does it. Its gauges are what the proxy routes by.
func TestConformance(t *testing.T) {
	options := conformance.Options{
		Config: []byte(`{"listen": "127.0.0.1:0", "announce_time": "0s"}`), Services: scale.N(10_000), Reconciles: scale.N(2_000),
	}
	path := programs.path(t, "fairlead-dataplane-l7")
	t.Run("alone", func(t *testing.T) { conformance.TestWith(t, conformance.Target{Exec: path}, options) })
	t.Run("child", func(t *testing.T) { conformance.TestWith(t, conformance.Target{Exec: path, Child: true}, options) })
}
