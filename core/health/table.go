package health

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// table is what is checked and what came of it. It is a value without a clock
// or randomness of its own: now and u, a source of numbers in [0, 1), are
// arguments. The Runner's mutex guards it.
//
// Invariant: an instance is passing exactly if none of its entries is critical.
// Invariant: each entry with a valid check of an instance in the table is
// either waiting or running, never both.
type table struct {
	instances map[InstanceKey]*instance
	waiting   queue  // checks that end soon
	patient   queue  // those that may not
	kept      memory // of the process before; what is used is taken out

	// Sums over the table.
	checks, passingChecks, passingInstances int
}

// instance is one instance that is checked.
type instance struct {
	key      InstanceKey
	addr     netip.AddrPort
	entries  []*entry
	critical int // entries that are
	since    time.Time
}

// entry is one check of an instance.
type entry struct {
	of      *instance
	check   Check
	id      string // identity, made unique in the instance
	target  netip.AddrPort
	request []byte // what a probe sends

	verdict verdict
	last    outcome
	at      time.Time // end of the last probe

	due     time.Time // of the probe that is waited for, or runs
	place   int       // in the queue; -1: not in it
	running bool
	probed  bool // once at least in this process
}

// changes says what an act on the table changed.
type changes struct {
	instances   bool // some instance's passing, or which instances there are
	checks      bool // some check's verdict, or which checks there are
	toPassing   int  // instances that became so
	toCritical  int
	nextEarlier bool // something may be due before what was due next
}

// soon is how long a check takes that does not hold up others.
const soon = time.Second

// mayHang reports whether the next probe may take its whole timeout, as far as
// can be told from the last one. It changes only while e is in no queue.
func (e *entry) mayHang() bool { return !e.probed || e.last.took > soon }

// queueOf is where e waits.
func (t *table) queueOf(e *entry) *queue {
	if e.mayHang() {
		return &t.patient
	}
	return &t.waiting
}

func newTable(kept memory) *table {
	return &table{instances: map[InstanceKey]*instance{}, kept: kept}
}

func (in *instance) passing() bool { return in.critical == 0 }

// set makes list the whole of what is checked. Of two instances with one key
// the first counts.
func (t *table) set(list []Instance, now time.Time, u func() float64) changes {
	var ch changes
	next := make(map[InstanceKey]*instance, len(list))
	for _, def := range list {
		if next[def.Key] != nil {
			continue
		}
		old := t.instances[def.Key]
		next[def.Key] = t.setInstance(old, def, now, u, &ch)
	}
	for key, old := range t.instances {
		if next[key] != old {
			t.forget(old, &ch)
		}
	}
	t.instances = next
	t.passingInstances = 0
	for _, in := range next {
		if in.passing() {
			t.passingInstances++
		}
	}
	return ch
}

// setInstance returns old if nothing but timing and thresholds differs, else a
// new instance that takes over the entries with the same identity.
func (t *table) setInstance(old *instance, def Instance, now time.Time, u func() float64, ch *changes) *instance {
	ids := identities(def)
	if old != nil && old.has(ids) {
		for i, e := range old.entries {
			t.retime(e, def.Checks[i], now, u(), ch)
		}
		return old
	}
	in := &instance{key: def.Key, addr: def.Addr, since: now}
	taken := map[string]*entry{}
	if old != nil {
		for _, e := range old.entries {
			taken[e.id] = e
		}
	}
	for i, c := range def.Checks {
		e := taken[ids[i]]
		if e != nil {
			t.retime(e, c, now, u(), ch)
			e.of = in
		} else {
			e = t.newEntry(in, c, ids[i], now, u(), ch)
		}
		if !e.verdict.passing {
			in.critical++
		}
		in.entries = append(in.entries, e)
	}
	ch.instances, ch.checks = true, true
	switch {
	case old == nil && in.passing(), old != nil && in.passing() && !old.passing():
		ch.toPassing++
	case old != nil && old.passing() && !in.passing():
		ch.toCritical++
	case old != nil:
		in.since = old.since
	}
	return in
}

func (in *instance) has(ids []string) bool {
	if len(ids) != len(in.entries) {
		return false
	}
	for i, e := range in.entries {
		if e.id != ids[i] {
			return false
		}
	}
	return true
}

// identities returns those of the checks of def; a second one of the same kind
// gets a number. One that cannot be probed is another check than one that can.
func identities(def Instance) []string {
	ids := make([]string, len(def.Checks))
	seen := map[string]int{}
	for i, c := range def.Checks {
		id := c.identity(def.Addr)
		if usable(c, def.Addr) != nil {
			id += " (bad)"
		}
		if seen[id]++; seen[id] > 1 {
			id += " #" + strconv.Itoa(seen[id])
		}
		ids[i] = id
	}
	return ids
}

// usable says why a check of an instance at addr cannot be probed.
func usable(c Check, addr netip.AddrPort) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if to := c.Target(addr); !isTarget(to) {
		return fmt.Errorf("%w: the instance's address %s: set the ip:port where it listens", ErrCheck, to)
	}
	return nil
}

func (t *table) newEntry(in *instance, c Check, id string, now time.Time, u float64, ch *changes) *entry {
	e := &entry{of: in, check: c, id: id, target: c.Target(in.addr), place: -1}
	t.checks++
	if err := usable(c, in.addr); err != nil {
		e.last = outcome{result: resultError, output: clip(err.Error())}
		return e
	}
	e.request = request(e)
	if t.kept.take(in.key, id, now) {
		e.verdict.passing = true
		t.passingChecks++
	}
	t.queueOf(e).put(e, firstDue(now, c.Interval, u))
	ch.nextEarlier = true
	return e
}

// retime gives an entry the timing and thresholds of c, which are heeded from
// its next outcome on. A shorter interval begins now.
func (t *table) retime(e *entry, c Check, now time.Time, u float64, ch *changes) {
	was := e.check
	e.check = c
	if c.Interval >= was.Interval || e.place < 0 {
		return
	}
	if due := now.Add(part(c.Interval, u)); due.Before(e.due) {
		t.queueOf(e).put(e, due)
		ch.nextEarlier = true
	}
}

// forget takes out what was not handed on to another instance.
func (t *table) forget(in *instance, ch *changes) {
	for _, e := range in.entries {
		if e.of != in {
			continue
		}
		e.of = nil
		t.queueOf(e).drop(e)
		t.checks--
		if e.verdict.passing {
			t.passingChecks--
		}
	}
	ch.instances, ch.checks = true, true
}

// take returns a check that is due, and marks it as running; nil: none is.
// Those that may hang are left out unless patient is set.
func (t *table) take(now time.Time, patient bool) *entry {
	q := t.earliest(patient)
	if q == nil {
		return nil
	}
	e := q.take(now)
	if e != nil {
		e.running = true
	}
	return e
}

// next is when the next check that take may return is due; false: none waits.
func (t *table) next(patient bool) (time.Time, bool) {
	q := t.earliest(patient)
	if q == nil {
		return time.Time{}, false
	}
	return (*q)[0].due, true
}

// earliest is the queue whose first check is due first, nil if none waits.
func (t *table) earliest(patient bool) *queue {
	switch {
	case patient && len(t.patient) > 0 && (len(t.waiting) == 0 || t.patient[0].due.Before(t.waiting[0].due)):
		return &t.patient
	case len(t.waiting) > 0:
		return &t.waiting
	}
	return nil
}

// finish takes in the outcome of a probe that take began.
func (t *table) finish(e *entry, out outcome, now time.Time, u float64) changes {
	var ch changes
	e.running = false
	in := e.of
	if in == nil { // it was taken out meanwhile
		return ch
	}
	e.last, e.at = out, now
	first := !e.probed
	e.probed = true
	t.queueOf(e).put(e, nextDue(e.due, now, e.check.Interval, first, u))
	ch.nextEarlier = e.place == 0
	was := in.passing()
	if !e.verdict.observe(out.ok(), e.check) {
		return ch
	}
	ch.checks = true
	if e.verdict.passing {
		in.critical--
		t.passingChecks++
	} else {
		in.critical++
		t.passingChecks--
	}
	if in.passing() == was {
		return ch
	}
	ch.instances, in.since = true, now
	if was {
		t.passingInstances--
		ch.toCritical++
	} else {
		t.passingInstances++
		ch.toPassing++
	}
	return ch
}

func (in *instance) status() Status {
	s := Status{Passing: in.passing(), Since: in.since, Checks: make([]CheckStatus, len(in.entries))}
	for i, e := range in.entries {
		s.Checks[i] = CheckStatus{
			Check: e.check, Passing: e.verdict.passing,
			Successes: e.verdict.successes, Failures: e.verdict.failures,
			At: e.at, Took: e.last.took, OK: e.last.ok(), Output: e.last.output,
		}
	}
	return s
}
