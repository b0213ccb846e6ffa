package view_test

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

// large is a view of 10,000 services with 10 endpoints each on 250 nodes.
func large(tb testing.TB) (*view.View, []view.Seen) {
	const nodes, services, each = 250, 10_000, 10
	defs := make([]record.Definition, nodes)
	for s := range services {
		name := fmt.Sprintf("service-%05d", s)
		for i := range each {
			d := &defs[(s*7+i*25)%nodes]
			d.Services = append(d.Services, service(name, 1))
			d.Instances = append(d.Instances, instance(fmt.Sprintf("%s-%d", name, i), name, "127.0.0.1:9000", uint16(10000+len(d.Instances))))
		}
	}
	v := view.New(self, 1)
	var seen []view.Seen
	for i, d := range defs {
		states := make([]model.InstanceState, len(d.Instances))
		for j := range states {
			states[j] = model.InstancePassing
		}
		e := view.Seen{At: at(0), Member: member(model.NodeID(i+1), model.StateAlive), Record: view.NewRecord(d, states, at(0))}
		seen = append(seen, e)
		v = view.Apply(v, e)
	}
	if v.Len() != services || v.EndpointCount() != services*each {
		tb.Fatalf("%d services, %d endpoints", v.Len(), v.EndpointCount())
	}
	return v, seen
}

func BenchmarkOneInstanceFails(b *testing.B) {
	v, seen := large(b)
	e := seen[3]
	n := len(e.Record.States)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		states := make([]model.InstanceState, n)
		for j := range states {
			states[j] = model.InstancePassing
		}
		if i%2 == 0 {
			states[5] = model.InstanceCritical
		}
		was := v
		e.Record = e.Record.With(states, at(i))
		v = view.Apply(v, e)
		if len(view.Diff(was, v)) != 1 {
			b.Fatal("want one change")
		}
	}
}

// A node runs 400 instances, so 400 services change at once.
func BenchmarkOneNodeSuspected(b *testing.B) {
	v, seen := large(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		was := v
		v = view.Apply(v, view.Seen{At: at(i), Member: member(seen[3].Member.ID, model.State(1-i%2))})
		if len(view.Diff(was, v)) == 0 {
			b.Fatal("no change")
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	v, _ := large(b)
	var nodes []*view.Node
	for n := range v.Nodes() {
		nodes = append(nodes, n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		view.Build(self, 1, view.Exchanged, nodes)
	}
}
