package store

import "sort"

// version is a KeyValue without its key.
type version struct {
	mod, create, number int64
	lease               LeaseID
	place               int32 // among the writes of its revision
	value               []byte
}

func (v version) of(key string) KeyValue {
	return KeyValue{Key: key, Value: v.value, Create: v.create, Mod: v.mod, Version: v.number, Lease: v.lease}
}

// deleted reports whether the key is not there from this version on.
func (v version) deleted() bool { return v.number == 0 }

// entry is the history of one key, as places in the arena of its space; the zero
// value is that of a key without one. It is immutable, except that older may be appended to behind what this entry sees; see
// with.
type entry struct {
	latest ref
	older  []ref // oldest first; Invariant: mod rises, up to latest
}

// with returns the entry with one more version. It may write into the room
// behind older, which no other entry of this key looks at: history is one line,
// and only the newest entry of a key is built upon.
func (e entry) with(r ref) entry {
	if e.latest == 0 {
		return entry{latest: r}
	}
	return entry{latest: r, older: append(e.older, e.latest)}
}

// all returns all versions, oldest first.
func (e entry) all() []ref { return append(e.older[:len(e.older):len(e.older)], e.latest) }

// upTo returns the last version of a revision or before, a deletion included;
// false if there is none.
func (a *arena) upTo(e entry, revision int64) (version, bool) {
	if a.mod(e.latest) <= revision {
		return a.version(e.latest), true
	}
	i := a.firstAfter(e.older, revision)
	if i == 0 {
		return version{}, false
	}
	return a.version(e.older[i-1]), true
}

// in returns the version in force at a revision, false if the key was not there.
func (a *arena) in(e entry, revision int64) (version, bool) {
	v, ok := a.upTo(e, revision)
	return v, ok && !v.deleted()
}

// since says how many of all versions of an entry a compaction at a revision
// drops: what was replaced before it, and deletions before it.
func (a *arena) since(all []ref, revision int64) int {
	keep := a.firstAfter(all, revision-1)
	if keep > 0 && !a.version(all[keep-1]).deleted() && (keep == len(all) || a.mod(all[keep]) > revision) {
		keep-- // in force at the revision
	}
	return keep
}

// firstAfter returns which of some versions is the first after a revision.
func (a *arena) firstAfter(all []ref, revision int64) int {
	return sort.Search(len(all), func(i int) bool { return a.mod(all[i]) > revision })
}
