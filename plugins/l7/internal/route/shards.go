package route

import (
	"hash/maphash"
	"maps"
)

// shardCount balances what a change copies (one pointer a shard, and one shard)
// with what a look-up reads (a shard's pointer more than a map does).
const shardCount = 1024

// shards is a map from strings that shares what did not change with the one it
// was edited out of. A hash trie shares more, but each of its levels is a read
// somewhere else in memory.
type shards[V any] struct {
	seed maphash.Seed
	n    int
	top  *[shardCount]map[string]V
}

func newShards[V any](seed maphash.Seed) shards[V] {
	return shards[V]{seed: seed, top: new([shardCount]map[string]V)}
}

// get returns the value of a key, or the zero value.
func (s *shards[V]) get(key string) V { return s.top[s.index(key)][key] }

func (s *shards[V]) index(key string) uint64 { return maphash.String(s.seed, key) % shardCount }

// shardsEditor changes a copy of shards.
type shardsEditor[V any] struct {
	shards[V]
	copied map[uint64]bool // shards that are ours alone; nil: not even top is
}

func (s *shards[V]) edit() shardsEditor[V] { return shardsEditor[V]{shards: *s} }

func (e *shardsEditor[V]) set(key string, value V) {
	shard := e.own(key)
	e.n -= len(shard)
	shard[key] = value
	e.n += len(shard)
}

func (e *shardsEditor[V]) delete(key string) {
	if _, ok := e.top[e.index(key)][key]; ok {
		delete(e.own(key), key)
		e.n--
	}
}

// own returns the shard of a key, to be changed.
func (e *shardsEditor[V]) own(key string) map[string]V {
	if e.copied == nil {
		top := *e.top
		e.top, e.copied = &top, make(map[uint64]bool)
	}
	i := e.index(key)
	if !e.copied[i] {
		e.copied[i] = true
		if e.top[i] = maps.Clone(e.top[i]); e.top[i] == nil {
			e.top[i] = make(map[string]V)
		}
	}
	return e.top[i]
}
