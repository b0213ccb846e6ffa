package formation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fairlead/fairlead/core/model"
)

// TestScripts plays testdata/scripts, one seed each, with all invariants checked.
// `go test ./core/formation -run TestScripts -rewrite` writes what happens.
//
//	servers NAME=EXPECT…     machines with the ids 1, 2, …, all joining the first
//	join NAME TARGET         that one joins another
//	start NAMES… | crash NAMES… | freeze NAMES… | thaw NAMES…
//	wipe NAME id=N           an empty data directory, with that id
//	expect NAME N            its configuration from the next start on
//	crash-when NAME WHAT     end it after it has written a proposal, yes or formed, before it
//	                         sends anything
//	partition NAMES|NAMES    two sides;  cut A B  one direction;  mend  ends all
//	run DURATION             let time pass, and show what is written
//	recover NAME CLUSTER | added NAME CLUSTER | force-leave ID
//	state                    what each disk holds, and what each server awaits
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		p := &play{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.out.Reset()
			p.do(t, d)
			if p.out.Len() == 0 {
				return "ok"
			}
			return p.out.String()
		})
	})
}

type play struct {
	*world
	out strings.Builder
}

func (p *play) do(t *testing.T, d *datadriven.TestData) {
	args := d.CmdArgs
	switch d.Cmd {
	case "servers":
		p.world = newWorld(1, len(args), 0)
		for i, a := range args {
			m := p.machines[i]
			m.name = a.Key
			a.Scan(t, 0, &m.expect)
			m.wipe(model.NodeID(i + 1))
		}
		p.ids = 0
		p.note = func(format string, args ...any) {
			fmt.Fprintf(&p.out, "%6.2fs %s\n", p.elapsed.Seconds(), fmt.Sprintf(format, args...))
		}
		p.find = func(format string, args ...any) { t.Fatalf("%s: %s", d.Pos, fmt.Sprintf(format, args...)) }
	case "start", "crash", "freeze", "thaw":
		for _, a := range args {
			m := p.named(t, a.Key)
			switch d.Cmd {
			case "start":
				m.start()
			case "crash":
				m.crash()
			default:
				m.frozen = d.Cmd == "freeze"
			}
		}
	case "wipe":
		var id uint64
		d.ScanArgs(t, "id", &id)
		p.named(t, args[0].Key).wipe(model.NodeID(id))
	case "join":
		p.named(t, args[0].Key).join = []*machine{p.named(t, args[1].Key)}
	case "expect":
		fmt.Sscan(args[1].Key, &p.named(t, args[0].Key).expect)
	case "crash-when":
		p.crashWhen(p.named(t, args[0].Key), args[1].Key)
	case "partition":
		p.partition(p.sides(t, args))
	case "cut":
		p.world.cut[[2]*machine{p.named(t, args[0].Key), p.named(t, args[1].Key)}] = true
	case "mend":
		clear(p.world.cut)
	case "run":
		length, err := time.ParseDuration(args[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		p.run(length)
	case "recover", "added":
		p.operator(t, d.Cmd, p.named(t, args[0].Key), args[1].Key)
	case "force-leave":
		var id uint64
		fmt.Sscan(args[0].Key, &id)
		p.left[model.NodeID(id)] = true
	case "state":
		p.state()
	default:
		t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
	}
}

func (p *play) named(t *testing.T, name string) *machine {
	i := slices.IndexFunc(p.machines, func(m *machine) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("no server %q", name)
	}
	return p.machines[i]
}

func (p *play) sides(t *testing.T, args []datadriven.CmdArg) map[*machine]int {
	groups, side := map[*machine]int{}, 0
	for _, a := range args {
		if a.Key == "|" {
			side++
			continue
		}
		groups[p.named(t, a.Key)] = side
	}
	return groups
}

func (p *play) crashWhen(m *machine, what string) {
	p.trap = func(on *machine, r Record) {
		own := r.Yes != nil && r.Yes.Candidate == m.id
		if on != m || !(what == "proposal" && own || what == "yes" && r.Yes != nil && !own || what == "formed" && r.Formed != nil) {
			return
		}
		p.trap = nil
		m.crash()
	}
}

func (p *play) operator(t *testing.T, cmd string, m *machine, text string) {
	cluster, err := ParseClusterID(text)
	if err != nil {
		t.Fatal(err)
	}
	m.do(func(s *Server) {
		if cmd == "added" {
			err = s.Added(p.clock(), cluster)
		} else if err = s.Recover(p.clock(), cluster); err == nil {
			m.dir.recovered[cluster] = true
		}
	})
	if err != nil {
		fmt.Fprintln(&p.out, err)
	}
}

func (p *play) state() {
	for _, m := range p.machines {
		fmt.Fprintf(&p.out, "%s: %s\n", m.name, describe(m.record()))
		if m.proc == nil {
			continue
		}
		fmt.Fprintf(&p.out, "    %s\n", cmp.Or(m.proc.Awaits(), "awaits nothing"))
	}
}
