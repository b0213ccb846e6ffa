package rules

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Restore returns what `iptables-restore --noflush` has to read to bring the table
// from one plan to another of the same instance, nil if nothing has to be done. A nil
// plan is one of which nothing stands. Base chains are not in it: see Plan.Jumps. Its
// length follows what differs. It expects that from stands as planned, and fails as a
// whole if a chain that both have is missing; Repair expects nothing.
func Restore(from, to *Plan) []byte {
	if from == to {
		return nil
	}
	var s script
	for name, body := range to.chains {
		if !from.holds(name) {
			s.fill(name, body.rules)
		}
	}
	for h := range roots {
		was := from.root(h)
		switch is := to.roots[h]; {
		case is == was:
		case is.used:
			s.fill(rootName(to.tag, h), is.rules)
		default: // the jump to it may still stand
			s.fill(rootName(to.tag, h), "")
		}
	}
	if from != nil {
		for name := range from.chains {
			if !to.holds(name) {
				s.remove(name)
			}
		}
	}
	return s.text()
}

func (p *Plan) holds(name string) bool {
	if p == nil {
		return false
	}
	_, ok := p.chains[name]
	return ok
}

func (p *Plan) root(h hook) root {
	if p == nil {
		return root{}
	}
	return p.roots[h]
}

// script collects what one COMMIT does to the nat table.
type script struct {
	filled  map[string]string // to be made or emptied, then to have these rules
	removed []string
	before  []string // lines for rules in others' chains, which name chains of ours
	after   []string
}

func (s *script) fill(name, body string) {
	if s.filled == nil {
		s.filled = make(map[string]string)
	}
	s.filled[name] = body
}

func (s *script) remove(name string) { s.removed = append(s.removed, name) }

func (s *script) empty() bool {
	return len(s.filled)+len(s.removed)+len(s.before)+len(s.after) == 0
}

// text writes the script. Lines work in their order: chains are made before rules
// name them, and all that are to go are emptied before the first goes, so that none
// is named any more. The line ":NAME" makes a chain or empties it, so what is already
// gone does not make the whole fail.
func (s *script) text() []byte {
	if s.empty() {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("*nat\n")
	names := slices.Sorted(maps.Keys(s.filled))
	slices.Sort(s.removed)
	for _, name := range names {
		b.WriteString(":" + name + " - [0:0]\n")
	}
	for _, name := range s.removed {
		b.WriteString(":" + name + " - [0:0]\n")
	}
	for _, name := range names {
		for rule := range strings.Lines(s.filled[name]) {
			b.WriteString("-A ")
			b.WriteString(name)
			b.WriteByte(' ')
			b.WriteString(rule)
		}
	}
	for _, lines := range [][]string{s.before, s.after} {
		for _, line := range lines {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	for _, name := range s.removed {
		b.WriteString("-X " + name + "\n")
	}
	b.WriteString("COMMIT\n")
	return b.Bytes()
}
