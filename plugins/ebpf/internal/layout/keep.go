package layout

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// Keep adds to a plan the endpoints that the maps have and the service does not
// list: while the host is not complete, what it lacks may only be unknown to it.
// has are the ids of all endpoints that it lists, sorted; what Keep returns has
// those of the others as well.
func (t *Table) Keep(k dataplane.Key, plan *Plan, has []uint64) []uint64 {
	rec := t.services[k]
	if rec == nil {
		return has
	}
	all := slices.Clone(has)
	for f := range Families {
		if !plan.Needs[f] {
			continue
		}
		for s := range Scopes {
			if s == Foreign && plan.Shared[f] {
				if rec.sets[f][Foreign] == rec.sets[f][Home] {
					break
				}
				plan.Slots[f][Foreign], plan.Shared[f] = slices.Clone(plan.Slots[f][Home]), false
				// Home has grown meanwhile by what is only there.
				plan.Slots[f][Foreign] = slices.DeleteFunc(plan.Slots[f][Foreign], func(s Slot) bool { return !listed(has, s.ID) })
			}
			if !rec.sets[f][s].there {
				continue
			}
			for _, slot := range t.slots(f, rec.sets[f][s]) {
				if !listed(has, slot.ID) && len(plan.Slots[f][s]) < MaxCount {
					plan.Slots[f][s] = append(plan.Slots[f][s], slot)
					all = append(all, slot.ID)
				}
			}
			slices.SortStableFunc(plan.Slots[f][s], func(a, b Slot) int { return cmp.Compare(a.ID, b.ID) })
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func listed(ids []uint64, id uint64) bool {
	_, is := slices.BinarySearch(ids, id)
	return is
}
