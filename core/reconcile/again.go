package reconcile

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// again says when services that the system refused are tried again: what was in the
// way may be gone, and no change need come for a long time.
type again struct {
	at    time.Time // zero: none was refused
	after time.Duration
}

// How long a refused service waits: twice as long after each try.
const (
	firstAgain = 5 * time.Second
	lastAgain  = 5 * time.Minute
)

// note takes in how all services fare.
func (a *again) note(all []dataplane.ServiceStatus, now time.Time) {
	refused := slices.ContainsFunc(all, func(s dataplane.ServiceStatus) bool { return s.Reason == dataplane.ReasonApplyFailed })
	switch {
	case !refused:
		*a = again{}
	case a.at.IsZero() || a.due(now):
		a.after = min(max(2*a.after, firstAgain), lastAgain)
		a.at = now.Add(a.after)
	}
}

func (a *again) due(now time.Time) bool { return !a.at.IsZero() && !now.Before(a.at) }
