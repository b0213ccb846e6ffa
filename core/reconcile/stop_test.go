package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/view"
)

// A call that is under way when the agent stops, or when the process ends, is
// broken off. The provider is not to blame, and nothing is tried again.
func TestStopIsNoFailure(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		r.p.fault = func(int) fault { return fault{hang: true} }
		lose := r.serve()
		r.pass(100 * time.Millisecond)
		if err := lose(); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.log.String(), "was not reconciled") || r.loop.Status().Error != nil {
			t.Errorf("status %+v, log:\n%s", r.loop.Status(), r.log)
		}
	})
}
