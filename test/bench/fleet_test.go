package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
)

// change is one line of a member's own history: it saw another come or go.
type change struct {
	at   time.Time
	up   bool
	name string
}

// program starts members of one kind and reads what they saw.
type program interface {
	fmt.Stringer
	start(node *netns.Node, name string, bind netip.AddrPort, seed netip.AddrPort) *netns.Process
	history(p *netns.Process, name string) ([]change, error)
	up(p *netns.Process, name string) (time.Time, error) // when it was ready for others
}

// fleet is a number of members of one program, alone in their namespace.
type fleet struct {
	program
	t       *testing.T
	node    *netns.Node
	members []*member
}

// member is one process of a fleet. It keeps its name, address and data when
// it is started again.
type member struct {
	fleet   *fleet
	name    string
	bind    netip.AddrPort
	proc    *netns.Process
	started time.Time
	killed  time.Time // zero while it runs
}

// newFleet lays out n members. Nothing is started.
func newFleet(t *testing.T, p program, node *netns.Node, n int) *fleet {
	f := &fleet{program: p, t: t, node: node}
	addr := netip.MustParseAddr("127.0.0.1")
	for i := range n {
		f.members = append(f.members, &member{fleet: f, name: fmt.Sprintf("p%02d", i+1), bind: netip.AddrPortFrom(addr, 7400)})
		addr = addr.Next()
	}
	return f
}

// join starts the seed, then all others at once. It returns the time from the
// first of those to the last complete table, and how much of it came after the
// last was up: the rest is how long processes take to start on this machine.
func (f *fleet) join() (all, protocol time.Duration) {
	f.t.Helper()
	seed := f.members[0]
	seed.start()
	netns.EventuallyNil(f.t, time.Minute, func() error { _, err := seed.history(); return err }, "%v: the seed answers", f)
	since := time.Now()
	for _, m := range f.members[1:] {
		m.start()
	}
	all = f.last(since, "every table is complete", f.members, (*member).completed)
	up := f.last(since, "every process is up", f.members, func(m *member) (time.Time, error) { return f.up(m.proc, m.name) })
	return all, all - up
}

// last waits until find has found its moment at each of the members, and
// returns how long after since the last of these was.
func (f *fleet) last(since time.Time, what string, at []*member, find func(*member) (time.Time, error)) time.Duration {
	f.t.Helper()
	_, last := f.span(since, what, at, find)
	return last
}

// span is last, with the first such moment beside it. Members that have
// answered are not asked again, so that asking costs them little.
func (f *fleet) span(since time.Time, what string, at []*member, find func(*member) (time.Time, error)) (first, last time.Duration) {
	f.t.Helper()
	found := map[*member]time.Time{}
	netns.EventuallyNil(f.t, 2*time.Minute, func() error {
		for _, m := range at {
			if _, ok := found[m]; ok {
				continue
			}
			moment, err := find(m)
			if err != nil {
				return fmt.Errorf("%v %s: %w", f, m.name, err)
			}
			found[m] = moment
		}
		return nil
	}, "%v: %s", f, what)
	first = time.Hour
	for _, moment := range found {
		first, last = min(first, moment.Sub(since)), max(last, moment.Sub(since))
	}
	return first, last
}

// running returns the members that were not killed.
func (f *fleet) running() []*member {
	var out []*member
	for _, m := range f.members {
		if m.killed.IsZero() {
			out = append(out, m)
		}
	}
	return out
}

// revive starts killed members again and waits until all is as before.
func (f *fleet) revive() {
	f.t.Helper()
	now := time.Now()
	for _, m := range f.members {
		if !m.killed.IsZero() {
			m.start()
		}
	}
	f.last(now, "every table is complete again", f.members, (*member).completed)
}

func (m *member) start() {
	var seed netip.AddrPort
	if first := m.fleet.members[0]; m != first {
		seed = first.bind
	}
	m.started, m.killed = time.Now(), time.Time{}
	m.proc = m.fleet.program.start(m.fleet.node, m.name, m.bind, seed)
}

// kill ends the member by SIGKILL, noting the moment before.
func (m *member) kill() {
	m.killed = time.Now()
	m.proc.Kill()
}

func (m *member) history() ([]change, error) {
	select {
	case <-m.proc.Done():
		m.fleet.t.Fatalf("%v %s ended by itself: %s", m.fleet, m.name, strings.TrimSpace(m.proc.Output()))
	default:
	}
	return m.fleet.program.history(m.proc, m.name)
}

// completed is when the member saw the last of its fleet come, if it sees
// all of them now.
func (m *member) completed() (time.Time, error) {
	history, err := m.history()
	if err != nil {
		return time.Time{}, err
	}
	up, last := map[string]bool{}, time.Time{}
	for _, c := range history {
		if c.name == m.name || up[c.name] == c.up {
			continue
		}
		up[c.name] = c.up
		if c.up {
			last = c.at
		}
	}
	for _, o := range m.fleet.members {
		if o != m && !up[o.name] {
			return time.Time{}, fmt.Errorf("does not see %s", o.name)
		}
	}
	return last, nil
}

// lost returns a search for the moment when a member had seen the last of the
// victims go.
func lost(victims []*member) func(*member) (time.Time, error) {
	return func(m *member) (time.Time, error) {
		history, err := m.history()
		if err != nil {
			return time.Time{}, err
		}
		var last time.Time
		var missing []error
		for _, v := range victims {
			var gone time.Time
			for _, c := range history {
				if c.name == v.name && c.at.After(v.killed) {
					gone = c.at
					if c.up {
						gone = time.Time{}
					}
				}
			}
			if gone.IsZero() {
				missing = append(missing, fmt.Errorf("still sees %s", v.name))
			}
			if gone.After(last) {
				last = gone
			}
		}
		return last, errors.Join(missing...)
	}
}

// wronged counts how often any member saw one go that had not been killed
// since it was started. It holds for the present life of each.
func (f *fleet) wronged() (int, error) {
	wrong := 0
	for _, m := range f.running() {
		history, err := m.history()
		if err != nil {
			return 0, fmt.Errorf("%v %s: %w", f, m.name, err)
		}
		for _, c := range history {
			for _, o := range f.members {
				if o.name == c.name && !c.up && o.killed.IsZero() && c.at.After(o.started) {
					wrong++
				}
			}
		}
	}
	return wrong, nil
}
