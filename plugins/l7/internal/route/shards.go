package route

import (
	"hash/maphash"
	"slices"
)

// shardCount balances what a change copies (the headers of all shards, and one
// shard) with what a look-up reads.
const shardCount = 1024

// shards is a map from strings, "" excepted, that shares what did not change
// with the one it was edited out of. Among thousands of hosts the time of a
// look-up is that of its cache misses: here one for the slot, one for the key
// and one for what is found. A hash trie, and Go maps as shards, have twice as
// many.
type shards[V any] struct {
	seed maphash.Seed
	n    int
	top  *[shardCount]shard[V]
}

// shard is a hash table with linear probing, at least half of it empty.
type shard[V any] struct {
	slots []slot[V] // a power of two of them, or none
	n     int
}

type slot[V any] struct {
	hash  uint64
	key   string // "": empty
	value V
}

func newShards[V any](seed maphash.Seed) shards[V] {
	return shards[V]{seed: seed, top: new([shardCount]shard[V])}
}

// get returns the value of a key, or the zero value.
func (s *shards[V]) get(key string) (v V) {
	hash := maphash.String(s.seed, key)
	t := &s.top[hash%shardCount]
	if t.n == 0 {
		return v
	}
	return t.slots[t.find(hash, key)].value
}

// find returns the slot of a key, or the empty one where it belongs.
func (t *shard[V]) find(hash uint64, key string) int {
	mask := uint64(len(t.slots) - 1)
	i := hash / shardCount & mask
	for {
		s := &t.slots[i]
		if s.key == "" || s.hash == hash && s.key == key {
			return int(i)
		}
		i = (i + 1) & mask
	}
}

// resize returns a copy with room for n keys, without one of them.
func (t *shard[V]) resize(n int, without string) shard[V] {
	size := 4
	for size < 2*n {
		size *= 2
	}
	next := shard[V]{slots: make([]slot[V], size)}
	for _, s := range t.slots {
		if s.key != "" && s.key != without {
			next.slots[next.find(s.hash, s.key)] = s
			next.n++
		}
	}
	return next
}

// shardsEditor changes a copy of shards.
type shardsEditor[V any] struct {
	shards[V]
	copied map[uint64]bool // shards that are ours alone; nil: not even top is
}

func (s *shards[V]) edit() shardsEditor[V] { return shardsEditor[V]{shards: *s} }

func (e *shardsEditor[V]) set(key string, value V) {
	hash := maphash.String(e.seed, key)
	t := e.own(hash)
	if 2*(t.n+1) > len(t.slots) {
		*t = t.resize(2*(t.n+1), "")
	}
	s := &t.slots[t.find(hash, key)]
	if s.key == "" {
		t.n++
		e.n++
	}
	*s = slot[V]{hash, key, value}
}

func (e *shardsEditor[V]) delete(key string) {
	hash := maphash.String(e.seed, key)
	if t := &e.top[hash%shardCount]; t.n == 0 || t.slots[t.find(hash, key)].key == "" {
		return
	}
	t := e.own(hash)
	*t = t.resize(t.n, key)
	e.n--
}

// own returns the shard of a hash, to be changed.
func (e *shardsEditor[V]) own(hash uint64) *shard[V] {
	if e.copied == nil {
		top := *e.top
		e.top, e.copied = &top, make(map[uint64]bool)
	}
	i := hash % shardCount
	t := &e.top[i]
	if !e.copied[i] {
		e.copied[i] = true
		t.slots = slices.Clone(t.slots)
	}
	return t
}
