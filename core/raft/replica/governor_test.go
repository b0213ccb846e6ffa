package replica

import (
	"maps"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/control/voters"
	"github.com/fairlead/fairlead/test/scale"
)

// governor changes who takes part as the leader's controller does, by what gossip says
// of the servers: late, and now and then what is not so.
type governor struct {
	m       *moves
	rules   voters.Rules
	gossip  map[uint64]voters.Server
	unseen  map[uint64]*voters.Unseen // by who leads
	old     []voters.Server           // what somebody still believes
	lies    map[uint64]int64
	leaving map[uint64]bool
	lost    uint64 // a server whose disk is gone for good, and that nobody removed yet
}

// event is how long one event of a simulation takes, for gossip.
const event = 10 * time.Millisecond

func newGovernor(s *sim, target int) *governor {
	m := newMoves(s)
	g := &governor{
		m: m, rules: voters.Rules{Target: target, AliveFor: 30 * event, DeadFor: 100 * event},
		gossip: map[uint64]voters.Server{}, unseen: map[uint64]*voters.Unseen{}, lies: map[uint64]int64{}, leaving: map[uint64]bool{},
	}
	m.governor = g
	s.moves = m
	return g
}

// governed returns who decides about the members; nil: nobody does.
func (s *sim) governed() *governor {
	if s.moves == nil {
		return nil
	}
	return s.moves.governor
}

func (s *sim) time() time.Time { return time.Unix(0, 0).Add(time.Duration(s.now) * event) }

// look has gossip find out who is alive.
func (g *governor) look() []voters.Server {
	s := g.m.s
	if s.r.IntN(3) == 0 {
		g.m.fresh() // somebody joins, unless there are enough
	}
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		if !s.quiet && s.r.IntN(30) == 0 {
			g.lies[id] = s.now + int64(s.r.IntN(400)) // nobody hears it for a while
		}
	}
	for id := uint64(1); id <= maxServers; id++ {
		v, was := s.servers[id], g.gossip[id]
		is := voters.Server{ID: id, State: voters.Dead, Since: s.time(), Leaving: g.leaving[id]}
		if v != nil && v.up && (s.quiet || g.lies[id] <= s.now) {
			is.State = voters.Alive
		}
		switch {
		case v == nil && was.ID == 0:
			continue // it never was
		case was.State == is.State:
			is.Since = was.Since
		}
		g.gossip[id] = is
	}
	return slices.SortedFunc(maps.Values(g.gossip), func(a, b voters.Server) int { return int(a.ID) - int(b.ID) })
}

// decide is what a server that leads does now.
func (g *governor) decide(v *server) (string, Change) {
	s, known := g.m.s, g.look()
	if s.r.IntN(8) == 0 || g.old == nil {
		g.old = known
	}
	if !s.quiet && s.r.IntN(4) == 0 {
		known = g.old
	}
	conf := v.replica.Conf()
	if !s.quiet && s.r.IntN(40) == 0 {
		all := conf.GetVoters()
		g.leaving[all[s.r.IntN(len(all))]] = true
		g.m.counts["asked to leave"]++
	}
	group := g.group(v)
	if g.leaving[v.id] {
		for _, id := range conf.GetVoters() {
			if id != v.id && !g.leaving[id] && group.Progress[id].Active {
				g.m.counts["transfer"]++
				v.replica.Transfer(id)
				return "", Change{}
			}
		}
	}
	// Who was removed is none: it is empty, or will be.
	known = slices.DeleteFunc(slices.Clone(known), func(k voters.Server) bool { return g.m.goneAt[k.ID] > 0 && !member(conf, k.ID) })
	if g.unseen[v.id] == nil {
		g.unseen[v.id] = &voters.Unseen{}
	}
	d := voters.Decide(g.rules, s.time(), group, g.unseen[v.id].Complete(s.time(), group, known))
	switch c := d.Change; {
	case c.IsZero():
		return "", Change{}
	case len(c.Promote) > 0 && len(c.Remove) > 0:
		return "replace", Change{Promote: c.Promote, Remove: c.Remove}
	case len(c.Promote) > 0:
		return "promote", Change{Promote: c.Promote}
	case len(c.Remove) > 0:
		return "remove", Change{Remove: c.Remove}
	default:
		return "add", Change{AddLearners: c.AddLearner}
	}
}

func (g *governor) group(v *server) voters.Group {
	conf := v.replica.Conf()
	out := voters.Group{
		Leader: v.id, Voters: conf.GetVoters(), Learners: conf.GetLearners(), Joint: len(conf.GetVotersOutgoing()) > 0,
		Progress: map[uint64]voters.Progress{},
	}
	for _, p := range v.replica.Members() {
		out.Progress[p.ID] = voters.Progress{Match: p.Match, Active: p.Active, CaughtUp: p.CaughtUp}
	}
	return out
}

func member(c *pb.ConfState, id uint64) bool {
	return slices.Contains(slices.Concat(c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()), id)
}

// lose takes the disk of a voter away, for good: of one at a time, until another one has
// its place.
func (g *governor) lose() {
	s, conf := g.m.s, g.m.conf
	if g.lost != 0 && g.m.goneAt[g.lost] > 0 && g.m.goneAt[g.lost] <= g.m.safe {
		g.lost = 0
	}
	if g.lost != 0 || s.quiet || s.r.IntN(10) > 0 || len(conf.GetVoters()) < 3 || len(conf.GetVotersOutgoing()) > 0 {
		return
	}
	if g.m.safe < g.m.newest {
		return // who votes now may be known to nobody else, and the old voters be needed
	}
	id := conf.GetVoters()[s.r.IntN(len(conf.GetVoters()))]
	v := s.servers[id]
	if v == nil {
		return
	}
	if v.up {
		v.crash()
	}
	delete(s.servers, id)
	g.lost = id
	g.m.counts["lost"]++
}

// check sees that no change that nobody forced leaves fewer voters than there were, or
// are aimed at.
func (g *governor) check(was, is *pb.ConfState) {
	if n, least := len(is.GetVoters()), min(len(was.GetVoters()), g.rules.Target); n < least {
		g.m.s.fail("invariant target: %v of %d voters became %v", was.GetVoters(), g.rules.Target, is.GetVoters())
	}
}

// content reports whether a server that leads would change nothing, and there are as
// many voters as are aimed at, as far as there are servers for that.
func (g *governor) content(v *server) bool {
	if g == nil {
		return true
	}
	conf := v.replica.Conf()
	for _, id := range conf.GetVoters() {
		if g.m.s.servers[id] == nil && len(g.spares(conf)) > 0 {
			return false
		}
	}
	return len(conf.GetVoters()) >= g.rules.Target || len(conf.GetVoters())+len(g.spares(conf)) < g.rules.Target
}

// spares are the servers that could become voters.
func (g *governor) spares(conf *pb.ConfState) (ids []uint64) {
	for id := range g.m.s.servers {
		if g.m.goneAt[id] == 0 && !slices.Contains(conf.GetVoters(), id) && !g.leaving[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestSimulationOfControl has the rules by which a leader keeps its group at what is aimed
// at decide on the members, while servers crash, are cut off, lose their disks, are
// taken for dead though they live, and are asked to leave. No term has two leaders, no
// write that was answered is lost, the voters never get fewer than are aimed at, and
// in the end there are as many, and no change is stuck.
func TestSimulationOfControl(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(scale.N(500)) {
		var s *sim
		target := 3 + 2*int(seed/5%2)
		err := guarded(t, 1_000_000+seed, 1+int(seed)%5, func(made *sim) {
			s = made
			newGovernor(s, target)
		})
		if err != nil {
			t.Fatalf("seed %d, %d servers of %d: %v", seed, 1+seed%5, target, err)
		}
		for what, n := range s.moves.counts {
			counts[what] += n
		}
	}
	for _, what := range []string{"add", "promote", "replace", "remove", "transfer", "wiped", "lost", "asked to leave", "in force"} {
		if counts[what] == 0 {
			t.Errorf("nothing was counted as %q", what)
		}
	}
	t.Log(counts)
}
