package store

import (
	"slices"

	"github.com/tidwall/btree"
)

// space is one keyspace. The Machine's is written to; a View's is a copy.
type space struct {
	keys      tree
	arena     arena
	leases    *btree.Map[LeaseID, *lease]
	journal   journal
	revision  int64 // of the last write; 1 at the beginning
	compacted int64 // no history before it
	bytes     int64 // of all versions
	quota     int64
	full      bool // the alarm is on
	digest    Digest
}

// lease is a lease and the keys that hang on it.
type lease struct {
	ttlSeconds int64
	keys       *btree.Map[string, struct{}]
}

// DefaultQuotaBytes bounds a keyspace that was given no other Quota.
const DefaultQuotaBytes = 2 << 30

// versionBytes is what a version takes beside its key and value, about.
const versionBytes = 128

func newSpace() *space {
	return &space{leases: &btree.Map[LeaseID, *lease]{}, revision: 1, quota: DefaultQuotaBytes}
}

// snapshot returns a copy that stays as it is. It costs the same whatever the
// space holds.
func (s *space) snapshot() *space {
	c := *s
	c.keys, c.leases = s.keys.copy(), s.leases.Copy()
	return &c
}

// get returns the version of a key that is in force now, and the history of the key
// whether it is there or not.
func (s *space) get(key string) (v version, there bool, history entry) {
	e, ok := s.keys.get(&s.arena, key)
	if !ok {
		return version{}, false, entry{}
	}
	v = s.arena.version(e.latest)
	return v, !v.deleted(), e
}

func (s *space) has(key string) bool {
	_, there, _ := s.get(key)
	return there
}

// each yields the keys of a range that are there at a revision, in order.
func (s *space) each(r Range, revision int64, yield func(string, version) bool) {
	if r.End == "" {
		if e, ok := s.keys.get(&s.arena, r.Key); ok {
			if v, ok := s.arena.in(e, revision); ok {
				yield(r.Key, v)
			}
		}
		return
	}
	s.keys.ascend(&s.arena, r.Key, func(e entry) bool {
		key := s.arena.key(e.latest)
		if !r.Contains(key) {
			return false
		}
		v, ok := s.arena.in(e, revision)
		return !ok || yield(key, v)
	})
}

// eachVersion yields all versions, by key, oldest first.
func (s *space) eachVersion(yield func(string, version) bool) {
	s.keys.ascend(&s.arena, "", func(e entry) bool {
		key := s.arena.key(e.latest)
		for _, r := range e.older {
			if !yield(key, s.arena.version(r)) {
				return false
			}
		}
		return yield(key, s.arena.version(e.latest))
	})
}

// set gives a key its next version after those of its history, and counts it.
func (s *space) set(key string, v version, history entry) {
	r := s.arena.add(key, v)
	s.keys.set(&s.arena, history.with(r))
	s.journal.add(r)
	s.count(key, v)
}

func (s *space) count(key string, v version) {
	s.bytes += versionBytes + int64(len(key)+len(v.value))
	s.digest.add(digestOf(key, v))
}

func (s *space) uncount(key string, v version) {
	s.bytes -= versionBytes + int64(len(key)+len(v.value))
	s.digest.remove(digestOf(key, v))
}

func (s *space) addLease(id LeaseID, ttlSeconds int64) {
	s.leases.Set(id, &lease{ttlSeconds: ttlSeconds, keys: &btree.Map[string, struct{}]{}})
	s.bytes += versionBytes
	s.digest.add(digestOfLease(id, ttlSeconds))
}

// attach hangs a key on a lease, and detach takes it off; of lease 0 they do
// nothing.
func (s *space) attach(id LeaseID, key string) {
	s.edit(id, func(keys *btree.Map[string, struct{}]) { keys.Set(key, struct{}{}) })
}

func (s *space) detach(id LeaseID, key string) {
	s.edit(id, func(keys *btree.Map[string, struct{}]) { keys.Delete(key) })
}

// edit replaces a lease by one with other keys, since views have the old one.
func (s *space) edit(id LeaseID, change func(*btree.Map[string, struct{}])) {
	old, ok := s.leases.Get(id)
	if !ok {
		return
	}
	next := &lease{ttlSeconds: old.ttlSeconds, keys: old.keys.Copy()}
	change(next.keys)
	s.leases.Set(id, next)
}

// compact drops what nobody can ask for at a revision or later.
func (s *space) compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return ErrCompacted
	case revision > s.revision:
		return ErrFutureRevision
	}
	s.dropVersions(revision)
	s.journal.dropBefore(&s.arena, revision)
	s.empty(revision)
	s.compacted = revision
	return nil
}

// dropVersions drops what was replaced before a revision, and deletions before it.
func (s *space) dropVersions(revision int64) {
	a := &s.arena
	var gone []string
	s.keys.update(func(e entry) (entry, bool) {
		if len(e.older) == 0 {
			if v := a.version(e.latest); !v.deleted() || v.mod >= revision {
				return e, false
			}
		}
		all := e.all()
		n := a.since(all, revision)
		if n == 0 {
			return e, false
		}
		key := a.key(e.latest)
		for _, r := range all[:n] {
			s.uncount(key, a.version(r))
			a.drop(r)
		}
		if n == len(all) {
			gone = append(gone, key)
			return e, false
		}
		return entry{latest: e.latest, older: append([]ref(nil), e.older[n:]...)}, true
	})
	for _, key := range gone {
		s.keys.remove(a, key)
	}
}

// empty lets go of slabs of which most does not count any more: what does goes
// elsewhere, if a compaction at a revision has nothing of it in the journal.
func (s *space) empty(revision int64) {
	if sparse := s.arena.sparse(revision); sparse != nil {
		s.keys.update(func(e entry) (entry, bool) {
			moved := false
			move := func(r ref) ref {
				if n := r.slab(); n < len(sparse) && sparse[n] {
					moved = true
					return s.arena.move(r)
				}
				return r
			}
			out := entry{latest: move(e.latest)}
			for i, r := range e.older {
				to := move(r)
				if to != r && out.older == nil {
					out.older = slices.Clone(e.older)
				}
				if out.older != nil {
					out.older[i] = to
				}
			}
			if out.older == nil {
				out.older = e.older
			}
			return out, moved
		})
	}
	s.arena.sweep()
}
