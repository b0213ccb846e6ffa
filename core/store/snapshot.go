package store

import (
	"cmp"
	"fmt"
	"slices"

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
	e.b = appendUint(e.b, uint64(s.keys.Len()))
	s.keys.Scan(func(key string, en *entry) bool {
		e.b = appendUint(appendBytes(e.b, key), uint64(len(en.older)+1))
		for _, v := range en.older {
			e.version(v)
		}
		e.version(en.latest)
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
			e.b = appendBytes(appendUint(e.b, sequence), appendResult(nil, k.result))
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
	type placed struct {
		write
		place int32
	}
	var writes []placed
	for range d.count(8) {
		key := d.string()
		e := d.entry(key, s)
		if _, twice := s.keys.Get(key); twice {
			d.fail(fmt.Sprintf("key %q is there twice", key))
		}
		if d.err != nil {
			return s
		}
		s.keys.Set(key, e)
		for _, v := range append(slices.Clone(e.older), e.latest) {
			s.count(key, v)
			if v.mod >= s.compacted {
				writes = append(writes, placed{write{v.mod, key}, v.place})
			}
		}
		if e.latest.lease != 0 {
			s.attach(e.latest.lease, key)
		}
	}
	slices.SortFunc(writes, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.place, b.place))
	})
	for _, w := range writes {
		s.journal.add(w.write)
	}
	return s
}

// entry reads the versions of a key, oldest first.
func (d *decoder) entry(key string, s *space) *entry {
	var e *entry
	last := int64(0)
	for range d.count(6) {
		var v version
		v.create, v.mod, v.number, v.lease = d.version()
		v.place, v.value = int32(d.uint()), d.bytes()
		if d.err == nil && (v.mod <= last || v.mod > s.revision) {
			d.fail(fmt.Sprintf("the revisions of key %q do not rise up to the newest", key))
		}
		last = v.mod
		e = e.with(v)
	}
	if e == nil {
		d.fail(fmt.Sprintf("key %q has no version", key))
		return &entry{}
	}
	return e
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
			now.bytes += k.bytes
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
