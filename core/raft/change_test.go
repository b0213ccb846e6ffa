package raft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// change makes a change at whoever leads, and again as long as only time is
// missing.
func (g *group) change(c replica.Change) {
	g.t.Helper()
	inDoubt := false
	await.Within(g.t, time.Minute, fmt.Sprintf("the change %+v", c), func() bool {
		err := g.leader().Change(soon(g.t), c)
		for _, passes := range []error{ErrNotLeader, ErrSuperseded, ErrUnknown, replica.ErrChangeOpen, replica.ErrBehind, replica.ErrNoQuorum, replica.ErrLeaderLeaves} {
			if errors.Is(err, passes) {
				inDoubt = inDoubt || errors.Is(err, ErrUnknown)
				return false
			}
		}
		if errors.Is(err, replica.ErrMembers) && inDoubt {
			return true // it was made, by a leader that was deposed before it could say so
		}
		if err != nil {
			g.t.Fatalf("%+v: %v", c, err)
		}
		return true
	})
}

// members waits until all servers of a group have the same members.
func (g *group) members(voters, learners []uint64) {
	g.t.Helper()
	await.Within(g.t, time.Minute, fmt.Sprint("the members ", voters, learners), func() bool {
		for _, id := range slices.Concat(voters, learners) {
			if h := g.hosts[id]; h != nil {
				c := h.Members()
				if !slices.Equal(c.GetVoters(), voters) || !slices.Equal(c.GetLearners(), learners) || len(c.GetVotersOutgoing()) > 0 {
					return false
				}
			}
		}
		return true
	})
}

// A change of the members is applied, though nothing of it is in the state.
func TestChangeIsApplied(t *testing.T) {
	g := newGroup(t, 1, little())
	g.leader()
	g.join(2)
	g.change(replica.Change{AddLearners: []uint64{2}})
	for id, h := range g.hosts {
		await.Until(t, func() string {
			if st, err := h.Standing(); err != nil || st.Applied == 0 || st.Applied < st.Commit {
				return fmt.Sprintf("server %d stands at %+v, %v", id, st, err)
			}
			return ""
		})
	}
}

// A server joins a group that compacted its log long ago, is promoted, and takes
// the place of one that is dead, in one change.
func TestAServerJoins(t *testing.T) {
	g := newGroup(t, 3, little())
	leader := g.leader()
	for i := range 200 {
		g.put(leader, fmt.Sprint("key-", i%50), strings.Repeat("y", 300))
	}
	h := g.join(4)
	if st := h.State(); st.Leader != 0 || len(h.Members().GetVoters()) > 0 {
		t.Errorf("it begins as %+v of %v", st, h.Members())
	}
	g.close(4) // it waits for somebody to add it, also when it is restarted
	h = g.open(4)
	g.change(replica.Change{AddLearners: []uint64{4}})
	if got := g.get(h, "key-49"); len(got) != 300 {
		t.Errorf("the learner reads %q", got)
	}
	dead := leader.ID()%3 + 1
	g.close(dead)
	voters := slices.DeleteFunc([]uint64{1, 2, 3, 4}, func(id uint64) bool { return id == dead })
	g.change(replica.Change{Promote: []uint64{4}, Remove: []uint64{dead}})
	g.members(voters, nil)
	if retired, unneeded := h.Retired(dead); !retired || !unneeded {
		await.Within(t, time.Minute, "the retired server to be known everywhere", func() bool {
			retired, unneeded = h.Retired(dead)
			return retired && unneeded
		})
	}
	// Its id does not come back.
	leader = g.leader()
	g.get(leader, "key-49") // it has all that was done
	if err := leader.Change(soon(t), replica.Change{AddLearners: []uint64{dead}}); !errors.Is(err, ErrRetired) {
		t.Errorf("server %d again: %v", dead, err)
	}
	g.put(h, "last", "1")
	g.close(4)
	g.members(voters, nil)
	if got := g.get(g.open(4), "last"); got != "1" {
		t.Errorf("after a restart it reads %q", got)
	}
	g.members(voters, nil)
}

func TestChangesAreRefused(t *testing.T) {
	g := steady(t, 3, little())
	leader := g.leader()
	follower := g.hosts[leader.ID()%3+1]
	if err := follower.Change(soon(t), replica.Change{Remove: []uint64{leader.ID()}}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("at a follower: %v", err)
	}
	if _, err := follower.Progress(soon(t)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("progress at a follower: %v", err)
	}
	g.put(leader, "a", "1") // it leads for sure
	if err := leader.Change(soon(t), replica.Change{Remove: []uint64{9}}); !errors.Is(err, replica.ErrMembers) {
		t.Errorf("of a stranger: %v", err)
	}
	g.close(follower.ID())
	await.Within(t, time.Minute, "the follower to count as silent", func() bool {
		all, err := leader.Progress(soon(t))
		return err == nil && slices.ContainsFunc(all, func(m replica.Member) bool { return m.ID == follower.ID() && !m.Active })
	})
	// What is left of a group has to be able to go on.
	other := 6 - leader.ID() - follower.ID()
	if err := leader.Change(soon(t), replica.Change{Remove: []uint64{other}}); !errors.Is(err, replica.ErrNoQuorum) {
		t.Errorf("of the one that works: %v", err)
	}
	if retired, _ := leader.Retired(other); retired {
		t.Error("a server is retired by a change that was refused")
	}
	g.join(4)
	g.change(replica.Change{AddLearners: []uint64{4}})
	g.close(4)
	await.Within(t, time.Minute, "the learner to count as silent", func() bool {
		return errors.Is(leader.Change(soon(t), replica.Change{Promote: []uint64{4}}), replica.ErrBehind)
	})
}

// All servers are replaced one by one, the leader too, while writers write at what
// servers there are: no write that was answered is lost.
func TestRollingReplacement(t *testing.T) {
	g := newGroup(t, 3, little())
	g.leader()
	var at atomic.Pointer[Host]
	at.Store(g.leader())
	ctx, cancel := context.WithCancel(t.Context())
	var answered, gap atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		last := time.Now()
		for i := int64(1); ctx.Err() == nil; i++ {
			if r, err := at.Load().Propose(ctx, putOf(fmt.Sprint("w", i), "v")); err != nil || r.Err != nil {
				i--
				continue
			}
			answered.Store(i)
			gap.Store(max(gap.Load(), int64(time.Since(last))))
			last = time.Now()
		}
	}()
	for old := uint64(1); old <= 3; old++ {
		fresh := old + 3
		g.join(fresh)
		g.change(replica.Change{AddLearners: []uint64{fresh}})
		at.Store(g.hosts[fresh]) // a learner takes writes too
		g.change(replica.Change{Promote: []uint64{fresh}, Remove: []uint64{old}})
		before := answered.Load()
		await.Within(t, time.Minute, "writes", func() bool { return answered.Load() > before+5 })
		g.close(old)
	}
	cancel()
	<-done
	g.members([]uint64{4, 5, 6}, nil)
	v, err := g.leader().Read(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(1); i <= answered.Load(); i++ {
		if valueIn(t, v, fmt.Sprint("w", i)) != "v" {
			t.Fatalf("write %d was answered and is not there", i)
		}
	}
	t.Logf("%d writes, the longest gap %v of an election timeout of %v", answered.Load(), time.Duration(gap.Load()), 10*g.tick)
	for id := uint64(1); id <= 3; id++ {
		await.Until(t, func() string { // the next leader may have to see to it
			if retired, unneeded := g.leader().Retired(id); !retired || !unneeded {
				return fmt.Sprintf("server %d: retired %v, unneeded %v", id, retired, unneeded)
			}
			return ""
		})
	}
}

// A server that a leader removed and did not get to mark is marked by the next.
func TestTheNextLeaderMarksWhoLeft(t *testing.T) {
	g := steady(t, 3, little())
	leader := g.leader()
	r, err := leader.Propose(soon(t), store.Command{Space: store.System, Op: &store.Op{Put: &store.PutOp{Key: retiredKey(9), Value: []byte(leaving)}}})
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	g.kill(leader.ID())
	await.Within(t, time.Minute, "the mark", func() bool { _, unneeded := g.leader().Retired(9); return unneeded })
}

// A leader whose process ends is followed by another one well before it was silent
// for an election timeout.
func TestGone(t *testing.T) {
	for _, servers := range []int{3, 5} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			g := newGroup(t, 0, little())
			g.tick = 100 * time.Millisecond
			for id := range uint64(servers) {
				g.dirs[id+1] = t.TempDir()
			}
			for id := range g.dirs {
				g.open(id)
			}
			var took []time.Duration
			// On a busy machine the quickest of some has to be quicker than a wait for
			// the silence of the dead.
			quick := func() bool { return scale.Factor() >= 1 || slices.Min(took) < 10*g.tick }
			for try := 1; try <= scale.N(50) || !quick() && try <= 15; try++ {
				leader := g.leader()
				g.put(leader, "a", "1")
				began := time.Now()
				g.kill(leader.ID())
				next := g.leader()
				took = append(took, time.Since(began))
				g.put(next, "a", "2")
				g.open(leader.ID())
				await.Within(t, time.Minute, "the server that is back", func() bool { return g.hosts[leader.ID()].State().Leader != 0 })
			}
			slices.Sort(took)
			t.Logf("%v", took)
			if median := took[len(took)/2]; median > scale.Bound(300*time.Millisecond, time.Minute) || !quick() {
				t.Errorf("%v", took)
			}
		})
	}
}

// Word that the leader is gone deposes none that is there: of one follower alone,
// and of all, as the leader goes on to speak.
func TestGoneIsWrong(t *testing.T) {
	g := steady(t, 3, little())
	leader := g.leader()
	state := leader.State()
	g.hosts[leader.ID()%3+1].Gone(leader.ID())
	await.Within(t, time.Minute, "the follower to be over it", func() bool {
		return g.hosts[leader.ID()%3+1].State() == replica.State{Term: state.Term, Leader: leader.ID()}
	})
	g.put(leader, "a", "1")
	if now := leader.State(); now != state {
		t.Errorf("the leader of term %d is %+v", state.Term, now)
	}
}
