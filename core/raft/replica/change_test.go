package replica

import (
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// alone returns a replica of so many entries, of which it knows one to be
// committed.
func alone(t *testing.T, conf *pb.ConfState, entries uint64) *Replica {
	t.Helper()
	found := Initial{
		Hard:     &pb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))},
		Snapshot: &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf},
	}
	for i := uint64(2); i <= entries; i++ {
		found.Entries = append(found.Entries, entryOf(i, 1))
	}
	r, err := New(Config{ID: 1, ElectionTicks: 10, HeartbeatTicks: 1, Logger: silent{t}}, found)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// once carries out what the replica wants done now, and returns it.
func once(t *testing.T, r *Replica) Ready {
	t.Helper()
	rd, _ := r.Ready()
	if rd.Append != nil {
		if err := r.Appended(rd.Append); err != nil {
			t.Fatal(err)
		}
	}
	if rd.Apply != nil {
		if err := r.Applied(rd.Apply); err != nil {
			t.Fatal(err)
		}
	}
	return rd
}

// lead makes it lead; what it appends first is not written yet.
func lead(t *testing.T, r *Replica) {
	t.Helper()
	if err := r.Campaign(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if r.State().Leads() {
			return
		}
		once(t, r)
	}
	t.Fatal("it does not lead")
}

// How far entries are committed is not always on disk: the only voter finds that
// out with the first entry of its term, and answers no read before.
func TestTheOnlyVoterReadsWhatWasCommitted(t *testing.T) {
	r := alone(t, &pb.ConfState{Voters: []uint64{1}}, 5)
	lead(t, r)
	read := r.Read()
	var got []Confirmed
	for range 10 {
		got = append(got, once(t, r).Reads...)
	}
	if len(got) != 1 || got[0].Read != read || got[0].Index < 6 {
		t.Errorf("%+v, want index 6 at least", got)
	}
}

// A server without a vote stands for no election, and does not believe for ever in a
// leader that it hears nothing of.
func TestALeaderThatIsSilentIsForgotten(t *testing.T) {
	for name, conf := range map[string]*pb.ConfState{
		"a learner":        {Voters: []uint64{2}, Learners: []uint64{1}},
		"a removed server": {Voters: []uint64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t, conf, 1)
			heartbeat := func() {
				m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(2)), Commit: new(uint64(1))}
				if err := r.Step(m); err != nil {
					t.Fatal(err)
				}
			}
			wait := func(ticks int, want uint64) {
				t.Helper()
				for range ticks {
					r.Tick()
					once(t, r)
				}
				if got := r.State().Leader; got != want {
					t.Errorf("the leader is %d, want %d", got, want)
				}
			}
			for range 3 {
				heartbeat()
				wait(silentElections*10-1, 2)
			}
			wait(1, 0)
			heartbeat()
			wait(1, 2)
		})
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	r := alone(t, &pb.ConfState{Voters: []uint64{1}, Learners: []uint64{2, 3}}, 1)
	if err := r.ProposeChange(ChangeID{1}, Change{Remove: []uint64{2}}); !errors.Is(err, ErrDropped) {
		t.Errorf("it does not lead: %v", err)
	}
	lead(t, r)
	if err := r.ProposeChange(ChangeID{1}, Change{Remove: []uint64{2}}); !errors.Is(err, ErrChangeOpen) {
		t.Errorf("it leads just now: %v", err)
	}
	for range 10 {
		once(t, r)
	}
	for name, c := range map[string]struct {
		change Change
		want   error
	}{
		"of nothing":           {Change{}, ErrMembers},
		"of server 0":          {Change{AddLearners: []uint64{0}}, ErrMembers},
		"of one twice":         {Change{Promote: []uint64{2}, Remove: []uint64{2}}, ErrMembers},
		"adds a voter":         {Change{AddLearners: []uint64{1}}, ErrMembers},
		"adds a learner again": {Change{AddLearners: []uint64{2}}, ErrMembers},
		"promotes a stranger":  {Change{Promote: []uint64{4}}, ErrMembers},
		"promotes a voter":     {Change{Promote: []uint64{1}}, ErrMembers},
		"removes a stranger":   {Change{Remove: []uint64{4}}, ErrMembers},
		"leaves nobody":        {Change{Remove: []uint64{1}}, ErrNoVoters},
		"promotes the silent":  {Change{Promote: []uint64{2}}, ErrBehind},
	} {
		if err := r.ProposeChange(ChangeID{1}, c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := r.ProposeChange(ChangeID{1}, Change{Remove: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	if err := r.ProposeChange(ChangeID{2}, Change{Remove: []uint64{3}}); !errors.Is(err, ErrChangeOpen) {
		t.Errorf("a second one: %v", err)
	}
	var done []Changed
	for range 10 {
		done = append(done, once(t, r).Done...)
	}
	if len(done) != 1 || done[0] != (Changed{ChangeID{1}, InForce}) {
		t.Errorf("%+v", done)
	}
}

// A leader that is heard of nobody it would need changes nothing, and a leader
// does not remove itself.
func TestChangesThatNeedAQuorum(t *testing.T) {
	r := alone(t, &pb.ConfState{Voters: []uint64{1, 2, 3}}, 1)
	answer := func(from uint64, kind pb.MessageType, index uint64) {
		t.Helper()
		m := &pb.Message{Type: kind.Enum(), From: new(from), To: new(uint64(1)), Term: new(r.State().Term), Index: new(index)}
		if kind == pb.MsgPreVoteResp {
			m.Term = new(r.State().Term + 1)
		}
		if err := r.Step(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Campaign(); err != nil {
		t.Fatal(err)
	}
	once(t, r)
	answer(2, pb.MsgPreVoteResp, 0)
	once(t, r)
	answer(2, pb.MsgVoteResp, 0)
	for range 3 {
		once(t, r)
	}
	answer(2, pb.MsgAppResp, 2)
	for range 5 {
		once(t, r)
	}
	if !r.State().Leads() {
		t.Fatal("it does not lead")
	}
	for name, c := range map[string]struct {
		change Change
		want   error
	}{
		"removes the leader":     {Change{Remove: []uint64{1}}, ErrLeaderLeaves},
		"keeps who is not there": {Change{Remove: []uint64{2}}, ErrNoQuorum},
		"removes who is gone":    {Change{Remove: []uint64{3}}, nil},
	} {
		if err := r.CheckChange(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, m := range r.Members() {
		if m.Active != (m.ID != 3) {
			t.Errorf("%+v", m)
		}
	}
	// What was heard once does not count for ever.
	for range 9 {
		r.Tick()
		answer(3, pb.MsgHeartbeatResp, 0)
	}
	r.Tick()
	if err := r.CheckChange(Change{Remove: []uint64{2}}); err != nil {
		t.Errorf("server 3 is back: %v", err)
	}
	if err := r.CheckChange(Change{Remove: []uint64{3}}); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("server 2 is silent: %v", err)
	}
}

// A server that lost entries which it confirmed ends, and does not panic.
func TestAServerThatForgot(t *testing.T) {
	r := alone(t, &pb.ConfState{Voters: []uint64{1, 2, 3}}, 3)
	beat := func(commit uint64) error {
		return r.Step(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(4)), Commit: new(commit)})
	}
	if err := beat(3); err != nil {
		t.Error(err)
	}
	if err := beat(4); !errors.Is(err, ErrForgot) {
		t.Errorf("%v", err)
	}
}
