package route

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// trie is a persistent map from strings: with and without return another one
// that shares all but the path to the change. It is a hash array mapped trie,
// five bits of the hash a level.
type trie[V any] struct {
	seed maphash.Seed
	root *node[V]
}

type node[V any] struct {
	set  uint32   // which of the 32 children are there
	kids []kid[V] // in the order of their bits; at the bottom, all of one hash
}

// kid is a node below, or a leaf.
type kid[V any] struct {
	sub   *node[V]
	key   string
	value V
}

const bottom = 60 // bits of the hash that levels are told apart by

func newTrie[V any](seed maphash.Seed) trie[V] { return trie[V]{seed: seed, root: &node[V]{}} }

// get returns the value of a key, or the zero value.
func (t trie[V]) get(key string) (v V) {
	hash := maphash.String(t.seed, key)
	n := t.root
	for shift := 0; ; shift += 5 {
		if shift >= bottom {
			for i := range n.kids {
				if n.kids[i].key == key {
					return n.kids[i].value
				}
			}
			return v
		}
		i, ok := n.index(hash, shift)
		if !ok {
			return v
		}
		k := &n.kids[i]
		if k.sub == nil {
			if k.key == key {
				return k.value
			}
			return v
		}
		n = k.sub
	}
}

// with returns a trie in which key has the value.
func (t trie[V]) with(key string, value V) trie[V] {
	t.root = t.root.with(t.seed, maphash.String(t.seed, key), 0, kid[V]{key: key, value: value})
	return t
}

// without returns a trie that lacks the key.
func (t trie[V]) without(key string) trie[V] {
	t.root = t.root.without(maphash.String(t.seed, key), 0, key)
	return t
}

// index is where the child for hash is, or would be.
func (n *node[V]) index(hash uint64, shift int) (i int, ok bool) {
	bit := uint32(1) << (hash >> shift & 31)
	return bits.OnesCount32(n.set & (bit - 1)), n.set&bit != 0
}

func (n *node[V]) with(seed maphash.Seed, hash uint64, shift int, leaf kid[V]) *node[V] {
	if shift >= bottom {
		i := slices.IndexFunc(n.kids, func(k kid[V]) bool { return k.key == leaf.key })
		if i < 0 {
			return &node[V]{kids: append(slices.Clone(n.kids), leaf)}
		}
		return n.replaced(i, leaf)
	}
	i, ok := n.index(hash, shift)
	if !ok {
		kids := make([]kid[V], 0, len(n.kids)+1)
		kids = append(append(append(kids, n.kids[:i]...), leaf), n.kids[i:]...)
		return &node[V]{set: n.set | 1<<(hash>>shift&31), kids: kids}
	}
	old := n.kids[i]
	if old.sub == nil {
		if old.key == leaf.key {
			return n.replaced(i, leaf)
		}
		// Two keys: one level more, for both.
		old.sub = (&node[V]{}).with(seed, maphash.String(seed, old.key), shift+5, old)
	}
	return n.replaced(i, kid[V]{sub: old.sub.with(seed, hash, shift+5, leaf)})
}

func (n *node[V]) without(hash uint64, shift int, key string) *node[V] {
	var i int
	if shift >= bottom {
		if i = slices.IndexFunc(n.kids, func(k kid[V]) bool { return k.key == key }); i < 0 {
			return n
		}
	} else {
		var ok bool
		if i, ok = n.index(hash, shift); !ok {
			return n
		}
		if sub := n.kids[i].sub; sub != nil {
			switch next := sub.without(hash, shift+5, key); {
			case next == sub:
				return n
			case len(next.kids) == 1 && next.kids[0].sub == nil:
				return n.replaced(i, next.kids[0]) // a lone leaf moves up
			case len(next.kids) > 0:
				return n.replaced(i, kid[V]{sub: next})
			}
		} else if n.kids[i].key != key {
			return n
		}
	}
	kids := slices.Delete(slices.Clone(n.kids), i, i+1)
	if shift >= bottom {
		return &node[V]{kids: kids}
	}
	return &node[V]{set: n.set &^ (1 << (hash >> shift & 31)), kids: kids}
}

func (n *node[V]) replaced(i int, k kid[V]) *node[V] {
	kids := slices.Clone(n.kids)
	kids[i] = k
	return &node[V]{set: n.set, kids: kids}
}
