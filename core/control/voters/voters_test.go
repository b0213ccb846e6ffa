package voters

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// start is when everything of the tables below began; they are decided a minute
// later.
func start() time.Time { return time.Unix(1_000_000, 0) }

// group has the leader 1 and members that are all caught up and active.
func group(voters, learners []uint64) Group {
	g := Group{Leader: 1, Voters: voters, Learners: learners, Progress: map[uint64]Progress{}}
	for _, id := range slices.Concat(voters, learners) {
		g.Progress[id] = Progress{Match: 1000, Active: true, CaughtUp: true}
	}
	return g
}

// servers reads "1 2 3- 4? 5! 6L": alive, dead (-), unknown (?), leaving (!), left (L).
func servers(text string) []Server {
	var out []Server
	for i, word := range strings.Fields(text) {
		s := Server{ID: uint64(word[0] - '0'), Name: "n" + word[:1], State: Alive, Since: start().Add(time.Duration(i) * time.Second)}
		switch word[1:] {
		case "-":
			s.State = Dead
		case "?":
			s.State = Unknown
		case "!":
			s.Leaving = true
		case "!!":
			s.Leaving, s.Forced = true, true
		case "L":
			s.State = Left
		}
		out = append(out, s)
	}
	return out
}

func TestDecide(t *testing.T) {
	ids := func(ids ...uint64) []uint64 { return ids }
	silent := func(g Group, silent ...uint64) Group {
		for _, id := range silent {
			g.Progress[id] = Progress{Match: g.Progress[id].Match}
		}
		return g
	}
	behind := func(g Group, id, match uint64) Group {
		g.Progress[id] = Progress{Match: match, Active: true, CaughtUp: match >= 900}
		return g
	}
	for _, c := range []struct {
		name    string
		rules   Rules
		group   Group
		servers string
		want    Change
		why     string
	}{
		{"all is well", Rules{}, group(ids(1, 2, 3), nil), "1 2 3", Change{}, ""},
		{"a fourth server is a spare", Rules{}, group(ids(1, 2, 3), nil), "1 2 3 4", Change{AddLearner: ids(4)}, "n4 is taken in"},
		{"one spare is enough", Rules{}, group(ids(1, 2, 3), ids(4)), "1 2 3 4 5 6", Change{}, ""},
		{"a dead voter is exchanged in one change", Rules{}, silent(group(ids(1, 2, 3), ids(4)), 3), "1 2 3- 4", Change{Promote: ids(4), Remove: ids(3)}, "n4 takes the place of n3"},
		{"a dead voter without a spare stays", Rules{}, silent(group(ids(1, 2, 3), nil), 3), "1 2 3-", Change{}, "n3 is gone and nobody is there to take its place"},
		{"a dead voter that raft hears of stays", Rules{}, group(ids(1, 2, 3), ids(4)), "1 2 3- 4", Change{}, ""},
		{"a silent voter that gossip hears of stays", Rules{}, silent(group(ids(1, 2, 3), ids(4)), 3), "1 2 3 4", Change{}, ""},
		{"not dead for long enough", Rules{DeadFor: time.Hour}, silent(group(ids(1, 2, 3), ids(4)), 3), "1 2 3- 4", Change{}, ""},
		{"not alive for long enough", Rules{AliveFor: time.Hour}, group(ids(1, 2, 3), nil), "1 2 3 4", Change{}, ""},
		{"the spare is not caught up", Rules{}, behind(silent(group(ids(1, 2, 3), ids(4)), 3), 4, 899), "1 2 3- 4", Change{AddLearner: nil}, "n3 is gone and nobody is there to take its place; catching up: n4"},
		{"the spare is caught up enough", Rules{}, behind(silent(group(ids(1, 2, 3), ids(4)), 3), 4, 900), "1 2 3- 4", Change{Promote: ids(4), Remove: ids(3)}, "takes the place"},
		{"the furthest spare is taken", Rules{}, behind(silent(group(ids(1, 2, 3), ids(4, 5)), 3), 4, 950), "1 2 3- 4 5", Change{Promote: ids(5), Remove: ids(3)}, "n5 takes"},
		{"a change is under way", Rules{}, func() Group { g := group(ids(1, 2, 3), nil); g.Joint = true; return g }(), "1 2 3 4", Change{}, "under way"},
		{"alone with one spare", Rules{}, group(ids(1), ids(2)), "1 2", Change{}, "1 of 3 voters, and their number stays odd"},
		{"alone with two spares", Rules{}, group(ids(1), ids(2, 3)), "1 2 3", Change{Promote: ids(2, 3)}, "2 of 3 voters are missing"},
		{"alone takes in what is needed and a spare", Rules{}, group(ids(1), nil), "1 2 3 4 5", Change{AddLearner: ids(2, 3, 4)}, "taken in"},
		{"two of three becomes three", Rules{}, group(ids(1, 2), ids(3)), "1 2 3", Change{Promote: ids(3)}, "1 of 3 voters are missing"},
		{"a raised target", Rules{Target: 5}, group(ids(1, 2, 3), ids(4, 5)), "1 2 3 4 5", Change{Promote: ids(4, 5)}, "2 of 5"},
		{"a lowered target takes out the dead first", Rules{}, silent(group(ids(1, 2, 3, 4, 5), nil), 2), "1 2- 3 4 5", Change{Remove: ids(2, 5)}, "2 voters more than 3"},
		{"four of three", Rules{}, group(ids(1, 2, 3, 4), nil), "1 2 3 4", Change{Remove: ids(4)}, "1 voters more"},
		{"one that leaves is exchanged", Rules{}, group(ids(1, 2, 3), ids(4)), "1 2! 3 4", Change{Promote: ids(4), Remove: ids(2)}, "n4 takes the place of n2"},
		{"one that leaves goes before a dead one", Rules{}, silent(group(ids(1, 2, 3), ids(4)), 2), "1 2- 3! 4", Change{Promote: ids(4), Remove: ids(3)}, "n4 takes the place of n3"},
		{"one that leaves without a spare stays", Rules{}, group(ids(1, 2, 3), nil), "1 2! 3", Change{}, "n2 is to leave and nobody is there to take its place"},
		{"of one that leaves and a dead one neither is taken for the other", Rules{Target: 5}, silent(group(ids(1, 2, 3, 4, 5), nil), 2), "1 2- 3! 4 5", Change{}, "n2 is gone and nobody is there to take its place; n3 is to leave"},
		{"one is forced out", Rules{}, group(ids(1, 2, 3), nil), "1 2!! 3", Change{Remove: ids(2)}, "at any rate"},
		{"one that is forced out is exchanged if it can be", Rules{}, group(ids(1, 2, 3), ids(4)), "1 2!! 3 4", Change{Promote: ids(4), Remove: ids(2)}, "n4 takes"},
		{"the last one is not forced out", Rules{Target: 1}, group(ids(1), nil), "1!!", Change{}, ""},
		{"the leader is not exchanged", Rules{}, group(ids(1, 2, 3), ids(4)), "1! 2 3 4", Change{}, ""},
		{"a learner that is dead is dropped", Rules{}, silent(group(ids(1, 2, 3), ids(4)), 4), "1 2 3 4-", Change{Remove: ids(4)}, "n4 is no longer there"},
		{"one that said good-bye comes back", Rules{DeadFor: time.Hour}, silent(group(ids(1, 2, 3), ids(4)), 3), "1 2 3L 4", Change{}, ""},
		{"no majority of the result", Rules{}, silent(group(ids(1, 2, 3), ids(4)), 2, 3, 4), "1 2 3- 4", Change{}, "n3 is gone"},
		{"a server never heard of is no spare", Rules{}, group(ids(1, 2, 3), nil), "1 2 3 4?", Change{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.rules, start().Add(time.Minute), c.group, servers(c.servers))
			if !reflect.DeepEqual(normal(got.Change), normal(c.want)) || !strings.Contains(got.Why, c.why) || c.why == "" && got.Why != "" {
				t.Errorf("%+v\nwant %+v, %q", got, c.want, c.why)
			}
		})
	}
}

func normal(c Change) Change {
	for _, list := range []*[]uint64{&c.AddLearner, &c.Promote, &c.Remove} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	return c
}

// world is a group of servers that die and come back at random, and whose leader
// does what is decided.
type world struct {
	random  *rand.Rand
	now     time.Time
	target  int
	group   Group
	servers map[uint64]*Server
}

// TestNeverBelowTarget: whatever dies, the group keeps a number of voters that is
// odd and not below what it had or aims at, never takes part in a change that its
// own majority cannot make, and ends up with living voters only once there are
// enough.
func TestNeverBelowTarget(t *testing.T) {
	for seed := range uint64(scale.N(2000)) {
		w := newWorld(seed)
		lowest := len(w.group.Voters)
		for step := range 400 {
			if step < 300 {
				w.disturb()
			} else {
				w.heal()
			}
			w.step(t, seed, &lowest)
		}
		for _, id := range w.group.Voters {
			if w.servers[id].State != Alive {
				t.Fatalf("seed %d: all is healed, and voter %d of %v is %v", seed, id, w.group.Voters, w.servers[id].State)
			}
		}
		if len(w.group.Voters) != w.target {
			t.Fatalf("seed %d: all is healed, and there are %d voters of %d", seed, len(w.group.Voters), w.target)
		}
	}
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), now: start(), servers: map[uint64]*Server{}}
	w.target = []int{1, 3, 5}[w.random.IntN(3)]
	initial := []uint64{1}
	if w.random.IntN(2) == 0 {
		initial = []uint64{1, 2, 3}
	}
	w.target = max(w.target, len(initial))
	n := w.target + 1 + w.random.IntN(4)
	for id := uint64(1); id <= uint64(n); id++ {
		w.servers[id] = &Server{ID: id, Name: fmt.Sprintf("n%d", id), State: Alive, Since: w.now}
	}
	w.group = group(initial, nil)
	return w
}

func (w *world) disturb() {
	id := uint64(w.random.IntN(len(w.servers)) + 1)
	s := w.servers[id]
	switch w.random.IntN(12) {
	case 0:
		w.set(s, []Liveness{Dead, Left}[w.random.IntN(2)])
	case 1, 2:
		w.set(s, Alive)
	}
	w.advance()
}

func (w *world) heal() {
	for _, s := range w.servers {
		if s.State != Alive && w.random.IntN(5) == 0 {
			w.set(s, Alive)
		}
	}
	w.advance()
}

func (w *world) set(s *Server, to Liveness) {
	if s.State != to {
		s.State, s.Since = to, w.now
	}
}

// advance lets time go by, learners catch up, and a leader be there.
func (w *world) advance() {
	w.now = w.now.Add(time.Duration(w.random.IntN(5)+1) * time.Second)
	last := uint64(w.now.Sub(start()) / time.Second * 20)
	for _, id := range slices.Concat(w.group.Voters, w.group.Learners) {
		p := w.group.Progress[id]
		p.Active = w.servers[id].State == Alive
		if p.Active {
			p.Match += (last - p.Match) / 2
			p.CaughtUp = p.Match >= last-last/10
		}
		w.group.Progress[id] = p
	}
	w.group.Leader = 0
	for _, id := range w.group.Voters {
		if w.servers[id].State == Alive {
			w.group.Leader = id
		}
	}
}

// step decides and carries out, if the group has a leader that a majority follows.
func (w *world) step(t *testing.T, seed uint64, lowest *int) {
	t.Helper()
	if w.group.Leader == 0 || w.up(w.group.Voters) < len(w.group.Voters)/2+1 {
		return
	}
	var all []Server
	for _, s := range w.servers {
		all = append(all, *s)
	}
	d := Decide(Rules{Target: w.target}, w.now, w.group, all)
	c := d.Change
	if c.IsZero() {
		return
	}
	voters := slices.DeleteFunc(slices.Clone(w.group.Voters), func(id uint64) bool { return slices.Contains(c.Remove, id) })
	voters = append(voters, c.Promote...)
	learners := slices.DeleteFunc(append(slices.Clone(w.group.Learners), c.AddLearner...), func(id uint64) bool {
		return slices.Contains(c.Remove, id) || slices.Contains(c.Promote, id)
	})
	*lowest = max(*lowest, min(len(voters), w.target))
	switch {
	case len(voters) < *lowest:
		t.Fatalf("seed %d: %+v leaves %d voters of %d", seed, c, len(voters), *lowest)
	case len(voters)%2 == 0:
		t.Fatalf("seed %d: %+v leaves %d voters", seed, c, len(voters))
	case w.up(voters) < len(voters)/2+1:
		t.Fatalf("seed %d: %+v leaves %v, of which %d are up", seed, c, voters, w.up(voters))
	case slices.Contains(c.Remove, w.group.Leader):
		t.Fatalf("seed %d: %+v removes the leader", seed, c)
	}
	for _, id := range c.Promote {
		if !slices.Contains(w.group.Learners, id) {
			t.Fatalf("seed %d: %+v promotes %d, which is no learner", seed, c, id)
		}
	}
	w.group.Voters, w.group.Learners = voters, learners
	for _, id := range c.Remove {
		delete(w.group.Progress, id)
	}
}

func (w *world) up(voters []uint64) int {
	n := 0
	for _, id := range voters {
		if w.servers[id].State == Alive {
			n++
		}
	}
	return n
}
