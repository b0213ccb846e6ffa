package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// Result is what one seed came to.
type Result struct {
	Seed     uint64
	Nodes    int
	Trace    uint64 // hash
	Records  uint64 // in the trace
	Virtual  time.Duration
	Healed   time.Duration // from the end of the faults to agreement
	Floor    time.Duration // the most that Healed may be
	Reunited time.Duration // from the end of a partition to agreement
	Detected time.Duration // of the crash in the end
	Tally    *Tally
	Finding  *Finding
	Lines    *Trace // for those who want to read it
}

// Most and fewest members of a run.
const (
	MinNodes = 2
	MaxNodes = 9
)

// run is one seed under way.
type run struct {
	*World
	slots    []*Process // the newest process of each member
	seeds    int        // slots[:seeds] are contacts of all
	contacts bool       // processes keep their contact list after formation
	storming bool
	born     int
}

// Run plays one seed from formation to the last crash.
func Run(seed uint64) Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes := MinNodes + rng.IntN(MaxNodes-MinNodes+1)
	r := &run{World: NewWorld(seed, config(rng), NewTally()), contacts: rng.IntN(2) == 0}
	r.seeds = 1 + rng.IntN(2)
	if r.Cfg.TombstoneTTL < time.Minute {
		r.contacts = true // sides that forgot each other meet at a contact only
	}
	res := Result{Seed: seed, Nodes: nodes, Tally: r.Tally}
	r.form(nodes)
	r.storm(45*time.Second + r.between(0, 45*time.Second))
	res.Healed, res.Floor = r.heal()
	r.rolling()
	res.Reunited = r.reunion()
	r.oneWay()
	res.Detected = r.lastCrash()
	res.Trace, res.Records, res.Virtual = r.Trace.Sum(), r.Trace.Count(), r.Elapsed()
	res.Lines, res.Finding = r.World.Trace, r.Finding()
	return res
}

// config varies what a configuration may vary.
func config(rng *rand.Rand) swim.Config {
	cfg := swim.DefaultLAN()
	if rng.IntN(3) == 0 {
		cfg = swim.DefaultLocal()
	}
	cfg.Cluster = "sim"
	if rng.IntN(3) == 0 {
		cfg.MTU = 768 // one large record and little else
	}
	if rng.IntN(4) == 0 {
		cfg.TombstoneTTL = 20 * time.Second
	}
	return cfg
}

// name is long now and then, so that packets fill up.
func (r *run) name() string {
	r.born++
	name := fmt.Sprintf("n%d", r.born)
	if r.chance(0.2) {
		name += "-with-a-name-as-long-as-host-names-in-large-clouds-tend-to-be"
	}
	return name[:min(len(name), 63)]
}

// join is the contact list of a process: the seeds, where they are now.
func (r *run) join() []netip.AddrPort {
	var list []netip.AddrPort
	for _, p := range r.slots[:min(r.seeds, len(r.slots))] {
		list = append(list, p.Addr)
	}
	return list
}

// peers is the contact list of a process that starts again: the seeds, and what
// the peers file keeps, which is the members of its last run that had not left,
// and those that it was looking for itself.
func (r *run) peers(p *Process) []netip.AddrPort {
	list := append(r.join(), p.contacts...)
	for _, m := range p.Members() {
		if m.Value.State != model.StateLeft && !m.Self {
			list = append(list, m.Addr)
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// form lets members join through a seed, without any fault, and one of them
// leave and come back.
func (r *run) form(nodes int) {
	r.SetCalm(true)
	for range nodes {
		r.slots = append(r.slots, r.World.Join(r.name(), r.join()))
		if r.chance(0.7) {
			r.SetRecord(r.slots[len(r.slots)-1], r.rng.IntN(513))
		}
		r.Run(r.between(0, 2*time.Second))
	}
	r.agree("formation", Floor(&r.Cfg, nodes, 0))
	if !r.contacts {
		for _, p := range r.slots {
			r.Contacts(p, nil)
		}
	}
	if nodes < 3 || r.chance(0.5) {
		return
	}
	p := r.slots[len(r.slots)-1]
	r.Leave(p)
	seen := r.RunUntil(Spread(&r.Cfg, nodes)/2, 50*time.Millisecond, func() bool { return Invariant14LeaveIsNoFailure(r.World, p) == nil })
	if !seen {
		r.Assert("Invariant14LeaveIsNoFailure", "A good-bye is seen by all, as such.", func() error { return Invariant14LeaveIsNoFailure(r.World, p) })
	}
	r.Run(r.between(0, 3*time.Second))
	if r.chance(0.5) {
		r.RunUntil(Spread(&r.Cfg, nodes)*2, 50*time.Millisecond, p.LeaveDone)
		r.End(p)
		r.Run(r.between(0, 10*time.Second))
		r.slots[len(r.slots)-1] = r.Restart(p, false, 0, r.peers(p))
	} else {
		r.Rejoin(p)
	}
	r.agree("rejoin", Floor(&r.Cfg, nodes, 1))
	r.Run(r.between(0, 5*time.Second))
}

// agree waits until the live agree, at most limit, and returns how long it took.
func (r *run) agree(when string, limit time.Duration) time.Duration {
	from := r.now
	if !r.RunUntil(limit, 100*time.Millisecond, func() bool {
		r.startSilent()
		return Invariant15LiveAgree(r.World) == nil
	}) {
		r.Assert("Invariant15LiveAgree", "Once all faults have ended, the live agree within Floor.", func() error {
			if err := Invariant15LiveAgree(r.World); err != nil {
				return fmt.Errorf("%s, after %v: %w", when, r.now-from, err)
			}
			return nil
		})
	}
	return r.now - from
}

// startSilent does what an operator does about a node that fell silent because
// its directory was copied: the copy is gone, so it is started again.
func (r *run) startSilent() {
	for i, p := range r.slots {
		if p.running() && p.Silent() {
			r.slots[i] = r.Restart(p, false, 0, r.peers(p))
		}
	}
}

// heal ends all faults and waits for agreement. Nothing may happen after it.
func (r *run) heal() (took, floor time.Duration) {
	r.MendAll()
	r.SetWeather(Calm())
	for _, p := range r.procs {
		r.Thaw(p)
		if r.slot(p) < 0 { // a copy
			r.End(p)
		}
	}
	for i, p := range r.slots {
		switch {
		case p.running() && p.leaving && r.chance(0.5):
			r.Rejoin(p)
		case p.running() && p.leaving:
			r.End(p)
		}
		if !p.running() && (i < max(2, r.seeds) || r.chance(0.5)) {
			r.slots[i] = r.Restart(p, false, 0, r.peers(p))
		}
	}
	if r.contacts { // what a driver does: names are resolved anew
		for _, p := range r.Live() {
			r.Contacts(p, r.join())
		}
	}
	floor = swim.MaxHold + Floor(&r.Cfg, len(r.slots), len(r.procs)) // some may not be back from a restart
	took = r.agree("heal", floor)
	// Probes that began under the faults still fail, and are refuted.
	r.Run(2 * r.Cfg.ProbePeriod)
	took += r.agree("heal", floor)
	r.RunUntil(Drain(&r.Cfg, len(r.slots)), 100*time.Millisecond, func() bool {
		return Invariant22NothingRunsOn(r.World) == nil && Invariant10QueuesDrain(r.World) == nil
	})
	r.unheld()
	r.SetCalm(true)
	r.Run(5 * time.Second)
	r.Assert("Invariant15LiveAgree", "Once the live agree, they stay agreed.", r.holds(Invariant15LiveAgree))
	return took, floor
}

// reunion parts the live until both sides hold each other dead, without any
// contacts, and heals it. Tombstones are all they have to find each other by.
func (r *run) reunion() time.Duration {
	live := r.Live()
	if len(live) < 2 || r.finding != nil || r.Cfg.TombstoneTTL < time.Hour {
		return 0
	}
	r.SetCalm(false)
	for _, p := range live {
		r.Contacts(p, nil)
	}
	side := live[:1+r.rng.IntN(len(live)-1)]
	r.Partition(side)
	parted := func() error {
		for _, a := range side {
			for _, b := range live[len(side):] {
				if row(a.shadow.rows, b.Disk.ID).Value.State.Live() || row(b.shadow.rows, a.Disk.ID).Value.State.Live() {
					return fmt.Errorf("%s and %s do not", short(a.Name), short(b.Name))
				}
			}
		}
		return nil
	}
	// One after the other: each verdict may take as long as the first.
	limit := Detection(&r.Cfg, len(live)) + time.Duration(len(live))*r.Cfg.ProbePeriod*4
	if !r.RunUntil(limit, 500*time.Millisecond, func() bool { return parted() == nil }) {
		r.Assert("Invariant14CrashIsDetected", "The sides of a partition hold each other dead in time.", parted)
	}
	r.Run(r.between(0, 10*time.Second))
	r.RunUntil(Drain(&r.Cfg, len(live)), 200*time.Millisecond, func() bool { return Invariant10QueuesDrain(r.World) == nil })
	r.MendAll()
	r.meeting = true
	from := r.now
	limit = Reunion(&r.Cfg, len(live))
	if !r.RunUntil(limit, 100*time.Millisecond, func() bool { return Invariant15SidesReunite(r.World) == nil }) {
		r.Assert("Invariant15SidesReunite", fmt.Sprintf("Without contacts, the sides of a partition hold each other alive within %v.", limit), r.holds(Invariant15SidesReunite))
	}
	took := r.now - from
	r.Run(2 * r.Cfg.ProbePeriod)
	r.meeting = false
	r.agree("reunion", Floor(&r.Cfg, len(live), 0))
	return took
}

// oneWay takes one direction of one link away for longer than any suspicion.
func (r *run) oneWay() {
	live := r.Live()
	if len(live) < 3 || r.finding != nil {
		return
	}
	r.SetCalm(false)
	a := live[r.rng.IntN(len(live))]
	b := live[r.rng.IntN(len(live))]
	if a == b {
		return
	}
	r.Cut(a, b)
	end := r.now + Detection(&r.Cfg, len(live))
	for r.now < end && r.finding == nil {
		r.Run(500 * time.Millisecond)
		r.Assert("Invariant18OneWayLinkKillsNobody", "A one-way link kills no node that others reach.", r.holds(Invariant18OneWayLinkKillsNobody))
	}
	r.Mend(a, b)
	r.agree("one-way cut", Floor(&r.Cfg, len(live), 0))
}

// lastCrash ends one process and waits until all others know, and all is quiet.
func (r *run) lastCrash() time.Duration {
	live := r.Live()
	if len(live) < 2 || r.finding != nil {
		return 0
	}
	r.SetCalm(false)
	gone := live[r.rng.IntN(len(live))]
	from, limit := r.now, Detection(&r.Cfg, len(live))
	r.Crash(gone, r.chance(0.7))
	if !r.RunUntil(limit, 50*time.Millisecond, func() bool { return Invariant14CrashIsDetected(r.World, gone) == nil }) {
		r.Assert("Invariant14CrashIsDetected", fmt.Sprintf("All see a crash within D(%d) = %v.", len(live), limit), func() error { return Invariant14CrashIsDetected(r.World, gone) })
	}
	took := r.now - from
	if !r.RunUntil(Drain(&r.Cfg, len(r.slots)), 200*time.Millisecond, func() bool { return Invariant10QueuesDrain(r.World) == nil }) {
		r.Assert("Invariant10QueuesDrain", "In a quiet cluster all queues empty.", r.holds(Invariant10QueuesDrain))
	}
	r.SetCalm(true)
	r.Run(5 * time.Second)
	r.Assert("Invariant22NothingRunsOn", "In a quiet cluster nothing is under way but the probe of the period.", r.holds(Invariant22NothingRunsOn))
	r.Assert("Invariant15LiveAgree", "Once the live agree, they stay agreed.", r.holds(Invariant15LiveAgree))
	return took
}

// current are the slots' processes that ok accepts.
func (r *run) current(ok func(*Process) bool) []*Process {
	var list []*Process
	for _, p := range r.slots {
		if ok(p) {
			list = append(list, p)
		}
	}
	return list
}

// slot is where p is.
func (r *run) slot(p *Process) int { return slices.Index(r.slots, p) }

// holds binds an invariant to the world.
func (r *run) holds(invariant func(*World) error) func() error {
	return func() error { return invariant(r.World) }
}
