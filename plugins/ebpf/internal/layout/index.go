package layout

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
)

// Index is the table of a family's frontends in memory: which entry is of which
// address, and what is said of it. A line of memory is a bucket of some entries; an
// address that finds no room in its own is in one of the next. It does not know of
// graces: what is freed may be given out at once. See bpf/headers/frontend.h.
type Index struct {
	family  Family
	entries []uint64
	foreign []uint64
	mask    uint32   // buckets, less one
	beyond  []uint32 // by bucket: how many addresses looked for room in it, and are in a later one
}

// reach is in how many buckets an address may be.
const reach = 16

// bucketWords is the size of a bucket, in words of 8 bytes.
const bucketWords = 8

// What the word of an entry that decides is while no address is there. No key has
// such a word, as its transport would be 0.
const (
	entryFree    = 0 // and nothing of this bucket is in another one
	entryLeft    = 1 // programs may have found what was here; or something is about to come
	entrySkipped = 2 // free, but there is more to look at
)

// Ways is how many entries a bucket has.
func (f Family) Ways() int { return [...]int{4, 2}[f] }

// entryWords is the size of an entry: its key, and what is said at home.
func (f Family) entryWords() int { return bucketWords / f.Ways() }

// Buckets is how many there are for so many frontends: a power of two, with half of
// the entries free at least.
func (f Family) Buckets(frontends uint32) uint32 {
	n := max(2*uint64(frontends)/uint64(f.Ways()), 1)
	return uint32(1) << bits.Len64(n-1)
}

// Frontends is for how many frontends there are so many buckets.
func (f Family) Frontends(buckets uint32) uint32 {
	return uint32(uint64(buckets) * uint64(f.Ways()) / 2)
}

// entryKey is an address as programs compare it: as many words as an entry has, less one.
// The last one decides.
type entryKey [3]uint64

func keyOf(b dataplane.Binding) (k entryKey) {
	var bytes [24]byte
	at := 4
	if addr := b.Addr.Addr(); addr.Is4() {
		a := addr.As4()
		copy(bytes[:], a[:])
	} else {
		a := addr.As16()
		at = copy(bytes[:], a[:])
	}
	binary.BigEndian.PutUint16(bytes[at:], b.Addr.Port())
	bytes[at+2] = transportTCP
	if b.Protocol == dataplane.UDP {
		bytes[at+2] = transportUDP
	}
	for i := range k {
		k[i] = binary.NativeEndian.Uint64(bytes[8*i:])
	}
	return k
}

// NewIndex returns the table of a family in memory that nobody has written to:
// Buckets of bucketWords words, and a word for each entry.
func NewIndex(f Family, entries, foreign []uint64) *Index {
	buckets := len(entries) / bucketWords
	return &Index{family: f, entries: entries, foreign: foreign, mask: uint32(buckets - 1), beyond: make([]uint32, buckets)}
}

// Alloc returns an entry for an address; false: it would be too far from its bucket.
// Programs do not see it before Lead.
func (x *Index) Alloc(b dataplane.Binding) (entry uint32, ok bool) {
	home, ways := x.home(keyOf(b)), uint32(x.family.Ways())
	for i := range min(reach, x.mask+1) {
		bucket := (home + i) & x.mask
		for entry := bucket * ways; entry < (bucket+1)*ways; entry++ {
			if w := x.decides(entry); *w == entryFree || *w == entrySkipped {
				atomic.StoreUint64(w, entryLeft)
				for j := range i {
					x.beyond[(home+j)&x.mask]++
				}
				return entry, true
			}
		}
	}
	return 0, false
}

// Publish stores what is said of an entry, both words atomically.
func (x *Index) Publish(entry uint32, home, foreign Publication) {
	atomic.StoreUint64(&x.foreign[entry], uint64(foreign))
	atomic.StoreUint64(x.word(entry), uint64(home))
}

// Published loads it.
func (x *Index) Published(entry uint32) (home, foreign Publication) {
	return Publication(atomic.LoadUint64(x.word(entry))), Publication(atomic.LoadUint64(&x.foreign[entry]))
}

// Lead lets programs find an entry by the address that it was given out for.
func (x *Index) Lead(entry uint32, b dataplane.Binding) {
	k, e := keyOf(b), x.entry(entry)
	last := len(e) - 2
	for i := range last {
		atomic.StoreUint64(&e[i], k[i])
	}
	atomic.StoreUint64(&e[last], k[last])
}

// Leave lets programs find an entry no more. Those that have found it are told that it
// is being withdrawn.
func (x *Index) Leave(entry uint32) {
	x.Publish(entry, 0, 0)
	e := x.entry(entry)
	atomic.StoreUint64(x.decides(entry), entryLeft)
	// A program must never find a part of this address and a part of the next.
	for i := range len(e) - 2 {
		atomic.StoreUint64(&e[i], 0)
	}
}

// Free takes an entry back that was given out for an address, and is left.
func (x *Index) Free(entry uint32, b dataplane.Binding) {
	bucket := entry / uint32(x.family.Ways())
	for at := x.home(keyOf(b)); at != bucket; at = (at + 1) & x.mask {
		x.beyond[at]--
		if x.beyond[at] == 0 {
			x.tidy(at)
		}
	}
	atomic.StoreUint64(x.decides(entry), entrySkipped)
	if x.beyond[bucket] == 0 {
		x.tidy(bucket)
	}
}

// tidy lets programs look no further than a bucket, as there is nothing of it.
func (x *Index) tidy(bucket uint32) {
	ways := uint32(x.family.Ways())
	for entry := bucket * ways; entry < (bucket+1)*ways; entry++ {
		if w := x.decides(entry); *w == entrySkipped {
			atomic.StoreUint64(w, entryFree)
		}
	}
}

// mend lets programs look on again where there is more to look at.
func (x *Index) mend() {
	ways := uint32(x.family.Ways())
	for bucket, n := range x.beyond {
		for entry := uint32(bucket) * ways; n > 0 && entry < uint32(bucket+1)*ways; entry++ {
			if w := x.decides(entry); *w == entryFree {
				atomic.StoreUint64(w, entrySkipped)
			}
		}
	}
}

// Binding is the address that leads to an entry; false: none does.
func (x *Index) Binding(entry uint32) (b dataplane.Binding, is bool, err error) {
	e := x.entry(entry)
	if *x.decides(entry) <= entrySkipped {
		return b, false, nil
	}
	var bytes [24]byte
	for i := range len(e) - 1 {
		binary.NativeEndian.PutUint64(bytes[8*i:], e[i])
	}
	b, err = ParseKey(bytes[:x.family.KeyBytes()])
	return b, err == nil, err
}

// Adopt takes over what another process wrote: all that leads anywhere is given to
// found, what it left is free. It is called once, before anything is given out; and
// a grace has to follow before anything is.
func (x *Index) Adopt(found func(entry uint32, b dataplane.Binding) error) error {
	var left []uint32
	for entry := range uint32(len(x.foreign)) {
		b, is, err := x.Binding(entry)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
		if !is {
			if *x.decides(entry) != entryFree {
				left = append(left, entry)
			}
			continue
		}
		bucket, home := entry/uint32(x.family.Ways()), x.home(keyOf(b))
		if (bucket-home)&x.mask >= reach {
			return fmt.Errorf("%w: frontend %v is in bucket %d, and belongs to %d", ErrForeign, b.Addr, bucket, home)
		}
		for at := home; at != bucket; at = (at + 1) & x.mask {
			x.beyond[at]++
		}
		if err := found(entry, b); err != nil {
			return err
		}
	}
	for _, entry := range left {
		x.Publish(entry, 0, 0)
		atomic.StoreUint64(x.decides(entry), entrySkipped)
	}
	for bucket, n := range x.beyond {
		if n == 0 {
			x.tidy(uint32(bucket))
		}
	}
	return nil
}

// entry is the memory of an entry: its key, then what is said at home.
func (x *Index) entry(entry uint32) []uint64 {
	n := uint32(x.family.entryWords())
	return x.entries[entry*n : (entry+1)*n]
}

func (x *Index) word(entry uint32) *uint64 {
	e := x.entry(entry)
	return &e[len(e)-1]
}

// decides is the word of an entry that says whether it is of an address.
func (x *Index) decides(entry uint32) *uint64 {
	e := x.entry(entry)
	return &e[len(e)-2]
}

// home is the bucket of a key.
func (x *Index) home(k entryKey) uint32 {
	if x.family == V4 {
		return uint32(mix(mix(k[0]))) & x.mask
	}
	return uint32(mix(mix(mix(mix(k[0])^k[1])^k[2]))) & x.mask
}

func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>32
}
