package store

import "github.com/tidwall/btree"

// space is one keyspace. The Machine's is written to; a View's is a copy.
type space struct {
	keys      *btree.Map[string, *entry]
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
	return &space{keys: &btree.Map[string, *entry]{}, leases: &btree.Map[LeaseID, *lease]{}, revision: 1, quota: DefaultQuotaBytes}
}

// snapshot returns a copy that stays as it is. It costs the same whatever the
// space holds.
func (s *space) snapshot() *space {
	c := *s
	c.keys, c.leases = s.keys.Copy(), s.leases.Copy()
	return &c
}

// get returns the version of a key that is in force now.
func (s *space) get(key string) *version {
	e, ok := s.keys.Get(key)
	if !ok || e.latest.number == 0 {
		return nil
	}
	return &e.latest
}

// each yields the keys of a range that are there at a revision, in order.
func (s *space) each(r Range, revision int64, yield func(string, *version) bool) {
	if r.End == "" {
		if e, ok := s.keys.Get(r.Key); ok {
			if v := e.at(revision); v != nil {
				yield(r.Key, v)
			}
		}
		return
	}
	s.keys.Ascend(r.Key, func(key string, e *entry) bool {
		if !r.Contains(key) {
			return false
		}
		v := e.at(revision)
		return v == nil || yield(key, v)
	})
}

// set gives a key its next version, and counts it.
func (s *space) set(key string, v version) {
	old, _ := s.keys.Get(key)
	s.keys.Set(key, old.with(v))
	s.journal.add(write{v.mod, key})
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
	type change struct {
		key  string
		left *entry
	}
	var changes []change
	s.keys.Scan(func(key string, e *entry) bool {
		if len(e.older) == 0 && (e.latest.number != 0 || e.latest.mod >= revision) {
			return true // nothing to drop
		}
		left, dropped := e.since(revision)
		for _, v := range dropped {
			s.uncount(key, v)
		}
		if len(dropped) > 0 {
			changes = append(changes, change{key, left})
		}
		return true
	})
	for _, c := range changes {
		if c.left == nil {
			s.keys.Delete(c.key)
		} else {
			s.keys.Set(c.key, c.left)
		}
	}
	s.journal.dropBefore(revision)
	s.compacted = revision
	return nil
}
