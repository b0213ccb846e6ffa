package ebpf

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// forwarded is the counter of connections and datagrams to a service's endpoints.
const forwarded = "forwarded"

// Stats yields what is in the maps: services and endpoints, how often each was
// chosen, and how often the programs decided for which reason.
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
	if p.data == nil {
		return []dataplane.Counter{{Name: dataplane.GaugeServices}}, nil
	}
	table := p.data.Table()
	out := []dataplane.Counter{{Name: dataplane.GaugeServices, Value: uint64(hostServices(table))}}
	verdicts, err := datapath.ReadReasons(p.data.Shared("reasons"))
	if err != nil {
		return nil, err
	}
	for _, r := range datapath.Reasons() {
		out = append(out, dataplane.Counter{Name: "verdict_" + r.String(), Value: verdicts[r]})
	}
	table.Services(func(v layout.View) bool {
		if !isOwn(v.Key) {
			out = appendService(out, v)
		}
		return true
	})
	return out, nil
}

func appendService(out []dataplane.Counter, v layout.View) []dataplane.Counter {
	out = append(out,
		dataplane.Counter{Service: v.Key, Name: dataplane.GaugeEndpoints, Value: uint64(len(v.Endpoints))},
		dataplane.Counter{Service: v.Key, Name: forwarded, Value: v.Hits.Total},
	)
	for c, r := range reasons() {
		if n := v.Hits.Count[c]; n > 0 { // of most services none of them is counted, ever
			out = append(out, dataplane.Counter{Service: v.Key, Name: r.String(), Value: n})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.Hits.Endpoint)) {
		out = append(out, dataplane.Counter{Service: v.Key, Endpoint: id, Name: forwarded, Value: v.Hits.Endpoint[id]})
	}
	return out
}

// reasons are the names of what is counted of a service beside its hits.
func reasons() iter.Seq2[layout.Count, datapath.Reason] {
	return func(yield func(layout.Count, datapath.Reason) bool) {
		_ = yield(layout.EmptyPassed, datapath.EmptyPassed) && yield(layout.EmptyRefused, datapath.EmptyRefused) &&
			yield(layout.Denied, datapath.Denied) && yield(layout.NoMemory, datapath.NoMemory) && yield(layout.Untracked, datapath.Untracked)
	}
}
