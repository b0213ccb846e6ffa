package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/scale"
)

// moves changes who takes part while everything else goes on.
type moves struct {
	s      *sim
	newest uint64            // entry that changed the members last, of those applied
	seen   map[uint64]bool   // servers that took part at some time
	goneAt map[uint64]uint64 // by server: the entry that removed it
	safe   uint64            // servers that were removed up to this entry may go
	conf   *pb.ConfState     // as of newest

	number  uint16
	applied map[ChangeID]bool
	denied  map[ChangeID]bool // somebody was told that they did not happen
	counts  map[string]int

	governor *governor // decides what changes; nil: chance does
}

// maxServers bounds the servers that a simulation makes.
const maxServers = 10

func newMoves(s *sim) *moves {
	m := &moves{s: s, seen: map[uint64]bool{}, goneAt: map[uint64]uint64{}, conf: &pb.ConfState{}, applied: map[ChangeID]bool{}, denied: map[ChangeID]bool{}, counts: map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		m.seen[id] = true
		m.conf.Voters = append(m.conf.Voters, id)
	}
	return m
}

// step does one thing to the membership, if a server leads.
func (m *moves) step() {
	s := m.s
	leaders := slices.DeleteFunc(slices.Sorted(maps.Keys(s.servers)), func(id uint64) bool {
		v := s.servers[id]
		return !v.up || !v.replica.State().Leads()
	})
	if len(leaders) == 0 {
		return
	}
	v := s.servers[leaders[s.r.IntN(len(leaders))]] // maybe one that was deposed
	if s.r.IntN(4) == 0 {
		m.wipe()
		m.fence(v)
		return
	}
	what, c := m.draw(v)
	if m.governor != nil {
		if what, c = m.governor.decide(v); what == "" {
			return
		}
	}
	others := slices.DeleteFunc(slices.Clone(v.replica.Conf().GetVoters()), func(id uint64) bool { return id == v.id })
	if slices.Contains(c.Remove, v.id) && len(others) > 0 {
		m.counts["transfer"]++
		v.replica.Transfer(others[s.r.IntN(len(others))])
	}
	m.number++
	id := ChangeID{byte(m.number), byte(m.number >> 8)}
	err := v.replica.ProposeChange(id, c)
	if err == nil && !s.quiet && s.r.IntN(6) == 0 {
		for other := range s.servers { // it stays where it is
			s.cut[[2]uint64{v.id, other}], s.cut[[2]uint64{other, v.id}] = true, true
		}
	}
	if err == nil {
		v.changes[id] = true
		m.counts[what]++
	}
	known := []error{ErrDropped, ErrChangeOpen, ErrNoQuorum, ErrBehind, ErrLeaderLeaves, ErrNoVoters}
	if i := slices.IndexFunc(known, func(why error) bool { return errors.Is(err, why) }); i >= 0 {
		m.counts[known[i].Error()]++
	} else {
		v.must(err)
	}
}

// draw chooses a change that fits the members as a server knows them.
func (m *moves) draw(v *server) (string, Change) {
	conf, r := v.replica.Conf(), m.s.r
	one := func(of []uint64) []uint64 { return []uint64{of[r.IntN(len(of))]} }
	learners, voters := conf.GetLearners(), conf.GetVoters()
	n := r.IntN(10)
	if len(learners) == 0 || n == 0 {
		if id := m.fresh(); id != 0 {
			return "add", Change{AddLearners: []uint64{id}}
		}
	}
	switch {
	case len(learners) == 0:
		return "remove", Change{Remove: one(voters)}
	case n < 5:
		return "replace", Change{Promote: one(learners), Remove: one(voters)}
	case n < 7 && len(voters) < 5:
		return "promote", Change{Promote: learners}
	case n == 7:
		return "remove", Change{Remove: one(learners)}
	}
	return "remove", Change{Remove: one(voters)}
}

// fresh returns a server that never took part; 0 if there are enough.
func (m *moves) fresh() uint64 {
	for id := uint64(1); id <= maxServers; id++ {
		if m.seen[id] {
			continue
		}
		if m.s.servers[id] == nil {
			v := &server{s: m.s, id: id, disk: disktest.NewCrash()}
			v.create(nil)
			m.s.servers[id] = v
		}
		return id
	}
	return 0
}

// fence writes an entry of which a majority can have only what it also knows that
// the newest change is committed by: so servers that it removed are not needed any
// more. Before, a server that lost what it knew of the commit could ask for their
// votes, and have more entries than all who would win without.
func (m *moves) fence(v *server) {
	if v.replica.AppliedIndex() < m.newest || len(v.replica.Conf().GetVotersOutgoing()) > 0 {
		return
	}
	put := &store.PutOp{Key: fenceKey, Value: binary.BigEndian.AppendUint64(nil, m.newest)}
	_ = v.replica.Propose(store.EncodeCommands([]store.Command{{Space: store.System, Op: &store.Op{Put: put}}})) // or next time
}

const fenceKey = "fence"

// fenced hears of commands that were applied.
func (m *moves) fenced(c store.Command) {
	if m != nil && c.Op != nil && c.Op.Put != nil && c.Op.Put.Key == fenceKey {
		m.safe = max(m.safe, binary.BigEndian.Uint64(c.Op.Put.Value))
	}
}

// wipe empties the disk of a server that was removed: if it comes back, then as
// another one.
func (m *moves) wipe() {
	for _, id := range slices.Sorted(maps.Keys(m.s.servers)) {
		if at := m.goneAt[id]; at > 0 && at <= m.safe {
			if v := m.s.servers[id]; v.up {
				v.crash()
			}
			delete(m.s.servers, id)
			m.counts["wiped"]++
			return
		}
	}
}

// changed checks that a change brings the same members everywhere, and notes them.
func (v *server) changed(e *pb.Entry) {
	m := v.s.moves
	if e.GetType() != pb.EntryConfChangeV2 || m == nil {
		return
	}
	id := changeIDOf(e)
	m.applied[id] = true
	if m.denied[id] {
		v.s.fail("invariant outcome: a change came into force at entry %d of which somebody was told that it did not", e.GetIndex())
	}
}

// members checks that a server has the members that others had at the same entry.
func (v *server) members(index uint64) {
	m := v.s.moves
	if m == nil {
		return
	}
	c := v.replica.Conf()
	conf := fmt.Sprint(c.GetVoters(), c.GetVotersOutgoing(), c.GetLearners(), c.GetLearnersNext(), c.GetAutoLeave())
	if was, ok := v.s.confs[index]; ok && was != conf {
		v.s.fail("invariant same-members: at entry %d server %d has the members %s, and others had %s", index, v.id, conf, was)
	}
	v.s.confs[index] = conf
	if index > m.newest {
		if m.governor != nil {
			m.governor.check(m.conf, c)
		}
		m.newest, m.conf = index, c
		for _, id := range slices.Concat(c.GetVoters(), c.GetLearners()) {
			m.seen[id] = true
		}
		members := slices.Concat(c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing())
		for id := range m.seen {
			if m.goneAt[id] == 0 && !slices.Contains(members, id) {
				m.goneAt[id] = index
			}
		}
	}
}

// decided checks that what a server is told of its change is so.
func (v *server) decided(c Changed) {
	m := v.s.moves
	if !v.changes[c.ID] {
		v.s.fail("server %d is told of a change that it did not propose", v.id)
	}
	delete(v.changes, c.ID)
	m.counts[[]string{"", "in force", "superseded", "unknown"}[c.Outcome]]++
	switch {
	case c.Outcome == InForce && !m.applied[c.ID]:
		v.s.fail("invariant outcome: server %d is told that a change is in force, and it is not", v.id)
	case c.Outcome == Superseded:
		m.denied[c.ID] = true
		if m.applied[c.ID] {
			v.s.fail("invariant outcome: server %d is told that a change did not happen, and it did", v.id)
		}
	}
}

// settled reports whether the change that came last is over, and nobody waits for
// the outcome of one at a server that leads.
func (s *sim) settled() bool {
	if s.moves == nil {
		return true
	}
	var leads *server
	for _, v := range s.servers {
		if v.up && v.replica.State().Leads() && (leads == nil || v.replica.State().Term > leads.replica.State().Term) {
			leads = v
		}
	}
	return leads != nil && len(leads.replica.Conf().GetVotersOutgoing()) == 0 && len(leads.changes) == 0 && s.governed().content(leads)
}

// TestSimulationOfMembers adds learners, promotes, replaces and removes servers,
// the leader too, beside all other faults. Servers that were removed come back with
// empty disks and another id.
func TestSimulationOfMembers(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(scale.N(1000)) {
		var s *sim
		err := guarded(t, seed, 1+int(seed)%5, func(made *sim) {
			s = made
			s.moves = newMoves(s)
		})
		if err != nil {
			t.Fatalf("seed %d, %d servers: %v", seed, 1+seed%5, err)
		}
		for what, n := range s.moves.counts {
			counts[what] += n
		}
	}
	for _, what := range []string{"add", "promote", "replace", "remove", "transfer", "wiped", "in force", "superseded", ErrChangeOpen.Error(), ErrNoQuorum.Error(), ErrBehind.Error()} {
		if counts[what] == 0 {
			t.Errorf("nothing was counted as %q", what)
		}
	}
	t.Log(counts)
}
