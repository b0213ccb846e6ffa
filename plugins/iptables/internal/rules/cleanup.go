package rules

import "fmt"

// Item is something of ours that stands in a table.
type Item struct {
	Object string // "chain NAME" or "rule of CHAIN: SPEC"
	Tag    string // of its instance
	Goes   bool   // the text removes it
	Why    string // if not: why it stays
	Inert  bool   // the rule that keepInert leaves
}

// Cleanup returns what `iptables-restore --noflush` has to read so that nothing of an
// instance is left, or of any instance, nil if nothing is, and what it found, also of
// other instances. It needs no more than what stands.
//
// keepInert leaves a rule that matches but does nothing, for a data plane that gives
// way to one without NAT: with the last rule that uses connection tracking the kernel
// stops translating, and the connections that were led would end. It is left only
// where something goes, or was left already; a later Cleanup or Repair removes it.
func Cleanup(found *Table, instance string, all, keepInert bool) ([]byte, []Item) {
	var s script
	var items []Item
	tag := Tag(instance)
	goes := func(other string) bool { return all || other == tag }
	strangers := found.strangers(goes)
	inert := false
	for _, c := range found.Chains {
		if chainTag, ours := tagOf(c.Name); ours {
			i := Item{Object: "chain " + c.Name, Tag: chainTag, Goes: true}
			switch by, held := strangers[c.Name]; {
			case !goes(chainTag):
				i.Goes, i.Why = false, "another instance's"
			case held:
				if len(c.Rules) > 0 {
					s.fill(c.Name, "")
				}
				i.Goes, i.Why = false, fmt.Sprintf("emptied, but a rule of %s that stays leads to it: remove that rule first", by)
			default:
				s.remove(c.Name)
			}
			items = append(items, i)
			continue
		}
		for _, r := range c.Rules {
			o, ours := ownerOf(r)
			if !ours {
				continue
			}
			i := Item{Object: fmt.Sprintf("rule of %s: %s", c.Name, r.Spec), Tag: o.tag, Goes: true, Inert: o.inert}
			switch {
			case !goes(o.tag):
				i.Goes, i.Why = false, "another instance's"
			case keepInert && o.inert && o.tag == tag && !inert:
				inert = true
				i.Goes, i.Why = false, "it keeps the connections that were led until they end"
			default:
				s.before = append(s.before, "-D "+c.Name+" "+r.Spec)
			}
			items = append(items, i)
		}
	}
	if keepInert && !inert && !s.empty() {
		s.after = append(s.after, "-A "+post.base()+" "+inertRule(tag))
	}
	return s.text(), items
}

// inertRule has no target, so a packet goes on to the next rule.
func inertRule(tag string) string {
	return "-m comment --comment " + comment(tag) + inertSuffix + " -m conntrack --ctstate DNAT"
}
