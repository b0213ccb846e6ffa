package formation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// world is machines with a server each, a network, a gossip that tells them of
// each other, and a clock. All chance comes from one seed. An oracle looks at
// every write to a disk and every message that leaves (oracle_test.go).
type world struct {
	r        *rand.Rand
	elapsed  time.Duration
	machines []*machine
	net      []packet
	ids      uint64 // of data directories and clusters drawn so far

	loss, double float64
	delay        time.Duration          // of a message, at most
	crashes      float64                // per write and message
	cut          map[[2]*machine]bool   // both ways
	left         map[model.NodeID]bool  // forced to leave
	trap         func(*machine, Record) // after a write
	note         func(string, ...any)   // trace
	find         func(string, ...any)   // a finding
	oracle
}

const (
	step     = 50 * time.Millisecond
	deadline = 3 * time.Second // of a heartbeat in gossip
)

// machine is a host. Its data directory is the id, the disk and the peers file.
type machine struct {
	w      *world
	name   string
	expect int
	join   []*machine

	id    model.NodeID
	disk  []byte
	peers map[model.NodeID]entry
	dir   dirHistory

	proc   *Server
	frozen bool
	table  map[model.NodeID]entry
	told   map[model.NodeID]time.Duration // alive without a break since
	last   []Member                       // the last list it was given
}

// entry is what gossip carries of one server.
type entry struct {
	machine *machine
	Member
	beat time.Duration // when it said so itself
}

type packet struct {
	due time.Duration
	m   []byte
	to  model.NodeID
	frm *machine
}

func newWorld(seed uint64, n int, expect int) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 0xf0)), delay: 20 * time.Millisecond, cut: map[[2]*machine]bool{},
		left: map[model.NodeID]bool{}, note: func(string, ...any) {}, oracle: newOracle(),
	}
	for i := range n {
		m := &machine{w: w, name: fmt.Sprintf("n%d", i+1), expect: expect}
		w.machines = append(w.machines, m)
	}
	for _, m := range w.machines {
		m.join = w.machines[:1]
		m.wipe(0)
	}
	return w
}

func (w *world) clock() time.Time { return time.Unix(1_000_000, 0).Add(w.elapsed) }

func (w *world) chance(p float64) bool { return p > 0 && w.r.Float64() < p }

// wipe gives the machine an empty data directory with this id, or a random one.
func (m *machine) wipe(id model.NodeID) {
	if id == 0 {
		id = model.NodeID(m.w.r.Uint64N(900)+100)<<16 | model.NodeID(m.w.ids)
		m.w.ids++
	}
	m.id, m.disk, m.peers, m.dir = id, nil, nil, newDirHistory()
}

func (m *machine) record() Record {
	if m.disk == nil {
		return Record{}
	}
	rec, err := DecodeRecord(m.disk)
	if err != nil {
		m.w.find("invariant record-readable: %s: %v", m.name, err)
	}
	return rec
}

func (m *machine) start() {
	w := m.w
	s, err := New(Config{
		ID: m.id, Name: m.name, Expect: m.expect, Record: m.record(),
		Draw: func() ClusterID { w.ids++; return ClusterID(0xc000 + w.ids) },
	}, w.clock())
	if err != nil {
		w.find("invariant record-readable: %s does not start: %v", m.name, err)
		return
	}
	w.note("%s (%x, expect %d) starts", m.name, uint64(m.id), m.expect)
	m.proc, m.frozen, m.told, m.last = s, false, map[model.NodeID]time.Duration{}, nil
	m.table = map[model.NodeID]entry{}
	for id, e := range m.peers {
		e.beat = -time.Hour // dead until it is heard
		m.table[id] = e
	}
	m.do(func(*Server) {})
}

func (m *machine) crash() {
	m.w.note("%s ends", m.name)
	m.proc = nil
}

// do makes one call and works off what is ready. The machine may crash between
// any two steps of that.
func (m *machine) do(call func(*Server)) {
	w := m.w
	call(m.proc)
	r := m.proc.Ready()
	if r.Record != nil {
		if w.chance(w.crashes) {
			m.crash()
			return
		}
		b, err := EncodeRecord(*r.Record)
		if err != nil {
			w.find("invariant record-readable: %v", err)
			return
		}
		old := m.record()
		m.disk = b
		w.note("%s writes %s", m.name, describe(*r.Record))
		w.wrote(m, old, m.record())
		if w.trap != nil {
			w.trap(m, *r.Record)
		}
		if m.proc == nil {
			return
		}
	}
	if r.Decision != nil {
		w.decided(m, r.Decision)
	}
	for _, msg := range r.Messages {
		if w.chance(w.crashes) {
			m.crash()
			return
		}
		w.sends(m, msg)
		w.post(m, msg)
	}
	if m.proc.Awaits() == "" && m.proc.Cluster() == 0 {
		w.find("invariant says-what-it-awaits: %s is silent: %s", m.name, describe(m.record()))
	}
}

func describe(r Record) string {
	s := ""
	for i, b := range []*Ballot{r.Yes, r.Formed} {
		if b != nil {
			name := []string{"yes", "formed"}[i]
			s += fmt.Sprintf("%s %x of %x: %s + %s ", name, uint64(b.Cluster), uint64(b.Candidate), short(b.Voters), short(b.Witnesses))
		}
	}
	return fmt.Sprintf("%sseen %x lost %x", s, uint64(r.Seen), uints(r.Lost))
}

func uints(ids []ClusterID) (u []uint64) {
	for _, id := range ids {
		u = append(u, uint64(id))
	}
	return u
}

func short(ids []model.NodeID) string {
	s := []string{}
	for _, id := range ids {
		s = append(s, fmt.Sprintf("%x", uint64(id)))
	}
	return strings.Join(s, ",")
}

func (w *world) post(from *machine, m Message) {
	copies := 1
	if w.chance(w.double) {
		copies = 2
	}
	for range copies {
		if w.chance(w.loss) {
			continue
		}
		due := w.elapsed + time.Duration(w.r.Int64N(int64(w.delay)))
		w.net = append(w.net, packet{due: due, m: EncodeMessage(m), to: m.To, frm: from})
	}
}

func (w *world) reach(a, b *machine) bool { return !w.cut[[2]*machine{a, b}] }

func (m *machine) running() bool { return m.proc != nil && !m.frozen }

// partition cuts every link between different groups.
func (w *world) partition(groups map[*machine]int) {
	clear(w.cut)
	for _, a := range w.machines {
		for _, b := range w.machines {
			if groups[a] != groups[b] {
				w.cut[[2]*machine{a, b}] = true
			}
		}
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.elapsed + d; w.elapsed < end; {
		w.elapsed += step
		w.deliver()
		for _, m := range w.machines {
			if m.running() && w.chance(0.5) {
				m.gossip()
			}
		}
		for _, m := range w.machines {
			if m.running() {
				m.tellMembers()
			}
			if m.running() {
				m.do(func(s *Server) { s.Tick(w.clock()) })
			}
		}
	}
}

func (w *world) deliver() {
	due := w.net
	w.net = nil
	w.r.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, p := range due {
		to := w.holder(p.to)
		switch {
		case p.due > w.elapsed, to != nil && to.frozen:
			w.net = append(w.net, p)
		case to != nil && to.proc != nil && w.reach(p.frm, to):
			msg, err := DecodeMessage(p.m)
			if err != nil {
				w.find("invariant messages-readable: %v", err)
				return
			}
			to.do(func(s *Server) {
				if err := s.Step(w.clock(), msg); err != nil {
					w.find("invariant messages-readable: %s: %v", to.name, err)
				}
			})
		}
	}
}

// holder is the machine with this data directory.
func (w *world) holder(id model.NodeID) *machine {
	for _, m := range w.machines {
		if m.id == id {
			return m
		}
	}
	return nil
}

// gossip exchanges tables with one machine.
func (m *machine) gossip() {
	others := slices.Clone(m.join)
	for _, o := range m.w.machines {
		if slices.ContainsFunc(m.ids(), func(id model.NodeID) bool { return m.table[id].machine == o }) {
			others = append(others, o)
		}
	}
	if len(others) == 0 {
		return
	}
	o := others[m.w.r.IntN(len(others))]
	if o == m || !o.running() || !m.w.reach(m, o) || m.w.chance(m.w.loss) {
		return
	}
	m.table[m.id], o.table[o.id] = m.self(), o.self()
	merge(m.table, o.table)
	merge(o.table, m.table)
}

// ids lists the table's in order, so that a seed is a run.
func (m *machine) ids() []model.NodeID {
	var ids []model.NodeID
	for id := range m.table {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *machine) self() entry {
	cluster := m.proc.Cluster()
	learner := cluster == 0 && m.proc.Seen() != 0
	if learner {
		cluster = m.proc.Seen() // as a server says that waits to be added
	}
	return entry{m, Member{ID: m.id, Name: m.name, Expect: m.expect, Cluster: cluster, Learner: learner}, m.w.elapsed}
}

func merge(into, from map[model.NodeID]entry) {
	for id, e := range from {
		if old, ok := into[id]; !ok || old.beat < e.beat {
			into[id] = e
		}
	}
}

// tellMembers gives the server what its gossip holds, and keeps that in the
// peers file.
func (m *machine) tellMembers() {
	var all []Member
	m.peers = map[model.NodeID]entry{}
	for _, id := range m.ids() {
		e := m.table[id]
		if id == m.id || m.w.left[id] {
			continue
		}
		m.peers[id] = e
		e.Alive = m.w.elapsed-e.beat < deadline
		all = append(all, e.Member)
		if _, ok := m.told[id]; !e.Alive {
			delete(m.told, id)
		} else if !ok {
			m.told[id] = m.w.elapsed
		}
	}
	for id := range m.told {
		if m.w.left[id] {
			delete(m.told, id)
		}
	}
	m.last = all
	m.do(func(s *Server) { s.Members(m.w.clock(), all) })
	if m.proc == nil {
		return
	}
	for _, e := range all {
		if e.Cluster != 0 {
			m.dir.heard[e.Cluster] = true
		}
	}
}
