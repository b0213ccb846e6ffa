package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Invariant08SuspectsHaveTimers: a suspicion ends, in time.
func Invariant08SuspectsHaveTimers(o *Observation) error {
	suspects := 0
	for i := range o.After {
		m := &o.After[i]
		clock := suspicion(&o.Is, m.ID)
		if (m.Value.State == model.StateSuspect) != (clock != nil) {
			return fmt.Errorf("%s is %v, its timer is %+v", m.Name, m.Value, clock)
		}
		if clock == nil {
			continue
		}
		suspects++
		// The bounds follow the number of members, a timer keeps those it was
		// set by.
		s := &o.Process.shadow
		if s.least == 0 || clock.Least < s.least {
			s.least = clock.Least
		}
		s.longest = max(s.longest, clock.Longest)
		if clock.Since.After(o.Now()) {
			return fmt.Errorf("the suspicion of %s begins in %v", m.Name, clock.Since.Sub(o.Now()))
		}
		if life := clock.Deadline.Sub(clock.Since); life < s.least || life > s.longest {
			return fmt.Errorf("the suspicion of %s lives %v: want %v to %v", m.Name, life, s.least, s.longest)
		}
		if o.Call == CallTick && o.Process.member() && !clock.Deadline.After(o.Now()) {
			return fmt.Errorf("the suspicion of %s was due %v ago", m.Name, o.Now().Sub(clock.Deadline))
		}
	}
	if o.Is.Counters.Pauses > o.Was.Counters.Pauses && o.Process.thawedAt != o.World.now {
		return fmt.Errorf("it noticed a pause, and shifted its timers, without one")
	}
	if suspects != len(o.Is.Suspicions) {
		return fmt.Errorf("%d suspects have %d timers", suspects, len(o.Is.Suspicions))
	}
	for _, e := range o.Ready.Events {
		if e.Kind != swim.EventDied || e.From.IsValid() || e.Detail != "" || e.Member.Self || len(o.Heard) > 0 {
			continue
		}
		clock := suspicion(&o.Was, e.Member.ID)
		if clock == nil {
			return fmt.Errorf("%s was declared dead unsuspected", e.Member.Name)
		}
		due := clock.Deadline
		if o.Is.Counters.FailedProbes > o.Was.Counters.FailedProbes {
			due = clock.Since.Add(o.Process.shadow.least) // its own accusation, in the same call, made it due
		}
		if due.After(o.Now()) {
			return fmt.Errorf("%s was declared dead %v before its time", e.Member.Name, due.Sub(o.Now()))
		}
	}
	return nil
}

// Invariant09AccusersAreDistinct: who counts as a confirmation.
func Invariant09AccusersAreDistinct(o *Observation) error {
	h := o.World.history
	if o.Is.Counters.FailedProbes > o.Was.Counters.FailedProbes {
		o.noteVerdicts()
	}
	for i := range o.Is.Suspicions {
		s := &o.Is.Suspicions[i]
		for j, a := range s.Accusers {
			if slices.Contains(s.Accusers[:j], a) {
				return fmt.Errorf("%v is accused twice by %v: %v", s.Subject, a, s.Accusers)
			}
			if a == s.Subject || !h.proof[verdict{s.Subject, a}] {
				return fmt.Errorf("%v is accused by %v, which did not", s.Subject, a)
			}
		}
		was := suspicion(&o.Was, s.Subject)
		if was != nil && was.Deadline.Sub(was.Since) == s.Deadline.Sub(s.Since) && len(was.Accusers) == len(s.Accusers) {
			continue
		}
		life := s.Deadline.Sub(s.Since)
		low, high := min(o.Was.Live, o.Is.Live), max(o.Was.Live, o.Is.Live)+2
		fits := false
		for live := low; live <= high && !fits; live++ {
			d := life - Suspicion(&o.World.Cfg, live, len(s.Accusers))
			fits = d.Abs() < time.Microsecond
		}
		if !fits {
			return fmt.Errorf("the suspicion of %v by %d accusers lives %v, no number of live members from %d to %d makes it so", s.Subject, len(s.Accusers), life, low, high)
		}
	}
	return nil
}

// noteVerdicts remembers whom the node accuses now that a probe of its own
// failed. What it says counts too: a suspicion may end in the call it began in.
func (o *Observation) noteVerdicts() {
	me, h := o.Process.Disk.ID, o.World.history
	for i := range o.Is.Suspicions {
		if s := &o.Is.Suspicions[i]; slices.Contains(s.Accusers, me) {
			h.proof[verdict{s.Subject, me}] = true
		}
	}
	for i := range o.Spoken {
		for j := range o.Spoken[i].messages {
			if m := &o.Spoken[i].messages[j]; m.Type == wire.Claim && m.Accusers.Has(me) {
				h.proof[verdict{m.Subject, me}] = true
			}
		}
	}
}

// Suspicion is how long a suspicion lives by its accusers, in a cluster of
// live members: the formula of Config.SuspicionMult and SuspicionMaxMult,
// written a second time.
func Suspicion(cfg *swim.Config, live, accusers int) time.Duration {
	least := cfg.SuspicionMult * float64(cfg.ProbePeriod) * math.Max(1, math.Log10(math.Max(1, float64(live))))
	expected := min(cfg.Confirmations, live-2)
	if expected <= 0 || accusers > expected {
		return time.Duration(least)
	}
	share := math.Log(math.Max(1, float64(accusers))) / math.Log(float64(expected+1))
	return time.Duration(cfg.SuspicionMaxMult*least - share*(cfg.SuspicionMaxMult*least-least))
}

// Invariant10RumoursAreBounded: what a node has to tell.
func Invariant10RumoursAreBounded(o *Observation) error {
	if o.Is.RumourBytes < 0 || o.Is.RumourBytes > o.World.Cfg.QueueBytes {
		return fmt.Errorf("the rumours take %d bytes: at most %d", o.Is.RumourBytes, o.World.Cfg.QueueBytes)
	}
	defer o.noteIdentities()
	// The limit grows and falls with the members; what was sent often under a
	// higher one goes once more.
	s := &o.Process.shadow
	s.limit = max(s.limit, RumourLimit(&o.World.Cfg, max(o.Was.Live, o.Is.Live)+2))
	for i, r := range o.Is.Rumours {
		if r.Sends < 0 || r.Sends >= s.limit {
			return fmt.Errorf("the rumour about %v waits after %d sends: the limit is %d", r.Subject, r.Sends, s.limit)
		}
		same := func(x swim.Rumour) bool { return x.Subject == r.Subject && x.Record == r.Record }
		if slices.ContainsFunc(o.Is.Rumours[:i], same) {
			return fmt.Errorf("two rumours about %v", r.Subject)
		}
		had := math.MaxInt
		if j := slices.IndexFunc(o.Was.Rumours, same); j >= 0 {
			had = o.Was.Rumours[j].Sends
		}
		if r.Sends < had && !o.isNews(r) {
			return fmt.Errorf("the rumour about %v starts anew at %d sends, nothing changed", r.Subject, r.Sends)
		}
	}
	return nil
}

// isNews reports whether the call changed what the rumour says.
func (o *Observation) isNews(r swim.Rumour) bool {
	was, is := row(o.Before, r.Subject), row(o.After, r.Subject)
	switch {
	case was == nil || is == nil:
		return true
	case r.Record:
		return is.Record.Newer(was.Record)
	case was.Value != is.Value, was.Name != is.Name, was.Addr != is.Addr, was.HeldUntil.IsZero() && !is.HeldUntil.IsZero():
		return true
	}
	before, after := suspicion(&o.Was, r.Subject), suspicion(&o.Is, r.Subject)
	if before != nil && after != nil && len(after.Accusers) > len(before.Accusers) {
		return true
	}
	for i := range o.Heard { // the identity of an epoch that was known already
		if c := &o.Heard[i]; c.Subject == r.Subject && c.HasMeta && c.Value.Epoch > o.Process.shadow.news[r.Subject] {
			return true
		}
	}
	return false
}

// noteIdentities remembers which identities are no news any more.
func (o *Observation) noteIdentities() {
	news := o.Process.shadow.news
	for i := range o.Heard {
		if c := &o.Heard[i]; c.HasMeta && row(o.After, c.Subject) != nil {
			news[c.Subject] = max(news[c.Subject], c.Value.Epoch)
		}
	}
}

// Invariant13CalmMeansNoSuspicion: no false alarm without a cause.
func Invariant13CalmMeansNoSuspicion(o *Observation) error {
	if !o.World.calm {
		return nil
	}
	for i := range o.Ready.Events {
		switch e := &o.Ready.Events[i]; e.Kind {
		case swim.EventSuspected, swim.EventRefuted, swim.EventDied, swim.EventNameConflict, swim.EventAddressConflict, swim.EventEpochJumped, swim.EventCloned:
			return fmt.Errorf("%v of %s, %v, without any fault", e.Kind, e.Member.Name, e.Member.Value)
		}
	}
	return nil
}

// Invariant15ReunionKillsNobody: old deaths are no news to those who know better.
func Invariant15ReunionKillsNobody(o *Observation) error {
	for i := range o.Ready.Events {
		if e := &o.Ready.Events[i]; o.World.meeting && e.Kind == swim.EventDied {
			return fmt.Errorf("%s died at %v, told by %v", e.Member.Name, e.Member.Value, e.From)
		}
	}
	return nil
}

// Invariant14OneProbeAPeriod: detection rests on the beat of the probes.
func Invariant14OneProbeAPeriod(o *Observation) error {
	s := &o.Process.shadow
	now := o.World.now
	gap := now - s.probed
	// While there are tombstones, pings of those count as probes too.
	idle := o.Is.Live == 0 || o.Was.Live == 0 || o.Is.Graves > 0 || !o.Process.member() || o.Call == CallRejoin || o.Is.Counters.Pauses > o.Was.Counters.Pauses
	if idle || o.Is.Counters.Probes > o.Was.Counters.Probes {
		s.probed = now
	}
	if limit := o.World.Cfg.ProbePeriod + 2*tickJitter; !idle && gap > limit {
		return fmt.Errorf("no probe for %v: want one within %v", gap, limit)
	}
	return nil
}

// Invariant22NothingIsLeftBehind: what a node has under way comes to an end.
func Invariant22NothingIsLeftBehind(o *Observation) error {
	cfg := &o.World.Cfg
	// Each member is asked at most once per gossip interval, by probes that
	// last one period, and each conflict asks two.
	members := o.Is.Live + o.Is.Graves + 1
	if limit := 4 + members*(2+int(cfg.ProbePeriod/cfg.GossipInterval)) + 2*members*members; o.Is.Probes > limit {
		return fmt.Errorf("%d probes are under way: at most %d", o.Is.Probes, limit)
	}
	if o.Is.Relays > cfg.RelayMax {
		return fmt.Errorf("%d relays are under way: at most %d", o.Is.Relays, cfg.RelayMax)
	}
	// One TCP ping and one exchange a period, and three contacts each retry.
	tokens := len(o.Process.shadow.tokens)
	if limit := 8 + 2*int(cfg.StreamTimeout/cfg.ProbePeriod) + 5*int(cfg.StreamTimeout/cfg.JoinRetry); tokens > limit {
		return fmt.Errorf("%d streams are open: at most %d", tokens, limit)
	}
	if o.Process.node.Silent() {
		tokens = 0 // what it had asked for is nobody's any more
	}
	if o.Is.Streams != tokens {
		return fmt.Errorf("it remembers %d streams, %d are open", o.Is.Streams, tokens)
	}
	if next := o.Process.node.NextDeadline(); o.Call == CallTick && !next.After(o.Now()) {
		return fmt.Errorf("after a tick the next one is due %v ago", o.Now().Sub(next))
	}
	return nil
}
