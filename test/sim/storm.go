package sim

import "time"

// storm does everything that can go wrong, at random, for d.
func (r *run) storm(d time.Duration) {
	r.SetCalm(false)
	r.storming = true
	end := r.now + d
	for r.now < end && r.finding == nil {
		r.act()
		if r.chance(0.3) {
			r.SetWeather(r.foul())
		}
		r.Run(r.between(0, 4*time.Second))
	}
	r.storming = false
}

// later does f in d, if the storm lasts until then.
func (r *run) later(d time.Duration, f func()) {
	r.after(d, func() {
		if r.storming {
			f()
		}
	})
}

// foul draws a weather: most of the time some faults are absent, or each would
// hide the others.
func (r *run) foul() Weather {
	x := Calm()
	if r.chance(0.6) {
		x.Loss = 0.5 * r.rng.Float64() * r.rng.Float64()
	}
	if r.chance(0.4) {
		x.DelayMax = r.between(2*time.Millisecond, 150*time.Millisecond)
	}
	if r.chance(0.4) {
		x.Duplicate = 0.15 * r.rng.Float64()
	}
	if r.chance(0.4) {
		x.Reorder, x.ReorderBy = 0.2*r.rng.Float64(), r.between(0, 5*time.Second)
	}
	if r.chance(0.2) {
		x.Corrupt = 0.05 * r.rng.Float64()
	}
	if r.chance(0.3) {
		x.StreamHalf = 0.3 * r.rng.Float64()
	}
	return x
}

// act does one thing. A choice that finds nobody to do it to does nothing.
func (r *run) act() {
	up := r.current(func(p *Process) bool { return p.running() && !p.frozen })
	down := r.current(func(p *Process) bool { return !p.running() })
	pick := func(list []*Process) *Process {
		if len(list) == 0 {
			return nil
		}
		return list[r.rng.IntN(len(list))]
	}
	x, y := pick(up), pick(down)
	switch n := r.rng.IntN(100); {
	case n < 15 && x != nil && len(up) > 1:
		r.Crash(x, r.chance(0.5))
	case n < 40 && y != nil:
		r.restart(y)
	case n < 46 && x != nil:
		r.restart(x) // killed and started at once
	case n < 51 && x != nil:
		r.leave(x)
	case n < 55 && x != nil:
		r.planned(x)
	case n < 62 && x != nil:
		r.Freeze(x)
		r.later(r.between(100*time.Millisecond, 12*time.Second), func() { r.Thaw(x) })
	case n < 72 && len(r.slots) > 1:
		r.split()
	case n < 80 && x != nil:
		if o := pick(up); o != x {
			r.Cut(x, o)
			r.later(r.between(time.Second, 20*time.Second), func() { r.Mend(x, o) })
		}
	case n < 84 && len(r.slots) < MaxNodes:
		r.slots = append(r.slots, r.World.Join(r.name(), r.join()))
	case n < 87 && y != nil:
		r.slots[r.slot(y)] = r.Reinstall(y, r.name(), r.join())
	case n < 89 && x != nil && len(r.procs) < 3*MaxNodes:
		r.copied(x)
	case n < 92 && x != nil:
		r.noise(x)
	case x != nil:
		r.SetRecord(x, r.rng.IntN(513))
	}
}

// restart brings a member back in one of the ways that operators find.
func (r *run) restart(p *Process) {
	back := uint64(0)
	if r.chance(0.2) {
		back = 1 + r.rng.Uint64N(3)
	}
	// Without contacts, addresses that stay are all that members have to find
	// each other again.
	move := r.contacts && r.chance(0.3)
	r.slots[r.slot(p)] = r.Restart(p, move, back, r.peers(p))
}

// leave lets p say good-bye, and then end, come back, or linger.
func (r *run) leave(p *Process) {
	if p.leaving {
		r.Rejoin(p)
		return
	}
	r.Leave(p)
	switch r.rng.IntN(3) {
	case 0:
		r.later(r.between(0, 3*time.Second), func() { r.End(p) })
	case 1:
		r.later(r.between(0, 5*time.Second), func() {
			if p.running() && !p.frozen && p.leaving {
				r.Rejoin(p)
			}
		})
	}
}

// split parts the hosts at random for a while.
func (r *run) split() {
	var side []*Process
	for _, p := range r.slots {
		if r.chance(0.5) {
			side = append(side, p)
		}
	}
	r.Partition(side)
	r.later(r.between(time.Second, 30*time.Second), r.MendAll)
}

// copied starts a second process from a member's directory. One of the two
// falls silent, which one is chance; the copy is not one of the slots.
func (r *run) copied(p *Process) {
	c := r.Copy(p, p.Name, r.join())
	r.later(r.between(5*time.Second, 20*time.Second), func() { r.End(c) })
}

// noise throws random bytes at a process, as a datagram and as a stream.
func (r *run) noise(p *Process) {
	r.Tally.Count(FaultNoise)
	for range 10 {
		data := make([]byte, r.rng.IntN(1500))
		for i := range data {
			data[i] = byte(r.rng.IntN(256))
		}
		if len(data) > 0 && r.chance(0.5) {
			data[0] = 1 // the format version, to come further
		}
		r.step(p, r.slots[0].Addr, data)
		_, _ = r.serve(p, data) // refused, which Invariant21 checks
	}
}
