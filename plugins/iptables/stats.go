package iptables

import (
	"context"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// connections is the counter of connections and UDP senders that were led.
const connections = "connections"

// tally adds up what the rules count. The counters of a rule start anew when its
// chain is made anew: what was counted between the last look and that is lost.
type tally map[place]count

type place struct {
	service  dataplane.Key
	endpoint uint64
	family   rules.Family
}

type count struct{ seen, total uint64 }

// add takes what a rule counts now.
func (t tally) add(at place, now uint64) {
	c := t[at]
	if now >= c.seen {
		c.total += now - c.seen
	} else {
		c.total += now // of a new chain
	}
	c.seen = now
	t[at] = c
}

// Stats yields what stands in the tables: services and endpoints, and how many
// connections were led to each.
func (p *Provider) Stats(ctx context.Context, yield func(dataplane.Counter) bool) error {
	p.shown.mu.Lock()
	plans, last, tools := maps.Clone(p.shown.plans), p.shown.last, p.shown.tools
	p.shown.mu.Unlock()
	if last == nil {
		yield(dataplane.Counter{Name: dataplane.GaugeServices})
		return nil
	}
	found := make(map[rules.Family]*rules.Table)
	for f := range plans {
		t, err := p.read(ctx, tools, f)
		if err != nil {
			return err
		}
		found[f] = t
	}
	for _, c := range p.count(plans, last, found) {
		if !yield(c) {
			break
		}
	}
	return nil
}

func (p *Provider) count(plans map[rules.Family]*rules.Plan, last *dataplane.Snapshot, found map[rules.Family]*rules.Table) []dataplane.Counter {
	p.shown.mu.Lock()
	defer p.shown.mu.Unlock()
	for f, plan := range plans {
		rules.Tally(found[f], plan, func(k dataplane.Key, endpoint, n, _ uint64) bool {
			p.shown.tally.add(place{k, endpoint, f}, n)
			return true
		})
	}
	totals := make(map[dataplane.Key]map[uint64]uint64)
	for at, c := range p.shown.tally {
		if totals[at.service] == nil {
			totals[at.service] = make(map[uint64]uint64)
		}
		totals[at.service][at.endpoint] += c.total
	}
	out := []dataplane.Counter{{Name: dataplane.GaugeServices}}
	for svc := range last.Services() {
		ids, there := programmed(plans, svc.Key)
		if !there {
			continue
		}
		out[0].Value++
		out = append(out, dataplane.Counter{Service: svc.Key, Name: dataplane.GaugeEndpoints, Value: uint64(len(ids))})
	}
	for _, k := range slices.SortedFunc(maps.Keys(totals), dataplane.Key.Compare) {
		var sum uint64
		for _, id := range slices.Sorted(maps.Keys(totals[k])) {
			n := totals[k][id]
			sum += n
			out = append(out, dataplane.Counter{Service: k, Endpoint: id, Name: connections, Value: n})
		}
		out = append(out, dataplane.Counter{Service: k, Name: connections, Value: sum})
	}
	return out
}

// programmed are the endpoints of a service in the tables of both families.
func programmed(plans map[rules.Family]*rules.Plan, k dataplane.Key) (ids []uint64, there bool) {
	for _, plan := range plans {
		some, ok := plan.Programmed(k)
		ids, there = append(ids, some...), there || ok
	}
	slices.Sort(ids)
	return slices.Compact(ids), there
}
