package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// snapshotVersion is the first number of a snapshot.
const snapshotVersion = 1

// snapshotChunkBytes is about how much Encode yields at a time.
const snapshotChunkBytes = 256 << 10

// Encode yields the state as a snapshot, in pieces that the callee must not
// keep. It stops at the first error and returns it.
func (v *View) Encode(yield func([]byte) error) error {
	e := encoder{yield: yield}
	e.b = appendUint(appendUint(appendUint(e.b, snapshotVersion), v.index), v.term)
	for _, s := range []*space{v.user, v.system} {
		e.space(s)
	}
	e.clients(v.clients)
	e.flush(0)
	return e.err
}

type encoder struct {
	b     []byte
	yield func([]byte) error
	err   error
}

// flush yields what there is, if it is more than limit bytes.
func (e *encoder) flush(limit int) bool {
	if e.err == nil && len(e.b) > limit {
		e.err = e.yield(e.b)
		e.b = e.b[:0]
	}
	return e.err == nil
}

func (e *encoder) space(s *space) {
	for _, n := range []int64{s.revision, s.compacted, s.quota} {
		e.b = appendInt(e.b, n)
	}
	e.b = appendBool(e.b, s.full)
	e.b = appendUint(e.b, uint64(s.leases.Len()))
	s.leases.Scan(func(id LeaseID, l *lease) bool {
		e.b = appendInt(appendInt(e.b, int64(id)), l.ttlSeconds)
		return e.flush(snapshotChunkBytes)
	})
	e.b = appendUint(e.b, uint64(s.keys.keys))
	s.keys.ascend(&s.arena, "", func(en entry) bool {
		e.b = appendUint(appendBytes(e.b, s.arena.key(en.latest)), uint64(len(en.older)+1))
		for _, r := range en.older {
			e.version(s.arena.version(r))
		}
		e.version(s.arena.version(en.latest))
		return e.flush(snapshotChunkBytes)
	})
}

func (e *encoder) version(v version) {
	e.b = appendVersion(e.b, v.create, v.mod, v.number, v.lease)
	e.b = appendBytes(appendUint(e.b, uint64(v.place)), v.value)
}

func (e *encoder) clients(c *clients) {
	e.b = appendUint(e.b, uint64(c.byUse.Len()))
	c.byUse.Scan(func(_ uint64, key string) bool {
		now, _ := c.byID.Get(key)
		e.b = append(e.b, key...)
		e.b = appendUint(appendUint(e.b, now.done), uint64(now.results.Len()))
		now.results.Scan(func(sequence uint64, k kept) bool {
			e.b = appendBytes(appendUint(e.b, sequence), k)
			return e.flush(snapshotChunkBytes)
		})
		return e.flush(snapshotChunkBytes)
	})
}

// Decode returns the machine that a snapshot describes: from it on, the same
// entries have the same effect. Errors wrap ErrDamaged.
func Decode(data []byte) (*Machine, error) {
	d := decoder{b: data}
	if version := d.uint(); d.err == nil && version != snapshotVersion {
		return nil, fmt.Errorf("store: a snapshot of format %d, this version reads %d: %w", version, snapshotVersion, ErrDamaged)
	}
	m := &Machine{index: d.uint(), term: d.uint()}
	m.user, m.system = d.space(), d.space()
	m.clients = d.clients()
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("store: a snapshot of %d bytes: %w", len(data), err)
	}
	return m, nil
}

func (d *decoder) space() *space {
	s := newSpace()
	s.revision, s.compacted, s.quota, s.full = d.int(), d.int(), d.int(), d.bool()
	for range d.count(2) {
		id, ttl := LeaseID(d.int()), d.int()
		if _, twice := s.leases.Get(id); twice {
			d.fail(fmt.Sprintf("lease %d is there twice", id))
		}
		if d.err != nil {
			return s
		}
		s.addLease(id, ttl)
	}
	var writes []placed
	for range d.count(8) {
		key := text(d.slice())
		if _, twice := s.keys.get(&s.arena, key); twice {
			d.fail(fmt.Sprintf("key %q is there twice", key))
		}
		writes = d.entry(key, s, writes)
		if d.err != nil {
			return s
		}
	}
	slices.SortFunc(writes, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.mod, b.mod), cmp.Compare(a.place, b.place))
	})
	for _, w := range writes {
		s.journal.add(w.ref)
	}
	return s
}

// placed is a version, and its place in the order of writes.
type placed struct {
	mod   int64
	place int32
	ref   ref
}

// entry reads the versions of a key, oldest first, and adds to the writes those that
// belong in the journal.
func (d *decoder) entry(key string, s *space, writes []placed) []placed {
	var e entry
	last, lease := int64(0), LeaseID(0)
	for range d.count(6) {
		var v version
		v.create, v.mod, v.number, v.lease = d.version()
		v.place, v.value = int32(d.uint()), d.slice()
		if d.err == nil && (v.mod <= last || v.mod > s.revision) {
			d.fail(fmt.Sprintf("the revisions of key %q do not rise up to the newest", key))
		}
		if d.err != nil {
			return writes
		}
		r := s.arena.add(key, v)
		e = e.with(r)
		s.count(key, v)
		if v.mod >= s.compacted {
			writes = append(writes, placed{v.mod, v.place, r})
		}
		last, lease = v.mod, v.lease
	}
	if e.latest == 0 {
		d.fail(fmt.Sprintf("key %q has no version", key))
		return writes
	}
	s.keys.set(&s.arena, e)
	if lease != 0 {
		s.attach(lease, strings.Clone(key))
	}
	return writes
}

func (d *decoder) clients() *clients {
	c := newClients()
	for range d.count(18) {
		var id ClientID
		for i := range id {
			id[i] = d.byte()
		}
		key := string(id[:])
		now := &client{done: d.uint(), results: &btree.Map[uint64, kept]{}}
		for range d.count(5) {
			sequence, inner := d.uint(), decoder{b: d.slice()}
			r := inner.result()
			if err := inner.end(); err != nil {
				d.fail("a result that is kept")
				return c
			}
			if _, twice := now.results.Get(sequence); twice {
				d.fail(fmt.Sprintf("result %d of a client is there twice", sequence))
				return c
			}
			k := keep(r)
			now.results.Set(sequence, k)
			now.bytes += k.bytes()
			c.digest.add(digestOfResult(key, sequence))
		}
		if _, twice := c.byID.Get(key); twice {
			d.fail(fmt.Sprintf("client %x is there twice", key))
			return c
		}
		c.bytes += now.bytes
		c.put(key, now)
	}
	return c
}
