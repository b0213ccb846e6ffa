package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// Live are the processes that take part: those that neither ended nor left nor
// fell silent.
func (w *World) Live() []*Process {
	var live []*Process
	for _, p := range w.procs {
		if p.member() {
			live = append(live, p)
		}
	}
	return live
}

// Invariant15LiveAgree: all live processes hold each other, and nobody else,
// alive, at the value, name and address that each says of itself.
func Invariant15LiveAgree(w *World) error {
	live := w.Live()
	for _, p := range live {
		count := 0
		for i := range p.shadow.rows {
			m := &p.shadow.rows[i]
			if !m.Value.State.Live() {
				continue
			}
			count++
			i := slices.IndexFunc(live, func(o *Process) bool { return o.Disk.ID == m.ID })
			if i < 0 {
				return fmt.Errorf("%s holds %s as %v, it does not run", short(p.Name), short(m.Name), m.Value)
			}
			owner := row(live[i].shadow.rows, m.ID)
			if m.Value != owner.Value || m.Name != owner.Name || m.Addr != owner.Addr {
				return fmt.Errorf("%s holds %s at %v as %v, it says %v at %v", short(p.Name), short(m.Name), m.Addr, m.Value, owner.Value, owner.Addr)
			}
		}
		if count != len(live) {
			return fmt.Errorf("%s holds %d members alive, %d run", short(p.Name), count, len(live))
		}
	}
	return nil
}

// Invariant14CrashIsDetected: nobody holds the process that ended live any more.
func Invariant14CrashIsDetected(w *World, gone *Process) error {
	for _, p := range w.Live() {
		if m := row(p.shadow.rows, gone.Disk.ID); m != nil && m.Value.State.Live() {
			return fmt.Errorf("%s still holds %s as %v", short(p.Name), short(gone.Name), m.Value)
		}
	}
	return nil
}

// Invariant14LeaveIsNoFailure: everybody holds a process that said good-bye as
// left. That nobody suspects it is Invariant13's.
func Invariant14LeaveIsNoFailure(w *World, gone *Process) error {
	for _, p := range w.Live() {
		if m := row(p.shadow.rows, gone.Disk.ID); m != nil && m.Value.State != model.StateLeft {
			return fmt.Errorf("%s holds %s as %v after its good-bye", short(p.Name), short(gone.Name), m.Value)
		}
	}
	return nil
}

// Invariant15SidesReunite: all live processes hold each other live.
func Invariant15SidesReunite(w *World) error { return allLive(w) }

// Invariant18OneWayLinkKillsNobody: a node that others reach does not die of one
// lost direction of one link.
func Invariant18OneWayLinkKillsNobody(w *World) error { return allLive(w) }

func allLive(w *World) error {
	for _, p := range w.Live() {
		for _, o := range w.Live() {
			if m := row(p.shadow.rows, o.Disk.ID); m == nil || !m.Value.State.Live() {
				return fmt.Errorf("%s does not hold %s alive", short(p.Name), short(o.Name))
			}
		}
	}
	return nil
}

// Invariant10QueuesDrain: in a quiet cluster nobody has anything left to tell.
func Invariant10QueuesDrain(w *World) error {
	for _, p := range w.Live() {
		in := p.shadow.inspect
		if in.Live > 0 && len(in.Rumours) > 0 {
			return fmt.Errorf("%s still spreads %+v", short(p.Name), in.Rumours)
		}
	}
	return nil
}

// Invariant22NothingRunsOn: in a quiet cluster nothing is under way but the
// probe of the period.
func Invariant22NothingRunsOn(w *World) error {
	for _, p := range w.Live() {
		in := p.shadow.inspect
		// One probe of a member and one of a tombstone each may be in the air.
		if in.Probes > 4 || in.Relays > 0 || len(in.Suspicions) > 0 {
			return fmt.Errorf("%s has %d probes, %d relays, %d suspicions under way", short(p.Name), in.Probes, in.Relays, len(in.Suspicions))
		}
	}
	return nil
}

// Drain is in how long the queues of n members empty: each rumour is sent a
// limited number of times, and a packet may hold as little as one.
func Drain(cfg *swim.Config, n int) time.Duration {
	return time.Duration(n) * Spread(cfg, n)
}
