package view_test

import (
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
)

// A flip gives its time to the instance that flipped and to no other, whether
// or not the record shares its definition with the one before.
func TestOnlyWhatFlippedHasANewTime(t *testing.T) {
	fresh := func() *view.Record {
		return rec([]model.Service{service("web", 1)}, instance("a", "web", "10.9.0.2:1", 0), instance("b", "web", "10.9.0.2:2", 0))
	}
	flipped := []model.InstanceState{model.InstancePassing, model.InstanceDraining}
	for name, next := range map[string]func(*view.Record) *view.Record{
		"shared":     func(r *view.Record) *view.Record { return r.With(flipped, at(5)) },
		"read again": func(*view.Record) *view.Record { return fresh().With(flipped, at(5)) },
		"replaced": func(*view.Record) *view.Record {
			d := fresh().Definition
			d.Zone = "z2"
			return view.NewRecord(d, flipped, at(5))
		},
	} {
		first := fresh().With([]model.InstanceState{model.InstancePassing, model.InstancePassing}, at(0))
		v := apply(
			t, view.New(1, 1),
			view.Seen{At: at(0), Member: member(2, model.StateAlive), Record: first},
			view.Seen{At: at(5), Member: member(2, model.StateAlive), Record: next(first)},
		)
		if got := v.Node(2).Record.Since; !got[0].Equal(at(0)) || !got[1].Equal(at(5)) {
			t.Errorf("%s: states since %v, want %v and %v", name, got, at(0), at(5))
		}
	}
}
