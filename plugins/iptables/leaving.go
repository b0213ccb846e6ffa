package iptables

import (
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// leaving is what a leave waits for: connections that were led before it began. The
// data plane that took this one's place may do NAT as well, and what it leads looks the
// same, so those from before are remembered. A process that is started in between
// remembers what it finds, the successor's among it; they are not waited for longer
// than the drain time.
type leaving struct {
	of dataplane.CleanupOptions
	// under are connections under way. None is ever added.
	under map[table]map[host.Flow]bool
}

// table is one of the nat tables.
type table struct {
	variant host.Variant
	family  rules.Family
}

// waits says what a table's connections need the inert rule for, "" if for nothing:
// without any rule of NAT the kernel would stop translating them. found is what stood
// before nothing was led there any more: conntrack knows all connections by now. Whose
// frontends are told by the rules; where nothing but the inert rule stands, every
// connection that was translated is taken for one of ours.
func (p *Provider) waits(v host.Variant, f rules.Family, found *rules.Table, what dataplane.CleanupOptions) string {
	if p.leaving == nil || p.leaving.of != what {
		p.leaving = &leaving{of: what, under: make(map[table]map[host.Flow]bool)}
	}
	at := table{v, f}
	before, remembered := p.leaving.under[at]
	frontends := make(map[dataplane.Binding]bool)
	for _, b := range rules.Frontends(found, what.InstanceID, what.AllKnown) {
		frontends[b] = true
	}
	unknown := len(frontends) == 0 && !rules.HasChains(found, what.InstanceID, what.AllKnown)
	begins := !remembered || len(frontends) > 0
	still := make(map[host.Flow]bool)
	err := host.Flows(hostFamily(f), func(flow host.Flow) {
		if !flow.Translated() || flow.Endpoint.Port() == 0 || flow.Over {
			return
		}
		if begins && (unknown || frontends[flow.Frontend]) || !begins && before[flow] {
			still[flow] = true
		}
	})
	if err != nil {
		p.log.Warn("connections that were led may break: conntrack cannot be asked", "error", err)
		return ""
	}
	p.leaving.under[at] = still
	if len(still) == 0 {
		return ""
	}
	return fmt.Sprintf("%d %v connections in conntrack that were led before", len(still), f)
}
