package rules

import (
	"fmt"
	"strings"
)

// Drift says what of a plan does not stand as planned, in the order of the table, at
// most a dozen lines; nil if all does. Rules of others do not count, nor does it where
// in a base chain ours stand.
func Drift(found *Table, p *Plan) []string {
	const most = 12
	var lines []string
	compare(found, p, func(line string, _ func(*script)) bool {
		lines = append(lines, line)
		return len(lines) < most
	})
	return lines
}

// Repair returns what `iptables-restore --noflush` has to read so that a plan stands,
// whatever stands now: what is missing or was altered is made, what is left of earlier
// plans of the instance removed, and base chains lead to it, first of all where they
// did not. Nil if all is as planned. It is also the way to begin.
func Repair(found *Table, p *Plan) []byte {
	var s script
	compare(found, p, func(_ string, mend func(*script)) bool {
		mend(&s)
		return true
	})
	return s.text()
}

// compare yields what differs, and what to do about it.
func compare(found *Table, p *Plan, yield func(line string, mend func(*script)) bool) {
	_ = p.compareJumps(found, yield) && p.compareChains(found, yield)
}

func (p *Plan) compareJumps(found *Table, yield func(string, func(*script)) bool) bool {
	var stands [hooks]bool
	for _, c := range found.Chains {
		if _, ours := tagOf(c.Name); ours {
			continue
		}
		for _, r := range c.Rules {
			if o, ours := ownerOf(r); !ours || o.tag != p.tag {
				continue
			}
			wanted := false
			for h := range hooks {
				if !stands[h] && p.roots[h].used && c.Name == h.base() && sameRule(r.Spec, p.jump(h)) {
					stands[h], wanted = true, true
				}
			}
			if wanted {
				continue
			}
			if !yield(fmt.Sprintf("%s has a rule too many: %s", c.Name, clip(r.Spec)), func(s *script) {
				s.before = append(s.before, "-D "+c.Name+" "+r.Spec)
			}) {
				return false
			}
		}
	}
	for h := range hooks {
		if stands[h] || !p.roots[h].used {
			continue
		}
		if !yield(fmt.Sprintf("%s does not lead to %s", h.base(), rootName(p.tag, h)), func(s *script) {
			s.after = append(s.after, "-I "+h.base()+" 1 "+p.jump(h))
		}) {
			return false
		}
	}
	return true
}

func (p *Plan) compareChains(found *Table, yield func(string, func(*script)) bool) bool {
	strangers := found.strangers(func(tag string) bool { return tag == p.tag })
	planned := p.all()
	for _, c := range found.Chains {
		tag, ours := tagOf(c.Name)
		if !ours || tag != p.tag {
			continue
		}
		if body, ok := planned[c.Name]; ok {
			if !c.stands(body) && !yield(fmt.Sprintf("%s was altered", c.Name), func(s *script) { s.fill(c.Name, body) }) {
				return false
			}
			continue
		}
		if by, held := strangers[c.Name]; held {
			if len(c.Rules) > 0 && !yield(fmt.Sprintf("%s is left over; a rule of %s leads to it", c.Name, by), func(s *script) { s.fill(c.Name, "") }) {
				return false
			}
			continue
		}
		if !yield(fmt.Sprintf("%s is left over", c.Name), func(s *script) { s.remove(c.Name) }) {
			return false
		}
	}
	for h := range roots {
		name := rootName(p.tag, h)
		if body, ok := planned[name]; ok && found.Chain(name) == nil && !yield(name+" is missing", func(s *script) { s.fill(name, body) }) {
			return false
		}
	}
	for name, body := range p.chains {
		if found.Chain(name) == nil && !yield(name+" is missing", func(s *script) { s.fill(name, body.rules) }) {
			return false
		}
	}
	return true
}

// all are the chains of the plan, with the roots.
func (p *Plan) all() map[string]string {
	all := make(map[string]string, len(p.chains)+int(roots))
	for name, body := range p.chains {
		all[name] = body.rules
	}
	for h := range roots {
		if p.roots[h].used {
			all[rootName(p.tag, h)] = p.roots[h].rules
		}
	}
	return all
}

// stands reports whether a chain has these rules.
func (c *Chain) stands(body string) bool {
	i := 0
	for line := range strings.Lines(body) {
		if i == len(c.Rules) || !sameRule(c.Rules[i].Spec, strings.TrimSuffix(line, "\n")) {
			return false
		}
		i++
	}
	return i == len(c.Rules)
}
