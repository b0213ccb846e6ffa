package view

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"github.com/fairlead/fairlead/core/model"
)

// maxRemoved bounds the removed services that a view remembers. Diff from a
// view before the oldest of them compares everything.
const maxRemoved = 4096

// Change is one service that is different in two views.
type Change struct {
	Key      model.ServiceKey
	Old, New *Service // Old nil: added; New nil: removed
}

// Diff returns the services in which two views differ, in the order of their
// keys. Its cost is that of what changed between them if is follows from was,
// or was is nil, else that of all services.
func Diff(was, is *View) []Change {
	var keys []model.ServiceKey
	switch {
	case was == is:
		return nil
	case was != nil && was.lineage == is.lineage && is.Epoch > was.Epoch && was.Epoch >= is.changed.forgotten:
		keys = is.changed.since(was.Epoch)
	default:
		for s := range is.Services() {
			keys = append(keys, s.Key)
		}
		if was != nil {
			for s := range was.Services() {
				keys = append(keys, s.Key)
			}
		}
	}
	slices.SortFunc(keys, model.ServiceKey.Compare)
	keys = slices.Compact(keys)
	out := make([]Change, 0, len(keys))
	for _, k := range keys {
		c := Change{Key: k, New: is.Service(k)}
		if was != nil {
			c.Old = was.Service(k)
		}
		if c.Old != c.New && (c.Old == nil || c.New == nil || !c.Old.same(c.New)) {
			out = append(out, c)
		}
	}
	return out
}

// changes lists services by when they last changed.
type changes struct {
	live    *btree.BTreeG[*Service] // by Changed, then key
	removed *btree.BTreeG[removed]  // by epoch, then key; may hold keys that are back

	// forgotten is the epoch of the last removal that was dropped from the
	// list: what happened up to it is not all here.
	forgotten uint64
}

type removed struct {
	epoch uint64
	key   model.ServiceKey
}

func newChanges() *changes {
	return &changes{
		live: newTree(func(a, b *Service) bool { return cmp.Or(cmp.Compare(a.Changed, b.Changed), a.Key.Compare(b.Key)) < 0 }),
		removed: newTree(func(a, b removed) bool {
			return cmp.Or(cmp.Compare(a.epoch, b.epoch), a.key.Compare(b.key)) < 0
		}),
	}
}

func (c *changes) copy() *changes {
	return &changes{live: c.live.Copy(), removed: c.removed.Copy(), forgotten: c.forgotten}
}

func (c *changes) remove(k model.ServiceKey, epoch uint64) {
	c.removed.Set(removed{epoch, k})
	for c.removed.Len() > maxRemoved {
		if oldest, ok := c.removed.PopMin(); ok {
			c.forgotten = oldest.epoch
		}
	}
}

// since lists what changed after an epoch; some keys twice.
func (c *changes) since(epoch uint64) []model.ServiceKey {
	var keys []model.ServiceKey
	c.live.Reverse(func(s *Service) bool {
		if s.Changed > epoch {
			keys = append(keys, s.Key)
		}
		return s.Changed > epoch
	})
	c.removed.Reverse(func(r removed) bool {
		if r.epoch > epoch {
			keys = append(keys, r.key)
		}
		return r.epoch > epoch
	})
	return keys
}
