package agent

import (
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// What all nodes pull is told more rarely than what a rumour carries.
func TestRecordsWithLongVectorsAreFurtherApart(t *testing.T) {
	states := make([]model.InstanceState, record.MaxInstances)
	for _, c := range []struct {
		name string
		edit func(i int) model.InstanceState
		long bool
	}{
		{"all pass", func(int) model.InstanceState { return model.InstancePassing }, false},
		{"each is another", func(i int) model.InstanceState { return model.InstanceState(i % 4) }, true},
	} {
		for i := range states {
			states[i] = c.edit(i)
		}
		vector, err := record.EncodeVector(states)
		if err != nil {
			t.Fatal(err)
		}
		s := &services{toldVector: vector}
		if got := s.pause(); (got == pulledPause) != c.long || got < publishPause {
			t.Errorf("%s: %d bytes, next record after %v", c.name, len(vector), got)
		}
	}
}
