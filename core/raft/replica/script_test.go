package replica

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
)

// TestScripts plays the scripts of testdata/scripts: what a group does step by
// step, and what it may not do in between. The state machine is the list of what
// was proposed. `go test ./core/raft/replica -run TestScripts -rewrite` writes what
// happens into them.
//
//	group N                  servers 1 … N, which are voters
//	server ID                one more, which nobody knows
//	propose ID DATA          | campaign ID | forget ID (its leader) | tick ID N
//	change ID v4 l5 r1 [explicit]
//	                         add a voter, a learner, remove; explicit: stay joint
//	leave ID                 propose to leave the joint state
//	ready ID                 take what it wants done: what to send waits in the network
//	write ID | apply ID      carry out the first of the appends, of the applies
//	deliver FROM TO          hand over what waits there; drop FROM TO: lose it
//	save ID                  make a snapshot, forget what is before it
//	trim ID                  forget what was applied and nobody lacks
//	crash ID | start ID      what was not carried out is lost
//	stabilize [IDs]          go on until nothing is left to do among these
//	status                   what each is and has
//
// After each step: what a server tells others is on its disk, a term has one
// leader, and servers that are at one entry have one state and one membership,
// also after a crash.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		cryptotest.SetGlobalRandom(t, 1)
		s := newScene(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.do(d)
			s.look()
			if s.err != nil {
				t.Fatalf("%s: %v\n%s", d.Pos, s.err, s.out.String())
			}
			return s.out.String()
		})
		if len(s.leaders) == 0 {
			t.Errorf("%s: nobody led", filepath.Base(path))
		}
	})
}

// scene is a group of which nothing happens by itself.
type scene struct {
	t      *testing.T
	actors map[uint64]*actor
	net    []*pb.Message
	out    strings.Builder
	err    error

	leaders map[uint64]uint64 // by term
	states  map[uint64]string // by index
	members map[uint64]string // by index
}

func newScene(t *testing.T) *scene {
	return &scene{t: t, actors: map[uint64]*actor{}, leaders: map[uint64]uint64{}, states: map[uint64]string{}, members: map[uint64]string{}}
}

// actor is a server of a scene.
type actor struct {
	s    *scene
	id   uint64
	disk *disktest.Crash
	up   bool

	replica *Replica
	log     *wal.Log
	snaps   *snap.Store
	hard    wal.HardState // that is on disk
	state   []string
	appends []*Append
	applies []*Apply
}

func (s *scene) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *scene) must(err error) {
	if err != nil {
		s.fail("invariant sound: %w", err)
	}
}

func (s *scene) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// do plays one command.
func (s *scene) do(d *datadriven.TestData) {
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	number := func(i int) uint64 {
		if i >= len(words) {
			s.t.Fatalf("%s: %s lacks a number", d.Pos, d.Cmd)
		}
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", d.Pos, err)
		}
		return n
	}
	switch d.Cmd {
	case "group":
		conf := &pb.ConfState{}
		for id := uint64(1); id <= number(0); id++ {
			conf.Voters = append(conf.Voters, id)
		}
		for _, id := range conf.GetVoters() {
			s.add(id, conf)
		}
		return
	case "server":
		s.add(number(0), &pb.ConfState{Voters: s.actors[1].replica.Conf().GetVoters()})
		return
	case "deliver", "drop":
		s.deliver(number(0), number(1), d.Cmd == "drop")
		return
	case "stabilize":
		s.stabilize(words)
		return
	case "status":
		s.status()
		return
	}
	a := s.actors[number(0)]
	if a == nil || a.up == (d.Cmd == "start") {
		s.t.Fatalf("%s: server %d is not there, or up already", d.Pos, number(0))
	}
	switch d.Cmd {
	case "propose":
		a.told(a.replica.Propose([]byte(words[1])))
	case "campaign":
		s.must(a.replica.Campaign())
	case "forget":
		s.must(a.replica.ForgetLeader())
	case "tick":
		for range number(1) {
			a.replica.Tick()
		}
	case "change":
		a.told(a.replica.node.ProposeConfChange(parseChange(words[1:])))
	case "leave":
		a.told(a.replica.node.ProposeConfChange(&pb.ConfChangeV2{}))
	case "ready":
		a.ready()
	case "write":
		a.write()
	case "apply":
		a.apply()
	case "save":
		a.save()
	case "trim":
		a.replica.Trim(0)
	case "crash":
		a.up = false
		a.disk = a.disk.After(disktest.Fate{Sector: func(string, int, int) bool { return false }})
	case "start":
		a.start()
	default:
		s.t.Fatalf("%s: %s is no command", d.Pos, d.Cmd)
	}
}

func parseChange(words []string) *pb.ConfChangeV2 {
	c := &pb.ConfChangeV2{}
	for _, w := range words {
		if w == "explicit" {
			c.Transition = pb.ConfChangeTransitionJointExplicit.Enum()
			continue
		}
		kind := map[byte]pb.ConfChangeType{'v': pb.ConfChangeAddNode, 'l': pb.ConfChangeAddLearnerNode, 'r': pb.ConfChangeRemoveNode}[w[0]]
		id, err := strconv.ParseUint(w[1:], 10, 64)
		if err != nil {
			panic(err)
		}
		c.Changes = append(c.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: &id})
	}
	return c
}

// add makes a server whose log begins behind entry 1.
func (s *scene) add(id uint64, conf *pb.ConfState) {
	a := &actor{s: s, id: id, disk: disktest.NewCrash()}
	s.actors[id] = a
	snaps, err := snap.Open(a.disk)
	s.must(err)
	meta := &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}
	s.must(snaps.Save(metaOf(meta), a.encode))
	l, err := wal.Create(a.disk, []byte(cluster), wal.Mark{Index: 1, Term: 1}, wal.HardState{Term: 1, Commit: 1}, simOptions())
	s.must(err)
	s.must(l.Close())
	a.start()
}

func (a *actor) encode(yield func([]byte) error) error {
	return yield([]byte(strings.Join(a.state, " ")))
}

func (a *actor) load(index, term uint64) *pb.ConfState {
	meta, data, err := a.snaps.Load(index, term)
	a.s.must(err)
	a.state = strings.Fields(string(data))
	conf := &pb.ConfState{}
	a.s.must(proto.Unmarshal(meta.Membership, conf))
	return conf
}

func (a *actor) start() {
	l, found, err := wal.Open(a.disk, simOptions())
	a.s.must(err)
	a.snaps, err = snap.Open(a.disk)
	a.s.must(err)
	if a.s.err != nil {
		return
	}
	initial := Initial{
		Hard:     &pb.HardState{Term: new(found.Hard.Term), Vote: new(found.Hard.Vote), Commit: new(found.Hard.Commit)},
		Snapshot: &pb.SnapshotMetadata{Index: new(found.Mark.Index), Term: new(found.Mark.Term), ConfState: a.load(found.Mark.Index, found.Mark.Term)},
	}
	for _, e := range found.Entries {
		initial.Entries = append(initial.Entries, Entry(e))
	}
	r, err := New(Config{ID: a.id, ElectionTicks: 10, HeartbeatTicks: 1, Logger: silent{a.s.t}}, initial)
	a.s.must(err)
	if a.s.err != nil {
		return
	}
	a.up, a.replica, a.log, a.hard, a.appends, a.applies = true, r, l, found.Hard, nil, nil
}

// told says that a proposal was not taken.
func (a *actor) told(err error) {
	if err != nil {
		a.s.say("%d: %v", a.id, err)
	}
}

// ready takes what there is to do; it returns false if that is nothing.
func (a *actor) ready() bool {
	rd, more := a.replica.Ready()
	if st := rd.State; st != nil {
		a.s.say("%d: %s, term %d, leader %d", a.id, strings.TrimPrefix(st.Role.String(), "State"), st.Term, st.Leader)
		if st.Leads() {
			if other, ok := a.s.leaders[st.Term]; ok && other != a.id {
				a.s.fail("invariant one-leader: term %d has the leaders %d and %d", st.Term, other, a.id)
			}
			a.s.leaders[st.Term] = a.id
		}
	}
	for _, m := range rd.Send {
		a.s.say("%d: send %s", a.id, strings.ReplaceAll(strings.TrimSpace(raft.DescribeMessage(m, plain)), "\n", " "))
		a.durable(m)
		a.s.net = append(a.s.net, m)
	}
	if rd.Append != nil {
		a.s.say("%d: wants to append%s", a.id, describeBatch(rd.Append.Batch))
		a.appends = append(a.appends, rd.Append)
	}
	if rd.Apply != nil {
		a.s.say("%d: wants to apply %s", a.id, describeEntries(rd.Apply.Entries))
		a.applies = append(a.applies, rd.Apply)
	}
	return more
}

// durable checks that what a message promises is on disk.
func (a *actor) durable(m *pb.Message) {
	switch {
	case m.GetReject():
	case m.GetType() == pb.MsgVoteResp && (a.hard.Term != m.GetTerm() || a.hard.Vote != m.GetTo()):
		a.s.fail("invariant told-is-durable: server %d tells %d of its vote in term %d; on disk is %v", a.id, m.GetTo(), m.GetTerm(), a.hard)
	case m.GetType() == pb.MsgVote && (a.hard.Term != m.GetTerm() || a.hard.Vote != a.id):
		a.s.fail("invariant told-is-durable: server %d asks %d for its vote in term %d; on disk is %v", a.id, m.GetTo(), m.GetTerm(), a.hard)
	case m.GetType() == pb.MsgAppResp && m.GetIndex() > a.replica.log.last():
		a.s.fail("invariant told-is-durable: server %d tells %d that it has entry %d; on disk are those up to %d", a.id, m.GetTo(), m.GetIndex(), a.replica.log.last())
	}
}

func (a *actor) write() bool {
	if len(a.appends) == 0 {
		return false
	}
	next := a.appends[0]
	a.appends = a.appends[1:]
	if next.Snapshot != nil {
		for a.apply() {
		}
		a.load(next.Snapshot.GetIndex(), next.Snapshot.GetTerm())
		a.s.say("%d: goes on from the snapshot of entry %d", a.id, next.Snapshot.GetIndex())
	}
	a.s.must(a.log.Append(next.Batch))
	if next.Batch.Hard != nil {
		a.hard = *next.Batch.Hard
	}
	a.s.must(a.replica.Appended(next))
	return true
}

func (a *actor) apply() bool {
	if len(a.applies) == 0 {
		return false
	}
	next := a.applies[0]
	a.applies = a.applies[1:]
	for _, e := range next.Entries {
		if e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 {
			a.state = append(a.state, string(e.GetData()))
		}
	}
	a.s.must(a.replica.Applied(next))
	a.s.look()
	return true
}

func (a *actor) save() {
	meta := a.replica.Snapshot()
	a.s.must(a.snaps.Save(metaOf(meta), a.encode))
	a.s.must(a.log.Append(wal.Batch{Mark: &wal.Mark{Index: meta.GetIndex(), Term: meta.GetTerm()}}))
	_, err := a.log.Forget()
	a.s.must(err)
	a.replica.Saved(meta, 0)
}

// deliver hands over what waits between two servers, in its order.
func (s *scene) deliver(from, to uint64, drop bool) (any bool) {
	var left []*pb.Message
	for _, m := range s.net {
		if m.GetFrom() != from || m.GetTo() != to {
			left = append(left, m)
			continue
		}
		any = true
		a, sender := s.actors[to], s.actors[from]
		lost := drop || !a.up
		if m.GetType() == pb.MsgSnap && sender.up {
			if !lost {
				of := m.GetSnapshot().GetMetadata()
				_, data, err := sender.snaps.Load(of.GetIndex(), of.GetTerm())
				s.must(err)
				s.must(a.snaps.Save(metaOf(of), func(yield func([]byte) error) error { return yield(data) }))
			}
			sender.replica.SnapshotSent(to, !lost)
		}
		if lost {
			continue
		}
		if err := a.replica.Step(proto.Clone(m).(*pb.Message)); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			s.must(err)
		}
	}
	s.net = left
	return any
}

// stabilize goes on until nothing is left to do among some servers.
func (s *scene) stabilize(words []string) {
	var ids []uint64
	for _, id := range slices.Sorted(maps.Keys(s.actors)) {
		if len(words) == 0 || slices.Contains(words, fmt.Sprint(id)) {
			ids = append(ids, id)
		}
	}
	rounds := 0
	for busy := true; busy && s.err == nil; {
		if rounds++; rounds > 100 {
			s.fail("invariant settles: there is no end to it")
		}
		busy = false
		for _, id := range ids {
			a := s.actors[id]
			for a.up && s.err == nil && (a.ready() || a.write() || a.apply()) {
				busy = true
			}
		}
		for _, from := range ids {
			for _, to := range ids {
				busy = s.deliver(from, to, false) || busy
			}
		}
	}
}

// look checks what holds between servers at all times.
func (s *scene) look() {
	for _, id := range slices.Sorted(maps.Keys(s.actors)) {
		a := s.actors[id]
		if !a.up {
			continue
		}
		at := a.replica.AppliedIndex()
		s.same("same-state", s.states, at, id, strings.Join(a.state, " "))
		s.same("membership", s.members, at, id, describeConf(a.replica.Conf()))
	}
}

func (s *scene) same(what string, all map[uint64]string, at, id uint64, now string) {
	if was, ok := all[at]; ok && was != now {
		if what == "membership" {
			s.fail("invariant membership: at entry %d server %d has %q, others had %q", at, id, now, was)
		}
		s.fail("invariant same-state: at entry %d server %d has %q, others had %q", at, id, now, was)
	}
	all[at] = now
}

func (s *scene) status() {
	for _, id := range slices.Sorted(maps.Keys(s.actors)) {
		a := s.actors[id]
		if !a.up {
			s.say("%d: down", id)
			continue
		}
		st, l := a.replica.State(), a.replica.log
		s.say("%d: %s of term %d, leader %d, log %d/%d to %d, applied %d %v, %s", id, strings.TrimPrefix(st.Role.String(), "State"), st.Term, st.Leader,
			l.start.term, l.start.index, l.last(), a.replica.AppliedIndex(), a.state, describeConf(a.replica.Conf()))
	}
}

func plain(b []byte) string { return string(b) }

func describeEntries(all []*pb.Entry) string {
	var out []string
	for _, e := range all {
		out = append(out, raft.DescribeEntry(e, plain))
	}
	return strings.Join(out, ", ")
}

func describeBatch(b wal.Batch) string {
	var out string
	if b.Mark != nil {
		out += fmt.Sprintf(" snapshot %d/%d;", b.Mark.Term, b.Mark.Index)
	}
	if b.Hard != nil {
		out += fmt.Sprintf(" term %d, vote %d, commit %d;", b.Hard.Term, b.Hard.Vote, b.Hard.Commit)
	}
	var all []*pb.Entry
	for _, e := range b.Entries {
		all = append(all, Entry(e))
	}
	return out + strings.TrimRight(" "+describeEntries(all), " ")
}

func describeConf(c *pb.ConfState) string {
	out := fmt.Sprint("voters ", c.GetVoters())
	for _, l := range []struct {
		name string
		ids  []uint64
	}{{"outgoing", c.GetVotersOutgoing()}, {"learners", c.GetLearners()}, {"next", c.GetLearnersNext()}} {
		if len(l.ids) > 0 {
			out += fmt.Sprintf(", %s %v", l.name, l.ids)
		}
	}
	return out
}
