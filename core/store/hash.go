package store

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Digest condenses what a keyspace holds: all versions of all keys, and the
// leases. Equal content has equal digests, in whatever order it came. It finds
// servers that went apart; it does not resist somebody who wants it to err.
type Digest struct{ A, B uint64 }

func (d *Digest) add(o Digest)    { d.A, d.B = d.A+o.A, d.B+o.B }
func (d *Digest) remove(o Digest) { d.A, d.B = d.A-o.A, d.B-o.B }

// digestOf hashes one version of a key.
func digestOf(key string, v version) Digest {
	var head [48]byte
	for i, n := range []int64{v.mod, v.create, v.number, int64(v.lease), int64(v.place), int64(len(key))} {
		binary.LittleEndian.PutUint64(head[8*i:], uint64(n))
	}
	return digest(head[:], key, v.value)
}

func digestOfLease(id LeaseID, ttlSeconds int64) Digest {
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], uint64(id))
	binary.LittleEndian.PutUint64(head[8:], uint64(ttlSeconds))
	return digest(head[:], "lease", nil)
}

func digest(head []byte, text string, value []byte) Digest {
	h := xxhash.New()
	_, _ = h.Write(head)
	_, _ = h.WriteString(text)
	_, _ = h.Write(value)
	d := Digest{A: h.Sum64()}
	_, _ = h.WriteString("again")
	d.B = h.Sum64()
	return d
}
