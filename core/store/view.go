package store

import "encoding/binary"

// View is the state after an entry. It is immutable and may be kept.
type View struct {
	index, term  uint64
	user, system *space
	clients      *clients
}

// Stats describes a keyspace in numbers.
type Stats struct {
	Revision   int64
	Compacted  int64 // revisions before it cannot be read
	Bytes      int64
	QuotaBytes int64
	Full       bool // writes are refused until Disarm
	Keys       int  // with a history, deleted ones included
	Leases     int
}

// View returns the state as it is now. It costs the same whatever there is.
func (m *Machine) View() *View {
	return &View{index: m.index, term: m.term, user: m.user.snapshot(), system: m.system.snapshot(), clients: m.clients.snapshot()}
}

// Applied returns index and term of the last entry that it contains.
func (v *View) Applied() (index, term uint64) { return v.index, v.term }

// UserOnly returns the state with nothing in the system's keyspace, and no clients:
// what of it may be shown to those who may not see that one.
func (v *View) UserOnly() *View {
	system := newSpace()
	system.quota = v.system.quota
	return &View{index: v.index, term: v.term, user: v.user, system: system, clients: newClients()}
}

// Range reads. Errors are those of the package.
func (v *View) Range(k Keyspace, op RangeOp) (*RangeResult, error) {
	s := v.space(k)
	if s == nil {
		return nil, ErrInvalid
	}
	return s.read(op)
}

// Since yields what was written to a range in a revision or after it, in order.
// It is ErrCompacted if parts of that are no longer there. A revision still to
// come is no error: there is nothing yet.
func (v *View) Since(k Keyspace, r Range, revision int64, yield func(Event) bool) error {
	s := v.space(k)
	switch {
	case s == nil:
		return ErrInvalid
	case revision < s.compacted:
		return ErrCompacted
	}
	s.journal.since(&s.arena, revision, func(at ref) bool {
		key := s.arena.key(at)
		if !r.Contains(key) {
			return true
		}
		v := s.arena.version(at)
		event := Event{KV: v.of(key)}
		if v.number != 1 { // else it was not there before
			event.Prev = s.before(key, v.mod)
		}
		return yield(event)
	})
	return nil
}

// before returns what a key was before a revision; nil if it was not there, or if
// that is compacted.
func (s *space) before(key string, revision int64) *KeyValue {
	e, ok := s.keys.get(&s.arena, key)
	if !ok {
		return nil
	}
	v, ok := s.arena.in(e, revision-1)
	if !ok {
		return nil
	}
	kv := v.of(key)
	return &kv
}

// Lease describes a lease; false if it is not there.
func (v *View) Lease(k Keyspace, id LeaseID) (LeaseInfo, bool) {
	s := v.space(k)
	if s == nil {
		return LeaseInfo{}, false
	}
	l, ok := s.leases.Get(id)
	if !ok {
		return LeaseInfo{}, false
	}
	return LeaseInfo{ID: id, TTLSeconds: l.ttlSeconds, Keys: l.keys.Keys()}, true
}

// Leases yields id and time to live of all leases, by id.
func (v *View) Leases(k Keyspace, yield func(id LeaseID, ttlSeconds int64) bool) {
	if s := v.space(k); s != nil {
		s.leases.Scan(func(id LeaseID, l *lease) bool { return yield(id, l.ttlSeconds) })
	}
}

// Stats returns the numbers of a keyspace.
func (v *View) Stats(k Keyspace) Stats {
	s := v.space(k)
	if s == nil {
		return Stats{}
	}
	return Stats{
		Revision: s.revision, Compacted: s.compacted, Bytes: s.bytes, QuotaBytes: s.quota, Full: s.full,
		Keys: s.keys.keys, Leases: s.leases.Len(),
	}
}

// Digest condenses all of the state that commands can see.
func (v *View) Digest() Digest {
	d := v.user.digest
	for i, s := range []*space{v.user, v.system} {
		var head [48]byte
		for j, n := range []int64{int64(i), s.revision, s.compacted, s.bytes, s.quota} {
			binary.LittleEndian.PutUint64(head[8*j:], uint64(n))
		}
		if s.full {
			head[40] = 1
		}
		d.add(digest(head[:], "space", nil))
	}
	// Content of the two is told apart: the same key in the other is not the same.
	d.add(Digest{A: v.system.digest.B, B: v.system.digest.A})
	d.add(v.clients.digest)
	return d
}

func (v *View) space(k Keyspace) *space {
	switch k {
	case User:
		return v.user
	case System:
		return v.system
	}
	return nil
}

// Eval carries out an operation that only reads. One that writes is ErrInvalid.
func (v *View) Eval(k Keyspace, op Op) (OpResult, error) {
	s := v.space(k)
	if s == nil || op.Writes() {
		return OpResult{}, ErrInvalid
	}
	if err := s.check(op); err != nil {
		return OpResult{}, err
	}
	w := writer{s: s, revision: s.revision + 1}
	return w.do(op), nil
}

// HashAt condenses all versions up to a revision that are still there; 0 is the
// newest. Servers that agree have equal hashes at equal revisions.
func (v *View) HashAt(k Keyspace, revision int64) (hash uint32, at, compacted int64, err error) {
	s := v.space(k)
	if s == nil {
		return 0, 0, 0, ErrInvalid
	}
	if at, err = s.readable(revision); err != nil {
		return 0, 0, 0, err
	}
	var d Digest
	s.eachVersion(func(key string, v version) bool {
		if v.mod <= at {
			d.add(digestOf(key, v))
		}
		return true
	})
	return uint32(d.A ^ d.A>>32 ^ d.B), at, s.compacted, nil
}
