package replica

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
)

// sim is a group in one thread: every message, write, tick and crash is an event
// that a seed draws.
type sim struct {
	t       testing.TB
	r       *rand.Rand
	servers map[uint64]*server
	net     []*pb.Message // on the way
	cut     map[[2]uint64]bool
	quiet   bool // no more faults
	now     int64

	leaders map[uint64]uint64 // by term
	digests map[uint64]string // of the state, by index
	entries map[uint64]string // that were applied, by index
	confs   map[uint64]string // that came into force, by index
	moves   *moves            // of members; nil: none
	clients []*caller
	final   *store.View // that the last read was answered from
	history history
	err     error
}

// server is a process and its disk, which outlives it.
type server struct {
	s    *sim
	id   uint64
	disk *disktest.Crash
	up   bool

	replica *Replica
	log     *wal.Log
	snaps   *snap.Store
	machine *store.Machine

	appends []*Append
	applies []*Apply
	reads   map[uint64]*call // that wait for a quorum's word
	waiting []confirmedCall  // that wait for an entry
	changes map[ChangeID]bool
}

type confirmedCall struct {
	*call
	index uint64
}

const cluster = "51e3"

// options of logs in simulations: segments are small, so that many are made.
func simOptions() wal.Options { return wal.Options{SegmentBytes: 8 << 10} }

// newSim makes n servers with empty state that know each other.
func newSim(t testing.TB, seed uint64, n int) *sim {
	s := &sim{
		t: t, r: rand.New(rand.NewPCG(seed, uint64(n))), servers: map[uint64]*server{}, cut: map[[2]uint64]bool{},
		leaders: map[uint64]uint64{}, digests: map[uint64]string{}, entries: map[uint64]string{}, confs: map[uint64]string{},
	}
	conf := &pb.ConfState{}
	for id := uint64(1); id <= uint64(n); id++ {
		conf.Voters = append(conf.Voters, id)
	}
	for id := uint64(1); id <= uint64(n); id++ {
		v := &server{s: s, id: id, disk: disktest.NewCrash()}
		v.create(conf)
		s.servers[id] = v
	}
	for id := range 3 {
		s.clients = append(s.clients, newCaller(s, id))
	}
	return s
}

// create makes the first log and the first snapshot.
func (v *server) create(conf *pb.ConfState) {
	begin := uint64(1)
	if conf == nil { // it joins
		begin = 0
	}
	meta := &pb.SnapshotMetadata{Index: new(begin), Term: new(begin), ConfState: conf}
	snaps, err := snap.Open(v.disk)
	v.must(err)
	v.must(snaps.Save(metaOf(meta), store.NewMachine().View().Encode))
	l, err := wal.Create(v.disk, []byte(cluster), wal.Mark{Index: begin, Term: begin}, wal.HardState{Term: begin, Commit: begin}, simOptions())
	v.must(err)
	v.must(l.Close())
	v.start()
}

func metaOf(m *pb.SnapshotMetadata) snap.Meta {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetConfState())
	if err != nil {
		panic(err)
	}
	return snap.Meta{Cluster: cluster, Index: m.GetIndex(), Term: m.GetTerm(), Membership: conf}
}

func (v *server) must(err error) {
	if err != nil {
		v.s.fail("invariant sound: server %d: %v", v.id, err)
	}
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// start brings the process up from what is on disk.
func (v *server) start() {
	s := v.s
	l, found, err := wal.Open(v.disk, simOptions())
	v.must(err)
	if err != nil {
		return
	}
	snaps, err := snap.Open(v.disk)
	v.must(err)
	if err != nil {
		return
	}
	meta, data, err := snaps.Load(found.Mark.Index, found.Mark.Term)
	v.must(err)
	if err != nil {
		return
	}
	machine, err := store.Decode(data)
	v.must(err)
	conf := &pb.ConfState{}
	v.must(proto.Unmarshal(meta.Membership, conf))
	initial := Initial{
		Hard:     &pb.HardState{Term: new(found.Hard.Term), Vote: new(found.Hard.Vote), Commit: new(found.Hard.Commit)},
		Snapshot: &pb.SnapshotMetadata{Index: new(meta.Index), Term: new(meta.Term), ConfState: conf},
	}
	for _, e := range found.Entries {
		initial.Entries = append(initial.Entries, Entry(e))
	}
	r, err := New(Config{ID: v.id, ElectionTicks: 10, HeartbeatTicks: 1, Logger: silent{s.t}}, initial)
	v.must(err)
	if err != nil {
		return
	}
	v.up, v.replica, v.log, v.snaps, v.machine = true, r, l, snaps, machine
	v.appends, v.applies, v.reads, v.waiting, v.changes = nil, nil, map[uint64]*call{}, nil, map[ChangeID]bool{}
}

// crash ends the process; what it had not synced may be lost, or half of it.
func (v *server) crash() {
	v.up = false
	writes, names := v.disk.Unsynced()
	fate := disktest.Fate{Names: v.s.r.IntN(names + 1)}
	if writes > 0 {
		odds := 1 + v.s.r.IntN(4)
		fate.Sector = func(string, int, int) bool { return v.s.r.IntN(odds) == 0 }
	}
	next := v.disk.After(fate)
	next.Lies = v.disk.Lies
	v.disk = next
	for _, c := range v.reads {
		c.lost()
	}
	for _, c := range v.waiting {
		c.lost()
	}
}

// drain takes what the replica wants done.
func (v *server) drain() {
	for v.up && v.s.err == nil {
		rd, more := v.replica.Ready()
		if !more {
			return
		}
		if rd.State != nil {
			v.led(*rd.State)
		}
		v.s.net = append(v.s.net, rd.Send...)
		if rd.Append != nil {
			v.appends = append(v.appends, rd.Append)
		}
		if rd.Apply != nil {
			v.applies = append(v.applies, rd.Apply)
		}
		for _, c := range rd.Done {
			v.decided(c)
		}
		for _, c := range rd.Reads {
			if waits := v.reads[c.Read]; waits != nil {
				delete(v.reads, c.Read)
				v.waiting = append(v.waiting, confirmedCall{waits, c.Index})
			}
		}
		v.answer()
	}
}

// tick checks that one who rests needs no ticks.
func (v *server) tick() {
	rested, was := v.replica.Rests(), v.replica.State()
	v.replica.Tick()
	if now := v.replica.State(); rested && (v.replica.node.HasReady() || now != was || len(v.replica.conf.GetVoters()) != 1) {
		v.s.fail("invariant rest: server %d rested as %+v of %v, and a tick made it %+v", v.id, was, v.replica.conf, now)
	}
}

// led checks that a term has one leader.
func (v *server) led(st State) {
	if !st.Leads() {
		return
	}
	if other, ok := v.s.leaders[st.Term]; ok && other != v.id {
		v.s.fail("invariant one-leader: term %d has the leaders %d and %d", st.Term, other, v.id)
	}
	v.s.leaders[st.Term] = v.id
}

// write carries out the next append.
func (v *server) write() {
	a := v.appends[0]
	v.appends = v.appends[1:]
	if a.Snapshot != nil {
		for len(v.applies) > 0 {
			v.apply()
		}
		_, data, err := v.snaps.Load(a.Snapshot.GetIndex(), a.Snapshot.GetTerm())
		v.must(err)
		if err != nil {
			return
		}
		m, err := store.Decode(data)
		v.must(err)
		v.machine = m
	}
	v.must(v.log.Append(a.Batch))
	v.must(v.replica.Appended(a))
}

// apply carries out the next apply.
func (v *server) apply() {
	a := v.applies[0]
	v.applies = v.applies[1:]
	for _, e := range a.Entries {
		v.applyEntry(e)
	}
	v.must(v.replica.Applied(a))
	v.replica.Trim(100)
	for i := len(a.Entries) - 1; i >= 0; i-- {
		if a.Entries[i].GetType() != pb.EntryNormal {
			v.members(a.Entries[i].GetIndex())
			break
		}
	}
	v.answer()
}

func (v *server) applyEntry(e *pb.Entry) {
	content := fmt.Sprintf("%d %v %x", e.GetTerm(), e.GetType(), e.GetData())
	if was, ok := v.s.entries[e.GetIndex()]; ok && was != content {
		v.s.fail("invariant log-matching: server %d applied another entry %d than others did", v.id, e.GetIndex())
	}
	v.s.entries[e.GetIndex()] = content
	v.changed(e)
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return
	}
	commands, err := store.DecodeCommands(e.GetData())
	v.must(err)
	results := v.machine.Apply(e.GetIndex(), e.GetTerm(), commands)
	digest := fmt.Sprint(v.machine.View().Digest())
	if was, ok := v.s.digests[e.GetIndex()]; ok && was != digest {
		v.s.fail("invariant same-state: server %d has another state at entry %d than others had", v.id, e.GetIndex())
	}
	v.s.digests[e.GetIndex()] = digest
	for i, c := range commands {
		v.s.moves.fenced(c)
		if c.Client != nil {
			v.s.done(*c.Client, results[i])
		}
	}
}

// answer finishes reads whose entry is applied.
func (v *server) answer() {
	v.waiting = slices.DeleteFunc(v.waiting, func(c confirmedCall) bool {
		if v.replica.AppliedIndex() < c.index {
			return false
		}
		c.answer(v.machine.View())
		return true
	})
}

// save makes a snapshot and forgets what is before it.
func (v *server) save() {
	meta := v.replica.Snapshot()
	if meta.GetIndex() <= 1 || len(v.appends) > 0 {
		return // the mark goes behind what is under way
	}
	v.must(v.snaps.Save(metaOf(meta), v.machine.View().Encode))
	v.must(v.log.Append(wal.Batch{Mark: &wal.Mark{Index: meta.GetIndex(), Term: meta.GetTerm()}}))
	_, err := v.log.Forget()
	v.must(err)
	v.must(v.snaps.Keep(2, meta.GetIndex()))
	v.replica.Saved(meta, 200)
}

// deliver hands one message of the network over, or loses it.
func (s *sim) deliver() {
	i := s.r.IntN(len(s.net))
	if s.quiet {
		i = 0
	}
	m := s.net[i]
	if s.quiet || s.r.IntN(20) > 0 { // else it comes a second time
		s.net = slices.Delete(s.net, i, i+1)
	}
	from, to := s.servers[m.GetFrom()], s.servers[m.GetTo()]
	if to == nil || from == nil {
		return
	}
	lost := !to.up || s.cut[[2]uint64{from.id, to.id}] || !s.quiet && s.r.IntN(30) == 0
	if m.GetType() == pb.MsgSnap {
		lost = lost || !from.up || !transfer(from, to, m.GetSnapshot().GetMetadata())
		if from.up {
			from.replica.SnapshotSent(to.id, !lost)
		}
	}
	if lost {
		if from.up && s.r.IntN(2) == 0 {
			from.replica.Unreachable(to.id)
		}
		return
	}
	// A message of a server that is not known, or no longer.
	if err := to.replica.Step(proto.Clone(m).(*pb.Message)); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) && !errors.Is(err, ErrDropped) {
		to.must(err)
	}
	to.drain()
}

// transfer copies the file of a snapshot.
func transfer(from, to *server, m *pb.SnapshotMetadata) bool {
	_, data, err := from.snaps.Load(m.GetIndex(), m.GetTerm())
	if errors.Is(err, snap.ErrNone) {
		return false // a newer one took its place
	}
	from.must(err)
	to.must(to.snaps.Save(metaOf(m), func(yield func([]byte) error) error { return yield(data) }))
	return err == nil
}

// step is one event.
func (s *sim) step() {
	s.now++
	v := s.servers[s.pick()]
	n := s.r.IntN(100)
	switch {
	case n < 45 && len(s.net) > 0:
		s.deliver()
	case n < 55 && v.up:
		v.tick()
	case n < 72 && v.up && len(v.appends) > 0:
		v.write()
		for s.quiet && len(v.appends) > 0 { // as a disk that keeps up takes all that waits
			v.write()
		}
	case n < 86 && v.up && len(v.applies) > 0:
		v.apply()
	case n < 96:
		s.clients[s.r.IntN(len(s.clients))].step()
	case n == 96 && v.up && (s.r.IntN(3) == 0 || v.replica.NeedsSnapshot()):
		v.save()
	case n == 97 && !v.up:
		v.start()
	case n == 99 && s.governed() != nil:
		s.governed().lose()
		s.moves.step()
	case s.quiet:
	case n == 98 && v.up && s.r.IntN(6) == 0:
		v.crash()
	case n == 99 && s.moves != nil && s.r.IntN(2) == 0:
		s.moves.step()
	case n == 99 && s.r.IntN(5) == 0:
		s.partition()
	case n == 99 && v.up && s.r.IntN(8) == 0:
		_ = v.replica.ForgetLeader()
	}
	if v.up {
		v.drain()
	}
}

func (s *sim) pick() uint64 {
	ids := slices.Sorted(maps.Keys(s.servers))
	return ids[s.r.IntN(len(ids))]
}

// partition cuts some ways of some pairs, or none.
func (s *sim) partition() {
	clear(s.cut)
	if s.r.IntN(2) == 0 {
		return
	}
	for a := range s.servers {
		for b := range s.servers {
			s.cut[[2]uint64{a, b}] = a != b && (a+b+uint64(s.now))%3 == 0
		}
	}
}

// crashAll ends every process at once, and starts them again.
func (s *sim) crashAll() {
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		if s.servers[id].up {
			s.servers[id].crash()
		}
	}
	s.net = nil
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		s.servers[id].start()
	}
}

// heal ends all faults and waits until every client has its answers.
func (s *sim) heal() {
	s.quiet = true
	clear(s.cut)
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		if !s.servers[id].up {
			s.servers[id].start()
		}
	}
	for _, c := range s.clients {
		c.ending = true
	}
	if !s.settle() {
		return
	}
	// A last read sees all that was answered before it.
	s.clients[0].now = &call{by: s.clients[0], began: s.now, key: "a"}
	s.settle()
}

// settle goes on until no client waits.
func (s *sim) settle() bool {
	for range 200_000 {
		if s.err != nil {
			return false
		}
		if !slices.ContainsFunc(s.clients, func(c *caller) bool { return !c.idle() }) && s.settled() {
			return true
		}
		s.step()
	}
	s.fail("invariant liveness: no answer although everything works")
	return false
}

// run is a whole simulation.
func run(t testing.TB, seed uint64, servers int, adjust func(*sim)) error {
	s := newSim(t, seed, servers)
	if adjust != nil {
		adjust(s)
	}
	for range 3 {
		for range 1000 + 700*servers {
			if s.err != nil {
				return s.err
			}
			s.step()
		}
		s.crashAll()
	}
	s.heal()
	if s.err == nil {
		s.history.check(s)
	}
	return s.err
}

// silent is a raft.Logger that says nothing but what ends the process.
type silent struct{ t testing.TB }

func (silent) Debug(...any)              {}
func (silent) Debugf(string, ...any)     {}
func (silent) Error(...any)              {}
func (silent) Errorf(string, ...any)     {}
func (silent) Info(...any)               {}
func (silent) Infof(string, ...any)      {}
func (silent) Warning(...any)            {}
func (silent) Warningf(string, ...any)   {}
func (silent) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (silent) Panic(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Panicf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// guarded runs a simulation of which a panic is a finding.
func guarded(t *testing.T, seed uint64, servers int, adjust func(*sim)) (err error) {
	cryptotest.SetGlobalRandom(t, seed)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("invariant sound: panic: %v", p)
		}
	}()
	return run(t, seed, servers, adjust)
}
