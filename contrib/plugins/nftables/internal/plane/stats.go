package plane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// connections is the counter of connections, and flows of datagrams, that were led to
// an endpoint.
const connections = "connections"

// tally makes numbers that only rise out of counters that come and go with their
// elements. What an element counted after the last look is lost with it.
type tally struct {
	last  table.Counters
	total map[dataplane.Key]*count
}

type count struct {
	all        uint64
	byEndpoint map[uint64]uint64
}

// add takes what the kernel counts now.
func (t *tally) add(now table.Counters, entries map[plan.Place]*plan.Entry) {
	if t.total == nil {
		t.total = make(map[dataplane.Key]*count)
	}
	for at, ends := range now {
		e := entries[at]
		if e == nil {
			continue
		}
		c := t.total[e.Service]
		if c == nil {
			c = &count{byEndpoint: make(map[uint64]uint64)}
			t.total[e.Service] = c
		}
		for what, n := range ends {
			more := n
			if was := t.last[at][what]; was <= n {
				more = n - was
			}
			c.all += more
			c.byEndpoint[what.Endpoint] += more
		}
	}
	t.last = now
}

// Stats yields what is in the kernel: services and endpoints, and how many connections
// were led to each.
func (p *Provider) Stats(_ context.Context, yield func(dataplane.Counter) bool) error {
	list, err := p.count()
	if err != nil {
		return err
	}
	for _, c := range list {
		if !yield(c) {
			break
		}
	}
	return nil
}

func (p *Provider) count() ([]dataplane.Counter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []dataplane.Counter{{Name: dataplane.GaugeServices, Value: uint64(len(p.counts))}}
	if p.tables == nil {
		return out, nil
	}
	counted, err := p.tables.Counters()
	if err != nil {
		return nil, fmt.Errorf("%w: nftables: %w", dataplane.ErrFailed, err)
	}
	p.tally.add(counted, p.entries)
	for k := range p.tally.total {
		if _, there := p.counts[k]; !there {
			delete(p.tally.total, k)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.counts), dataplane.Key.Compare) {
		c := cmp.Or(p.tally.total[k], &count{})
		out = append(
			out,
			dataplane.Counter{Service: k, Name: dataplane.GaugeEndpoints, Value: uint64(p.counts[k])},
			dataplane.Counter{Service: k, Name: connections, Value: c.all},
		)
		for _, id := range slices.Sorted(maps.Keys(c.byEndpoint)) {
			out = append(out, dataplane.Counter{Service: k, Endpoint: id, Name: connections, Value: c.byEndpoint[id]})
		}
	}
	return out, nil
}
