package rules

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// Tally yields, by key and then by endpoint, how many connections were led to each
// endpoint that stands, and the bytes of their first packets: what `iptables-save -c`
// counted since the endpoint's chains were made. A change of a service makes new ones.
func Tally(found *Table, p *Plan, yield func(key dataplane.Key, endpoint, connections, bytes uint64) bool) {
	keys := make([]dataplane.Key, 0, len(p.units))
	for key := range p.units {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, dataplane.Key.Compare)
	type count struct{ id, connections, bytes uint64 }
	for _, key := range keys {
		var counts []count
		for _, planned := range p.units[key].chains {
			c := found.Chain(planned.name)
			if c == nil || len(c.Rules) != len(planned.endpoints) {
				continue // missing or altered
			}
			for i, id := range planned.endpoints {
				if id != 0 {
					counts = append(counts, count{id, c.Rules[i].Packets, c.Rules[i].Bytes})
				}
			}
		}
		slices.SortFunc(counts, func(a, b count) int { return cmp.Compare(a.id, b.id) })
		for i := 0; i < len(counts); {
			sum := counts[i]
			for i++; i < len(counts) && counts[i].id == sum.id; i++ {
				sum.connections += counts[i].connections
				sum.bytes += counts[i].bytes
			}
			if !yield(key, sum.id, sum.connections, sum.bytes) {
				return
			}
		}
	}
}
