package sim

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// TestScenarios plays the scripts of testdata/scenarios. All invariants are
// checked at each step, as in a simulation; each script says in words what a
// reader should see. `go test ./test/sim -run TestScenarios -rewrite` writes
// what happens into them.
//
//	cluster N                start n1 … nN, each joining through n1
//	start NAME [join=NAME]   start a new member
//	run DURATION             move the clock on
//	crash NAME [host]        end the process; with host, its machine too
//	restart NAME [new-address] [epochs-back=N]
//	                         start it again from its directory, maybe an older one
//	copy NAME                start a second process from a copy of its directory
//	reinstall NAME as=NAME   start a new member at the address of one that ended
//	leave NAME | rejoin NAME | end NAME | freeze NAME | thaw NAME
//	hold NAME DURATION       announce a restart; end it, and restart
//	partition NAMES… | cut FROM TO | mend | loss PERCENT
//	calm                     from now on nobody may be suspected
//	await NAME=STATE within=DURATION
//	                         run until all others hold it so
//	agree within=DURATION    run until all live agree
//	events                   what each member was told since the last time
//	members NAME             the table of one member
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newScript(t.Name() + filepath.Base(path))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.do(d)
			if f := s.Finding(); f != nil {
				t.Fatalf("%s: %v\n%s", d.Pos, f, s.Trace.Tail(50))
			}
			return out
		})
	})
}

type script struct {
	*World
	seen map[*Process]*[]swim.Event // since the last `events`
}

// newScript derives the seed from the name of the script.
func newScript(name string) *script {
	seed := uint64(0)
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	cfg := swim.DefaultLAN()
	cfg.Cluster = "sim"
	s := &script{World: NewWorld(seed, cfg, NewTally()), seen: map[*Process]*[]swim.Event{}}
	s.invariants = append(s.invariants, Invariant{Name: "note", Check: func(o *Observation) error {
		if s.seen[o.Process] == nil {
			s.seen[o.Process] = new([]swim.Event)
		}
		list := s.seen[o.Process]
		*list = append(*list, o.Ready.Events...)
		return nil
	}})
	return s
}

// named is the newest process of that name; a second copy is named n2'.
func (s *script) named(name string) *Process {
	for _, p := range slices.Backward(s.procs) {
		if p.Name == name && !strings.HasSuffix(name, "'") && !s.isCopy(p) || name == p.Name+"'" && s.isCopy(p) {
			return p
		}
	}
	return nil
}

// isCopy reports whether p runs on another host than the first of its id.
func (s *script) isCopy(p *Process) bool {
	for _, o := range s.procs {
		if o.Disk.ID == p.Disk.ID {
			return o.host != p.host
		}
	}
	return false
}

func (s *script) join(contact string) []netip.AddrPort {
	if p := s.named(contact); p != nil {
		return []netip.AddrPort{p.Addr}
	}
	return nil
}

func (s *script) do(d *datadriven.TestData) string {
	var args, flags []string
	values := map[string]string{}
	for _, a := range d.CmdArgs {
		switch {
		case len(a.Vals) > 0:
			values[a.Key] = a.Vals[0]
			flags = append(flags, a.Key)
		default:
			args = append(args, a.Key)
		}
	}
	var who *Process
	if len(args) > 0 {
		who = s.named(args[0])
	}
	switch d.Cmd {
	case "cluster":
		for i := 1; i <= number(args[0]); i++ {
			s.Join(fmt.Sprintf("n%d", i), s.join("n1"))
		}
	case "start":
		s.Join(args[0], s.join(values["join"]))
	case "run":
		s.Run(duration(args[0]))
	case "crash":
		s.Crash(who, len(args) > 1)
	case "restart":
		var contacts []netip.AddrPort
		for _, m := range who.Members() {
			if !m.Self {
				contacts = append(contacts, m.Addr)
			}
		}
		s.Restart(who, slices.Contains(args, "new-address"), uint64(number(values["epochs-back"])), contacts)
	case "copy":
		s.Copy(who, who.Name, s.join("n1"))
	case "reinstall":
		s.Reinstall(who, values["as"], s.join("n1"))
	case "leave":
		s.Leave(who)
	case "hold":
		s.Hold(who, duration(args[1]))
	case "rejoin":
		s.Rejoin(who)
	case "end":
		s.End(who)
	case "freeze":
		s.Freeze(who)
	case "thaw":
		s.Thaw(who)
	case "partition":
		var side []*Process
		for _, name := range args {
			side = append(side, s.named(name))
		}
		s.Partition(side)
	case "cut":
		s.Cut(who, s.named(args[1]))
	case "mend":
		s.MendAll()
		s.SetWeather(Calm())
	case "loss":
		x := Calm()
		x.Loss = float64(number(args[0])) / 100
		s.SetWeather(x)
	case "calm":
		s.SetCalm(true)
	case "await":
		return s.await(flags[0], values)
	case "agree":
		return s.agree(duration(values["within"]))
	case "events":
		return s.events()
	case "members":
		return members(who)
	default:
		return fmt.Sprintf("unknown command %q", d.Cmd)
	}
	return ""
}

// await runs until all other members hold a member in a state.
func (s *script) await(name string, values map[string]string) string {
	state, err := model.ParseState(values[name])
	if err != nil {
		return err.Error()
	}
	who, limit := s.named(name), duration(values["within"])
	missing := ""
	holds := func() bool {
		for _, p := range s.Live() {
			if p == who {
				continue
			}
			if m := row(p.Members(), who.Disk.ID); m == nil || m.Value.State != state {
				missing = p.Name
				return false
			}
		}
		return true
	}
	if s.RunUntil(limit, 10*time.Millisecond, holds) {
		return ""
	}
	return fmt.Sprintf("after %v %s does not hold %s so", limit, missing, name)
}

func (s *script) agree(limit time.Duration) string {
	if s.RunUntil(limit, 10*time.Millisecond, func() bool { return Invariant15LiveAgree(s.World) == nil }) {
		var names []string
		for _, p := range s.Live() {
			names = append(names, p.Name)
		}
		return "live: " + strings.Join(names, " ")
	}
	return fmt.Sprintf("after %v: %v", limit, Invariant15LiveAgree(s.World))
}

// events tells what members saw of each other: subject, then what happened,
// then to whom. Records and updates within one value are left out.
func (s *script) events() string {
	var stories []string
	observers := map[string][]string{}
	for _, p := range s.procs {
		bySubject := map[string][]string{}
		var subjects []string
		if s.seen[p] == nil {
			continue
		}
		for _, e := range *s.seen[p] {
			name := e.Member.Name
			if e.Member.Self {
				name += " of itself"
			}
			if bySubject[name] == nil {
				subjects = append(subjects, name)
			}
			told := fmt.Sprintf("%v %d.%d", e.Kind, e.Member.Value.Epoch, e.Member.Value.Incarnation)
			if list := bySubject[name]; len(list) == 0 || list[len(list)-1] != told {
				bySubject[name] = append(list, told)
			}
		}
		*s.seen[p] = nil
		observer := p.Name
		if s.isCopy(p) {
			observer += "'"
		}
		for _, name := range subjects {
			story := name + ": " + strings.Join(bySubject[name], ", ")
			if observers[story] == nil {
				stories = append(stories, story)
			}
			if !slices.Contains(observers[story], observer) {
				observers[story] = append(observers[story], observer)
			}
		}
	}
	slices.Sort(stories)
	var b strings.Builder
	for _, story := range stories {
		fmt.Fprintf(&b, "%s", story)
		if !strings.Contains(story, "of itself") {
			slices.Sort(observers[story])
			fmt.Fprintf(&b, "   (%s)", strings.Join(observers[story], " "))
		} else if len(observers[story]) > 1 || strings.HasSuffix(observers[story][0], "'") {
			fmt.Fprintf(&b, "   (%s)", strings.Join(observers[story], " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func members(p *Process) string {
	var b strings.Builder
	for _, m := range p.Members() {
		fmt.Fprintf(&b, "%s %v at %v\n", m.Name, m.Value, m.Addr)
	}
	return b.String()
}

// number reads a count; nothing is 0.
func number(text string) int {
	n := 0
	for _, c := range text {
		n = n*10 + int(c-'0')
	}
	return n
}

// duration reads a duration; what is none counts as 0, and the script's output
// then shows it.
func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}
