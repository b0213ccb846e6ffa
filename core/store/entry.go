package store

import "slices"

// version is a KeyValue without its key.
type version struct {
	mod, create, number int64
	lease               LeaseID
	place               int32 // among the writes of its revision
	value               []byte
}

// entry is the history of one key. It is immutable, except that older may be
// appended to behind what this entry sees; see with.
type entry struct {
	latest version
	older  []version // oldest first; Invariant: mod rises, up to latest
}

func (v version) of(key string) KeyValue {
	return KeyValue{Key: key, Value: v.value, Create: v.create, Mod: v.mod, Version: v.number, Lease: v.lease}
}

// with returns the entry with one more version. It may write into the room
// behind older, which no other entry of this key looks at: history is one line,
// and only the newest entry of a key is built upon.
func (e *entry) with(v version) *entry {
	if e == nil {
		return &entry{latest: v}
	}
	return &entry{latest: v, older: append(e.older, e.latest)}
}

// at returns the version in force at a revision, nil if the key was not there.
func (e *entry) at(revision int64) *version {
	v := e.upTo(revision)
	if v == nil || v.number == 0 {
		return nil
	}
	return v
}

// upTo returns the last version of a revision or before, a deletion included.
func (e *entry) upTo(revision int64) *version {
	if e.latest.mod <= revision {
		return &e.latest
	}
	i, _ := slices.BinarySearchFunc(e.older, revision+1, func(v version, r int64) int { return compare(v.mod, r) })
	if i == 0 {
		return nil
	}
	return &e.older[i-1]
}

// since returns the entry without the versions that a compaction at a revision
// drops, and those: what was replaced before it, and deletions before it. It is
// nil if nothing is left.
func (e *entry) since(revision int64) (left *entry, dropped []version) {
	all := append(slices.Clone(e.older), e.latest)
	keep, _ := slices.BinarySearchFunc(all, revision, func(v version, r int64) int { return compare(v.mod, r) })
	if keep > 0 && all[keep-1].number != 0 && (keep == len(all) || all[keep].mod > revision) {
		keep-- // in force at the revision
	}
	if keep == 0 {
		return e, nil
	}
	if keep == len(all) {
		return nil, all
	}
	return &entry{latest: e.latest, older: slices.Clip(slices.Clone(all[keep : len(all)-1]))}, all[:keep]
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
