package ebpf

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance/l4"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestTraffic asks the provider, as a process, what becomes of connections and
// datagrams.
func TestTraffic(t *testing.T) {
	netns.Isolated(t)
	l4.Test(t, l4.Target{Exec: build(t)}, l4.Profile{
		Limit: &l4.Limit{Config: []byte(`{"max_frontends": 8}`), Services: 20, Fit: 7},
	}, l4.Options{Scale: scale.Factor()})
}
