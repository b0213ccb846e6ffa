package formation

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// The flags run seeds of TestSimulation and TestQuick by hand.
func seeds(t *testing.T, full int) (first, n uint64) {
	if s := flag.Lookup("formation.seed").Value.(flag.Getter).Get().(uint64); s != 0 {
		return s, 1
	}
	if s := flag.Lookup("formation.count").Value.(flag.Getter).Get().(uint64); s != 0 {
		return 1, s
	}
	return 1, uint64(scale.N(full))
}

var (
	_ = flag.Uint64("formation.seed", 0, "run this seed alone")
	_ = flag.Uint64("formation.count", 0, "run so many seeds")
)

// failed is a finding on its way out of a run.
type failed string

// seed runs one seed of a world, and prints its trace if it finds something.
func seed(t *testing.T, n uint64, run func(seed uint64, prepare func(*world))) {
	var trace []string
	defer func() {
		if f, ok := recover().(failed); ok {
			t.Fatalf("seed %d: %s\n%s\ngo test ./core/formation -run '^%s$' -formation.seed=%d", n, f, strings.Join(trace[max(0, len(trace)-60):], "\n"), t.Name(), n)
		}
	}()
	run(n, func(w *world) {
		w.note = func(format string, args ...any) {
			trace = append(trace, fmt.Sprintf("%8s ", w.elapsed)+fmt.Sprintf(format, args...))
		}
		w.find = func(format string, args ...any) { panic(failed(fmt.Sprintf(format, args...))) }
	})
}

// TestSimulation breaks everything around servers that form a cluster, mends it,
// has an operator do what the servers ask for, and expects a cluster. All
// invariants are checked at each write and message.
func TestSimulation(t *testing.T) {
	first, n := seeds(t, 1000)
	count := map[string]int{}
	for i := range n {
		seed(t, first+i, func(n uint64, prepare func(*world)) {
			s := &storm{}
			s.run(n, prepare)
			for k, v := range s.count {
				count[k] += v
			}
		})
	}
	t.Logf("%d seeds: %v", n, count)
	if n >= 500 {
		for _, what := range []string{"clusters", "two clusters", "recovered", "forced to leave", "burnt", "made equal", "added", "withdrawn", "wiped"} {
			if count[what] == 0 {
				t.Errorf("no seed saw %q", what)
			}
		}
	}
}

type storm struct {
	*world
	count map[string]int
	want  int // the bootstrap_expect that was meant
	wear  int // one of so many restarts finds its disk lost
}

func (s *storm) run(n uint64, prepare func(*world)) {
	s.world = newWorld(n, 1, 1)
	r := s.r
	servers, expect := 1+r.IntN(7), 1+r.IntN(4)
	if r.IntN(3) == 0 {
		servers = max(servers, expect) // the usual case
	}
	s.world = newWorld(n, servers, expect)
	prepare(s.world)
	s.count, s.want = map[string]int{}, expect
	r = s.r
	for _, m := range s.machines {
		switch r.IntN(12) {
		case 0:
			m.expect = r.IntN(6)
		case 1:
			m.join = nil
		case 2:
			m.join = []*machine{s.machines[r.IntN(servers)]}
		}
	}
	s.loss, s.double, s.crashes = r.Float64()*0.3, r.Float64()*0.2, r.Float64()*0.02
	s.wear = []int{2, 6, 12}[r.IntN(3)]
	s.delay = time.Duration(1+r.IntN(1500)) * time.Millisecond
	for _, m := range s.machines {
		if r.IntN(3) > 0 {
			m.start()
		}
	}
	if r.IntN(4) > 0 {
		s.run1(time.Duration(r.IntN(6000)) * time.Millisecond)
	}
	for range 10 + r.IntN(30) {
		s.fault()
		s.run1(time.Duration(50+r.IntN(1500)) * time.Millisecond)
	}
	s.heal()
}

func (s *storm) run1(d time.Duration) { s.world.run(d) }

// fault breaks or mends one thing.
func (s *storm) fault() {
	r := s.r
	m := s.machines[r.IntN(len(s.machines))]
	switch r.IntN(9) {
	case 0, 1, 2:
		if m.proc == nil {
			if r.IntN(s.wear) == 0 {
				s.wipe(m)
			}
			if r.IntN(15) == 0 {
				m.expect = r.IntN(5)
			}
			m.start()
		}
	case 3:
		if m.proc != nil {
			m.crash()
		}
	case 4:
		groups := map[*machine]int{}
		n := 2 + r.IntN(2)
		for _, m := range s.machines {
			groups[m] = r.IntN(n)
		}
		s.partition(groups)
		s.note("partition %v", s.groups(groups))
	case 5:
		clear(s.cut)
		s.note("the partition ends")
	case 6:
		o := s.machines[r.IntN(len(s.machines))]
		s.cut[[2]*machine{m, o}] = true
		s.note("%s does not reach %s", m.name, o.name)
	case 7:
		m.frozen = !m.frozen
	case 8:
		for _, m := range s.machines { // the power comes back
			if m.proc == nil {
				m.start()
			}
		}
	}
}

func (s *storm) groups(groups map[*machine]int) string {
	var all []string
	for _, m := range s.machines {
		all = append(all, fmt.Sprintf("%s:%d", m.name, groups[m]))
	}
	return strings.Join(all, " ")
}

func (s *storm) wipe(m *machine) {
	s.count["wiped"]++
	m.wipe(0)
	s.note("%s lost its disk", m.name)
}

// heal ends all faults, and plays the operator.
func (s *storm) heal() {
	s.note("all faults end")
	s.loss, s.double, s.crashes, s.delay = 0, 0, 0, 20*time.Millisecond
	clear(s.cut)
	if s.r.IntN(2) == 0 { // not all come back
		s.machines = slices.DeleteFunc(s.machines, func(m *machine) bool {
			burnt := m != s.machines[0] && s.r.IntN(4) == 0
			if burnt {
				s.note("%s and its disk are gone for good", m.name)
				s.count["burnt"]++
				m.proc = nil
			}
			return burnt
		})
	}
	for _, m := range s.machines {
		m.frozen, m.join = false, s.machines[:1]
		if m.proc == nil {
			m.start()
		}
	}
	s.run1(12 * time.Second)
	for range 60 {
		if s.settledDown() {
			break
		}
		for _, m := range s.machines {
			s.operate(m)
		}
		s.run1(2 * time.Second)
	}
	if !s.settledDown() {
		var all []string
		for _, m := range s.machines {
			all = append(all, m.name+": "+m.proc.Awaits()+" | "+describe(m.record()))
		}
		s.find("invariant never-blocked: after all was mended\n%s", strings.Join(all, "\n"))
	}
	s.count["withdrawn"] += len(s.withdrawn)
	clusters := 0
	for _, c := range s.formed {
		if s.extant(c) {
			clusters++
		}
	}
	s.count["clusters"] += clusters
	if clusters > 1 {
		s.count["two clusters"]++
		for _, m := range s.machines {
			if !strings.Contains(m.proc.Awaits(), "two clusters exist") {
				s.find("invariant tells-of-two: %s says %q", m.name, m.proc.Awaits())
			}
		}
	}
}

// settledDown reports whether each server is in a cluster, or cannot be: with
// fewer servers than bootstrap_expect there is none.
func (s *storm) settledDown() bool {
	few := len(s.machines) < s.want
	for _, m := range s.machines {
		if m.proc.Cluster() != 0 {
			continue
		}
		if !few || slices.ContainsFunc(s.formed, s.extant) || m.expect != s.want {
			return false
		}
		if text := m.proc.Awaits(); !strings.Contains(text, "more server") {
			return false
		}
	}
	return true
}

// operate does what a server asks for, if it is the right thing to do.
func (s *storm) operate(m *machine) {
	text, rec := m.proc.Awaits(), m.record()
	wrong := strings.Contains(text, "make them equal") || strings.Contains(text, "bootstrap_expect is 0") || strings.Contains(text, "more server")
	if wrong && m.expect != s.want {
		s.count["made equal"]++
		m.expect = s.want
		m.crash()
		m.start()
		return
	}
	if strings.Contains(text, "force-leave") {
		for _, id := range m.ids() {
			if s.holder(id) == nil {
				s.count["forced to leave"]++
				s.left[id] = true
			}
		}
	}
	if strings.Contains(text, "raft recover") {
		s.recover(m, rec)
	}
	if cluster := s.adding(m); rec.Seen != 0 && cluster != 0 {
		m.do(func(p *Server) {
			if err := p.Added(s.clock(), cluster); err != nil && rec.Yes == nil {
				s.find("invariant never-blocked: %s cannot be added: %v", m.name, err)
			}
		})
		s.count["added"]++
	}
}

// adding is a cluster that could add a server.
func (s *storm) adding(m *machine) ClusterID {
	for _, o := range m.last {
		if o.Alive && o.Cluster != 0 && !o.Learner && s.extant(o.Cluster) {
			return o.Cluster
		}
	}
	return 0
}

// recover gives up what is lost for good.
func (s *storm) recover(m *machine, rec Record) {
	var lost ClusterID
	switch {
	case rec.Yes != nil && s.holder(rec.Yes.Candidate) == nil:
		lost = rec.Yes.Cluster
	case rec.Yes == nil && rec.Seen != 0 && !s.extant(rec.Seen):
		lost = rec.Seen
	default:
		return
	}
	m.do(func(p *Server) {
		err := p.Recover(s.clock(), lost)
		if err != nil {
			s.note("%s: %v", m.name, err)
			if strings.Contains(err.Error(), "force-leave") {
				for _, id := range m.ids() {
					if s.holder(id) == nil {
						s.left[id] = true
					}
				}
			}
			return
		}
		s.note("%s gives up %s", m.name, lost)
		s.count["recovered"]++
		m.dir.recovered[lost] = true
	})
	if m.dir.recovered[lost] && m.proc != nil && !slices.Contains(m.record().Lost, lost) {
		s.find("invariant persisted-first: %s would forget that %s was given up", m.name, lost)
	}
}

// TestQuick starts three servers and two that wait to be added, with one address
// to join and up to 300 ms between starts, in half of the runs with a restart in
// the middle: one cluster within 5 s.
func TestQuick(t *testing.T) {
	first, n := seeds(t, 1000)
	slowest := time.Duration(0)
	for i := range n {
		seed(t, first+i, func(n uint64, prepare func(*world)) {
			w := newWorld(n, 5, 3)
			prepare(w)
			w.loss = 0.02
			starts := map[*machine]int{}
			for i, m := range w.machines {
				if i >= 3 {
					m.expect = 0
				}
				starts[m] = w.r.IntN(300)
			}
			restart, at := w.machines[w.r.IntN(3)], 300+w.r.IntN(4000)
			if w.r.IntN(2) == 0 {
				at = -1
			}
			limit := 5 * time.Second
			for ms := 0; ; ms += 50 {
				for _, m := range w.machines {
					if m.proc == nil && starts[m] <= ms {
						m.start()
					}
				}
				if at >= 0 && ms >= at {
					restart.crash()
					starts[restart] = ms + 200
					limit += time.Duration(ms+200) * time.Millisecond
					at = -1
				}
				w.run(step)
				up := slices.IndexFunc(w.machines[:3], func(m *machine) bool { return m.proc == nil || m.proc.Cluster() == 0 }) < 0
				if up && at < 0 {
					break
				}
				if w.elapsed > limit {
					w.find("invariant quick: %s: %s", limit, w.machines[0].proc.Awaits())
				}
			}
			if len(w.formed) != 1 {
				w.find("invariant no-second: %v", w.formed)
			}
			slowest = max(slowest, w.elapsed)
		})
	}
	t.Logf("%d seeds, the slowest took %v", n, slowest)
}
