package rules

import (
	"maps"
	"slices"
)

// owner is whose a rule in a chain of others is: ours if its comment says so.
type owner struct {
	tag   string
	inert bool
}

func ownerOf(r Rule) (owner, bool) {
	tag, inert, ok := tagOfComment(remark(r.Spec))
	return owner{tag, inert && target(r.Spec) == ""}, ok
}

// strangers are the chains of ours to which a rule leads that stays when the chains and
// rules of the tags that go do, each with that rule's chain. They cannot be removed.
func (t *Table) strangers(goes func(tag string) bool) map[string]string {
	held := make(map[string]string)
	for _, c := range t.Chains {
		tag, chainOurs := tagOf(c.Name)
		if chainOurs && goes(tag) {
			continue
		}
		for _, r := range c.Rules {
			if o, ours := ownerOf(r); ours && !chainOurs && goes(o.tag) {
				continue
			}
			to := target(r.Spec)
			if _, ours := tagOf(to); ours {
				held[to] = c.Name
			}
		}
	}
	return held
}

// Tags are those of the instances that have something in the table.
func Tags(found *Table) []string {
	tags := make(map[string]bool)
	for _, c := range found.Chains {
		if tag, ours := tagOf(c.Name); ours {
			tags[tag] = true
			continue
		}
		for _, r := range c.Rules {
			if o, ours := ownerOf(r); ours {
				tags[o.tag] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(tags))
}
