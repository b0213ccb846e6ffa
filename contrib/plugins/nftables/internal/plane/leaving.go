package plane

import (
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/host"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// leaving is what leaves wait for, by tag: connections under way that were led before
// they began. The data plane that took this one's place may do NAT as well, and what it
// leads looks the same, so those from before are remembered. A process that is started
// in between remembers what it finds.
type leaving map[string]map[host.Flow]bool

// live counts the connections that still go on, by frontend, and forgets the others.
// The first call remembers all; no connection is led any more by then.
func (l leaving) live(f table.Found) (map[dataplane.Binding]int, error) {
	before, remembered := l[f.Tag]
	frontends := make(map[dataplane.Binding]bool, len(f.Frontends))
	for _, b := range f.Frontends {
		frontends[b] = true
	}
	live, still := make(map[dataplane.Binding]int), make(map[host.Flow]bool)
	if len(frontends) > 0 && !remembered || len(before) > 0 {
		err := host.Flows(func(flow host.Flow) {
			if !flow.Led() || flow.Over || remembered && !before[flow] || !remembered && !frontends[flow.Frontend] {
				return
			}
			still[flow] = true
			live[flow.Frontend]++
		})
		if err != nil {
			return nil, err
		}
	}
	l[f.Tag] = still
	return live, nil
}

// livesIn reports whether a connection of an IP version goes on.
func livesIn(live map[dataplane.Binding]int, v6 bool) bool {
	for b := range live {
		if b.Addr.Addr().Is6() == v6 {
			return true
		}
	}
	return false
}
