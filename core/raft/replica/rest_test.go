package replica

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// The only server of a group rests while there is nothing to do: ticks do nothing then.
func TestTheOnlyServerRests(t *testing.T) {
	r := alone(t, &pb.ConfState{Voters: []uint64{1}}, 5)
	rests := func(want bool, when string) {
		t.Helper()
		if got := r.Rests(); got != want {
			t.Errorf("%s: it rests: %v", when, got)
		}
	}
	settle := func() {
		for range 10 {
			once(t, r)
		}
	}
	rests(false, "it does not lead yet")
	lead(t, r)
	rests(false, "the first entry of its term is not on disk")
	r.Read()
	settle()
	rests(true, "it leads")
	was := r.State()
	for range 100 {
		r.Tick()
		if rd, more := r.Ready(); more || !r.Rests() || r.State() != was {
			t.Fatalf("a tick made it %+v, and wants %+v", r.State(), rd)
		}
	}

	if err := r.Propose([]byte("x")); err != nil {
		t.Fatal(err)
	}
	rests(false, "an entry is proposed")
	rd, _ := r.Ready()
	rests(false, "it is being written")
	if err := r.Appended(rd.Append); err != nil {
		t.Fatal(err)
	}
	rests(false, "it is not committed")
	settle()
	rests(true, "it is applied")

	if err := r.ProposeChange(ChangeID{1}, Change{AddLearners: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	rests(false, "a change is proposed")
	settle()
	rests(false, "there is a learner")
	r.Tick()
	if rd := once(t, r); len(rd.Send) == 0 {
		t.Error("after a rest the learner is sent nothing at the next tick")
	}
}

// Whoever has others to lead, or to hear of, does not rest.
func TestNobodyElseRests(t *testing.T) {
	for name, conf := range map[string]*pb.ConfState{
		"a voter of two":   {Voters: []uint64{1, 2}},
		"a joint leader":   {Voters: []uint64{1}, VotersOutgoing: []uint64{1, 2}},
		"a learner":        {Voters: []uint64{2}, Learners: []uint64{1}},
		"a removed server": {Voters: []uint64{2}},
		"with a learner":   {Voters: []uint64{1}, Learners: []uint64{2}},
	} {
		r := alone(t, conf, 5)
		_ = r.Campaign() // those that have a vote
		for range 10 {
			if once(t, r); r.Rests() {
				t.Errorf("%s rests as %+v", name, r.State())
			}
			r.Tick()
		}
	}
}
