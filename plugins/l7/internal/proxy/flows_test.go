package proxy

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

func TestFlowsAreSampledAndBounded(t *testing.T) {
	second := time.Unix(100, 0)
	for _, c := range []struct {
		options dataplane.FlowOptions
		of      int
		want    int
	}{
		{dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 10}, 8, 8},
		{dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 10}, 100, 10},
		{dataplane.FlowOptions{SampleOneIn: 4, MaxPerSecond: 10}, 20, 5},
		{dataplane.FlowOptions{SampleOneIn: 4, MaxPerSecond: 10}, 400, 10},
		{dataplane.FlowOptions{}, 100, 100},
	} {
		w := &flowWatcher{options: c.options}
		for range 2 { // two seconds
			got := 0
			for range c.of {
				if w.take(second) {
					got++
				}
			}
			if got != c.want {
				t.Errorf("%+v: %d of %d, want %d", c.options, got, c.of, c.want)
			}
			second = second.Add(time.Second)
		}
	}
}

func TestNobodyWatches(t *testing.T) {
	var f Flows
	told := map[string]int{}
	tell := func(name string) func(dataplane.Flow) { return func(dataplane.Flow) { told[name]++ } }
	request := &exchange{r: httptest.NewRequest("GET", "http://web/", nil), start: time.Unix(1, 0), reason: ReasonUnknownHost}
	f.observed(request, 0)
	a := f.Watch(dataplane.FlowOptions{}, tell("a"))
	b := f.Watch(dataplane.FlowOptions{SampleOneIn: 2}, tell("b"))
	f.observed(request, 0)
	f.observed(request, 0)
	a()
	f.observed(request, 0)
	b()
	f.observed(request, 0)
	if told["a"] != 2 || told["b"] != 1 {
		t.Errorf("told %v", told)
	}
	if f.list.Load() != nil {
		t.Error("somebody is left")
	}
	if n := testing.AllocsPerRun(100, func() { f.observed(request, 0) }); n != 0 {
		t.Errorf("with nobody watching a request makes %v allocations", n)
	}
}
