package sim

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/swim"
)

// holdDone is how long a driver waits for an announcement to spread.
const holdDone = 5 * time.Second

// plannedStop lets p announce a restart, and ends it once all have heard.
func (r *run) plannedStop(p *Process, hold time.Duration) {
	r.Hold(p, hold)
	if !r.RunUntil(holdDone, 10*time.Millisecond, p.node.HoldDone) {
		r.Assert("Invariant23HoldIsHeard", "An announced restart is known to all before the node stops.", func() error {
			return fmt.Errorf("%s does not know after %v that all have heard", p, holdDone)
		})
	}
	r.End(p)
	r.restarts = p
}

// rolling restarts the live one after the other, each with a hold, while
// packets are lost or not: nobody takes a restart for a failure. Then one does
// not come back, and all see it once its hold is over.
func (r *run) rolling() {
	live := r.Live()
	if len(live) < 2 || r.finding != nil {
		return
	}
	r.SetCalm(false)
	for _, p := range live {
		if r.spent(p) { // a new epoch has a hold again
			r.Leave(p)
			r.Rejoin(p)
		}
	}
	r.agree("new epochs", Floor(&r.Cfg, len(live), 0))
	weather := Calm()
	if r.SetCalm(r.chance(0.5)); !r.calm {
		weather.Loss = 0.3 * r.rng.Float64()
	}
	r.SetWeather(weather)
	for _, p := range live {
		hold := r.between(6*time.Second, swim.MaxHold)
		r.plannedStop(p, hold)
		r.Run(r.between(0, hold/2)) // the rest is for a start among losses
		if r.finding != nil {
			return
		}
		r.restarts = nil
		next := r.Restart(p, false, 0, r.peers(p))
		r.slots[r.slot(p)] = next
		r.agree("planned restart", Floor(&r.Cfg, len(live), 0))
		r.Run(r.between(0, 2*time.Second))
	}
	r.agree("rolling restart", Floor(&r.Cfg, len(live), 0))
	r.SetWeather(Calm())

	r.SetCalm(false)
	live = r.Live()
	gone := live[r.rng.IntN(len(live))]
	hold := r.between(time.Second, swim.MaxHold)
	from := r.now
	r.plannedStop(gone, hold)
	r.Run(hold - (r.now - from) - time.Millisecond)
	r.restarts = nil
	limit := hold + Detection(&r.Cfg, len(live)) - (r.now - from)
	if !r.RunUntil(limit, 50*time.Millisecond, func() bool { return Invariant14CrashIsDetected(r.World, gone) == nil }) {
		r.Assert("Invariant23HoldEnds", fmt.Sprintf("All see within D(%d) after its hold that a node did not come back.", len(live)),
			func() error { return Invariant14CrashIsDetected(r.World, gone) })
	}
	if r.finding == nil {
		r.slots[r.slot(gone)] = r.Restart(gone, false, 0, r.peers(gone))
		r.agree("late restart", Floor(&r.Cfg, len(live), 1))
	}
}

// spent reports whether p had the hold of its epoch.
func (r *run) spent(p *Process) bool {
	for v := range r.history.of(p.Disk.ID).held {
		if v.Epoch == row(p.shadow.rows, p.Disk.ID).Value.Epoch {
			return true
		}
	}
	return false
}

// unheld waits until no hold of the storm is in force: it would delay what is
// timed next.
func (r *run) unheld() {
	r.RunUntil(swim.MaxHold, time.Second, func() bool {
		for _, p := range r.procs {
			for i := range p.shadow.rows {
				if p.running() && !p.shadow.rows[i].HeldUntil.IsZero() {
					return false
				}
			}
		}
		return true
	})
}

// planned announces a restart in a storm. The node may stop before all have
// heard, and come back in time, late, or not at all.
func (r *run) planned(p *Process) {
	r.Hold(p, r.between(time.Second, swim.MaxHold))
	r.later(r.between(0, 3*time.Second), func() { r.End(p) })
	r.later(r.between(3*time.Second, 40*time.Second), func() {
		if !p.running() && r.slot(p) >= 0 && r.chance(0.7) {
			r.restart(p)
		}
	})
}
