package voters

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules are what the group aims at; zero fields have their defaults.
type Rules struct {
	// Target is how many voters there shall be: odd. Default 3.
	Target int
	// AliveFor is how long a server has to be alive before it is taken in. Default 3 s.
	AliveFor time.Duration
	// DeadFor is how long a voter has to be dead before it is exchanged, and a
	// learner before it is dropped. Default 10 s.
	DeadFor time.Duration
}

// Liveness is what gossip says of a server.
type Liveness uint8

// The states. Suspicion counts as being alive: it may be refuted.
const (
	Unknown Liveness = iota // never heard of
	Alive
	Dead
	Left // it said good-bye; it may come back
)

// Server is one that is a member of the group or may become one.
type Server struct {
	ID    uint64
	Name  string
	State Liveness
	Since time.Time // of State
	// Leaving says that somebody asked for its removal, and Forced that this is not to
	// wait for another one in its place.
	Leaving, Forced bool
}

// Progress is how far a member is, as the leader knows it.
type Progress struct {
	Match    uint64 // last entry that it surely has
	Active   bool   // it was heard of within an election timeout
	CaughtUp bool   // of a learner: it lacks so little that it may be a voter
}

// Group is the membership as it is applied, and how its members do.
type Group struct {
	Leader           uint64 // who decides
	Voters, Learners []uint64
	Joint            bool // a change is under way
	Progress         map[uint64]Progress
}

// Change is one change of the membership. An empty one is none.
type Change struct {
	AddLearner []uint64
	Promote    []uint64 // learners that become voters
	Remove     []uint64 // voters or learners
}

// IsZero reports whether nothing changes.
func (c Change) IsZero() bool { return len(c.AddLearner)+len(c.Promote)+len(c.Remove) == 0 }

// Decision is what to do, and what there is to be said of the rest.
type Decision struct {
	Change Change
	// Why says what the change is for, or what is waited for; empty if all is well.
	Why string
}

// Default values of Rules.
const (
	defaultTarget   = 3
	defaultAliveFor = 3 * time.Second
	defaultDeadFor  = 10 * time.Second
)

// Decide returns the next change.
func Decide(r Rules, now time.Time, g Group, servers []Server) Decision {
	r.Target = cmp.Or(r.Target, defaultTarget)
	r.AliveFor = cmp.Or(r.AliveFor, defaultAliveFor)
	r.DeadFor = cmp.Or(r.DeadFor, defaultDeadFor)
	if g.Joint {
		return Decision{Why: "a change of the membership is under way"}
	}
	d := decider{rules: r, now: now, group: g, servers: map[uint64]Server{}}
	for _, s := range servers {
		d.servers[s.ID] = s
	}
	return d.decide()
}

type decider struct {
	rules   Rules
	now     time.Time
	group   Group
	servers map[uint64]Server
}

func (d *decider) decide() Decision {
	ready, waiting := d.spares()
	gone := d.gone()
	missing := d.rules.Target - len(d.group.Voters)
	switch exchange := min(len(gone), len(ready)); {
	case missing > 0:
		// Those that are gone are exchanged by the way, with who is left.
		if grow := odd(len(d.group.Voters), min(missing, len(ready))); grow > 0 {
			n := min(len(gone), len(ready)-grow)
			return d.checked(Change{Promote: ready[:grow+n], Remove: gone[:n]}, fmt.Sprintf("%d of %d voters are missing", missing, d.rules.Target))
		}
		if exchange > 0 {
			return d.exchange(gone, ready, exchange)
		}
	case exchange > 0:
		return d.exchange(gone, ready, exchange)
	case missing < 0:
		if c := d.surplus(-missing); !c.IsZero() {
			return d.checked(c, fmt.Sprintf("there are %d voters more than %d", -missing, d.rules.Target))
		}
	}
	if c := d.forced(); !c.IsZero() {
		return d.checked(c, "somebody wants "+d.list(c.Remove)+" out at any rate")
	}
	if c := d.drop(); !c.IsZero() {
		return d.checked(c, d.list(c.Remove)+" is no longer there")
	}
	if c := d.takeIn(max(missing, 0) + len(gone)); !c.IsZero() {
		return d.checked(c, d.list(c.AddLearner)+" is taken in")
	}
	return Decision{Why: d.lack(missing, gone, waiting)}
}

func (d *decider) exchange(gone, ready []uint64, n int) Decision {
	c := Change{Promote: ready[:n], Remove: gone[:n]}
	return d.checked(c, fmt.Sprintf("%s takes the place of %s", d.list(c.Promote), d.list(c.Remove)))
}

// spares returns the learners that may become voters, those furthest on first, and
// those that are not there yet.
func (d *decider) spares() (ready, waiting []uint64) {
	for _, id := range d.group.Learners {
		switch p := d.group.Progress[id]; {
		case !d.alive(id) || d.servers[id].Leaving:
		case p.Active && p.CaughtUp:
			ready = append(ready, id)
		default:
			waiting = append(waiting, id)
		}
	}
	slices.SortFunc(ready, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(d.group.Progress[b].Match, d.group.Progress[a].Match), cmp.Compare(a, b))
	})
	return ready, waiting
}

// gone returns the voters to be exchanged: those that were asked to leave first,
// and among the dead those that are so for longest. The leader is not one of them:
// it hands its office over before it leaves.
func (d *decider) gone() []uint64 {
	var ids []uint64
	for _, id := range d.group.Voters {
		if id != d.group.Leader && (d.servers[id].Leaving || d.dead(id)) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int {
		x, y := d.servers[a], d.servers[b]
		if x.Leaving != y.Leaving {
			return map[bool]int{true: -1, false: 1}[x.Leaving]
		}
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(a, b))
	})
	return ids
}

// dead reports whether gossip says so for long enough, and Raft does not hear of
// the server either.
func (d *decider) dead(id uint64) bool {
	s := d.servers[id]
	return (s.State == Dead || s.State == Left) && d.now.Sub(s.Since) >= d.rules.DeadFor && !d.group.Progress[id].Active
}

func (d *decider) alive(id uint64) bool {
	s := d.servers[id]
	return s.State == Alive && d.now.Sub(s.Since) >= d.rules.AliveFor
}

// surplus takes voters out: the dead ones first, then those with the
// highest ids, but never the leader.
func (d *decider) surplus(n int) Change {
	out := d.gone()
	voters := slices.Sorted(slices.Values(d.group.Voters))
	slices.Reverse(voters)
	for _, id := range voters {
		if id != d.group.Leader && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return Change{Remove: out[:min(odd(len(voters), n), len(out))]}
}

// odd returns n, or one less: so many that voters and they, or voters without them,
// are an odd number.
func odd(voters, n int) int {
	if (voters+n)%2 == 0 {
		n--
	}
	return max(n, 0)
}

// forced takes out a voter without another in its place, as somebody said that it
// shall be so; never the last one.
func (d *decider) forced() Change {
	for _, id := range d.group.Voters {
		if d.servers[id].Forced && id != d.group.Leader && len(d.group.Voters) > 1 {
			return Change{Remove: []uint64{id}}
		}
	}
	return Change{}
}

// drop takes out learners that are gone.
func (d *decider) drop() Change {
	var c Change
	for _, id := range d.group.Learners {
		if d.servers[id].Leaving || d.dead(id) {
			c.Remove = append(c.Remove, id)
		}
	}
	return c
}

// takeIn makes learners of servers that are alive: as many as are needed, and one
// more that is ready when somebody dies.
func (d *decider) takeIn(needed int) Change {
	room := needed + 1 - len(d.group.Learners)
	var ids []uint64
	for id, s := range d.servers {
		if d.alive(id) && !s.Leaving && !d.member(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int {
		return cmp.Or(d.servers[a].Since.Compare(d.servers[b].Since), cmp.Compare(a, b))
	})
	return Change{AddLearner: ids[:max(min(room, len(ids)), 0)]}
}

func (d *decider) member(id uint64) bool {
	return slices.Contains(d.group.Voters, id) || slices.Contains(d.group.Learners, id)
}

// checked holds a change back unless a majority of the voters that result is there.
func (d *decider) checked(c Change, why string) Decision {
	var result, silent []uint64
	for _, id := range append(slices.Clone(d.group.Voters), c.Promote...) {
		if slices.Contains(c.Remove, id) {
			continue
		}
		result = append(result, id)
		if id != d.group.Leader && !d.group.Progress[id].Active {
			silent = append(silent, id)
		}
	}
	if len(result)-len(silent) < len(result)/2+1 {
		return Decision{Why: fmt.Sprintf("%s, but of the voters that result %s was not heard of lately", why, d.list(silent))}
	}
	return Decision{Change: c, Why: why}
}

// lack says what is missing and nobody is there for. Of those that are gone the ones
// that were asked to leave come first.
func (d *decider) lack(missing int, gone, waiting []uint64) string {
	var parts []string
	const alone = " and nobody is there to take its place"
	leaving := slices.DeleteFunc(slices.Clone(gone), func(id uint64) bool { return !d.servers[id].Leaving })
	if dead := gone[len(leaving):]; len(dead) > 0 {
		parts = append(parts, d.list(dead)+" is gone"+alone)
	}
	if len(leaving) > 0 {
		parts = append(parts, d.list(leaving)+" is to leave"+alone)
	}
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("there are %d of %d voters, and their number stays odd", len(d.group.Voters), d.rules.Target))
	}
	if len(parts) > 0 && len(waiting) > 0 {
		parts = append(parts, "catching up: "+d.list(waiting))
	}
	return strings.Join(parts, "; ")
}

// list names servers.
func (d *decider) list(ids []uint64) string {
	var names []string
	for _, id := range ids {
		if s := d.servers[id]; s.Name != "" {
			names = append(names, s.Name)
		} else {
			names = append(names, fmt.Sprintf("%016x", id))
		}
	}
	return strings.Join(names, ", ")
}
