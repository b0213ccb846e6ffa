package store

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// ref is where a version is in the arena of its space: the number of a slab, from 1
// on, and the offset there. 0 is none.
type ref uint64

func refTo(slab, offset int) ref { return ref(slab+1)<<32 | ref(offset) }

func (r ref) slab() int   { return int(r>>32) - 1 }
func (r ref) offset() int { return int(r & (1<<32 - 1)) }

// arena holds the versions of a space, each with its key, in slabs of bytes: the
// garbage collector looks at none of them, and no version has a header or a gap.
// It is a value: a copy keeps what it saw, while the original is added to behind
// that. What a reader was given keeps a slab in memory, not more.
//
// A version is
//
//	length of key │ key │ mod │ mod - create │ number │ lease │ place │ length of value │ value
type arena struct {
	slabs [][]byte // by number; nil: free to be used again
	uses  []use    // by number; the machine's, not a view's
	free  []int    // numbers of slabs that are nil
	last  int      // number of the slab that is being filled
	room  int      // how much of it is left
}

// use says what of a slab is in use.
type use struct {
	bytes  int   // of versions that count
	newest int64 // revision of any version
}

// slabBytes is what a slab has room for. What takes more than maxSharedBytes has one
// of its own.
const (
	slabBytes      = 64 << 10
	firstSlabBytes = 1 << 10
	maxSharedBytes = slabBytes / 8
)

// add adds a version. Parts of it may be in the arena already.
func (a *arena) add(key string, v version) ref {
	var head [7 * binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(len(key)))
	middle := n
	n += binary.PutVarint(head[n:], v.mod)
	n += binary.PutVarint(head[n:], v.mod-v.create)
	n += binary.PutVarint(head[n:], v.number)
	n += binary.PutVarint(head[n:], int64(v.lease))
	n += binary.PutUvarint(head[n:], uint64(v.place))
	n += binary.PutUvarint(head[n:], uint64(len(v.value)))
	r, b := a.make(n + len(key) + len(v.value))
	b = b[copy(b, head[:middle]):]
	b = b[copy(b, key):]
	b = b[copy(b, head[middle:n]):]
	copy(b, v.value)
	u := &a.uses[r.slab()]
	u.bytes += n + len(key) + len(v.value)
	u.newest = max(u.newest, v.mod)
	return r
}

// make returns room for so many bytes, which nobody has seen.
func (a *arena) make(size int) (ref, []byte) {
	if size > maxSharedBytes {
		n := a.slab(size)
		return refTo(n, 0), a.slabs[n]
	}
	if size > a.room {
		// A small space has small slabs.
		a.room = max(size, min(slabBytes, firstSlabBytes<<min(len(a.slabs), 8)))
		a.last = a.slab(a.room)
	}
	slab := a.slabs[a.last]
	at := len(slab) - a.room
	a.room -= size
	return refTo(a.last, at), slab[at : at+size]
}

// slab makes a slab. A number that was used before is known to no view that can
// see the new one.
func (a *arena) slab(size int) int {
	if last := len(a.free) - 1; last >= 0 {
		n := a.free[last]
		a.free = a.free[:last]
		a.slabs[n] = make([]byte, size)
		return n
	}
	a.slabs = append(a.slabs, make([]byte, size))
	a.uses = append(a.uses, use{})
	return len(a.slabs) - 1
}

// drop says that a version counts no longer.
func (a *arena) drop(r ref) { a.uses[r.slab()].bytes -= a.size(r) }

// sparse returns which slabs are worth to be emptied, by number: most of it does not
// count, and nothing of it is of a revision or later. Nil if none is.
func (a *arena) sparse(revision int64) []bool {
	var out []bool
	for n, u := range a.uses {
		if a.slabs[n] == nil || n == a.last && a.room > 0 || u.newest >= revision || u.bytes == 0 || u.bytes > len(a.slabs[n])/2 {
			continue
		}
		if out == nil {
			out = make([]bool, len(a.slabs))
		}
		out[n] = true
	}
	return out
}

// sweep lets go of slabs in which nothing counts.
func (a *arena) sweep() {
	var gone []int
	for n, u := range a.uses {
		if a.slabs[n] != nil && u.bytes == 0 && (n != a.last || a.room == 0) {
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return
	}
	a.slabs = slices.Clone(a.slabs) // views have the old table
	for _, n := range gone {
		a.slabs[n], a.uses[n] = nil, use{}
	}
	a.free = append(a.free, gone...)
}

// move adds a version once more, and the one before counts no longer.
func (a *arena) move(r ref) ref {
	old := a.at(r)[:a.size(r)]
	to, b := a.make(len(old))
	copy(b, old)
	a.uses[r.slab()].bytes -= len(old)
	u := &a.uses[to.slab()]
	u.bytes += len(old)
	u.newest = max(u.newest, a.mod(to))
	return to
}

func (a *arena) at(r ref) []byte { return a.slabs[r.slab()][r.offset():] }

// key returns the key of a version.
func (a *arena) key(r ref) string {
	key, _ := cutBytes(a.at(r))
	return text(key)
}

// mod returns the revision of a version.
func (a *arena) mod(r ref) int64 {
	_, b := cutBytes(a.at(r))
	mod, _ := binary.Varint(b)
	return mod
}

// version returns a version.
func (a *arena) version(r ref) version {
	var v version
	_, b := cutBytes(a.at(r))
	v.mod, b = cutInt(b)
	v.create, b = cutInt(b)
	v.create = v.mod - v.create
	v.number, b = cutInt(b)
	lease, b := cutInt(b)
	v.lease = LeaseID(lease)
	place, n := binary.Uvarint(b)
	v.place = int32(place)
	if value, _ := cutBytes(b[n:]); len(value) > 0 {
		v.value = value
	}
	return v
}

// size returns how many bytes a version takes.
func (a *arena) size(r ref) int {
	all := a.at(r)
	_, b := cutBytes(all)
	for range 4 {
		_, b = cutInt(b)
	}
	_, n := binary.Uvarint(b)
	_, b = cutBytes(b[n:])
	return len(all) - len(b)
}

func cutInt(b []byte) (int64, []byte) {
	v, n := binary.Varint(b)
	return v, b[n:]
}

func cutBytes(b []byte) (head, tail []byte) {
	length, n := binary.Uvarint(b)
	end := n + int(length)
	return b[n:end:end], b[end:]
}

// text is the string of bytes that are never written to again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
