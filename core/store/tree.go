package store

import (
	"slices"
	"strings"
)

// tree holds the entries of a space in the order of keys, which are in the arena. A
// copy stays as it is: what it shares with the original is copied before that
// changes, a node at a time. Copies are not written to.
//
// It is a B+ tree whose leaves are nothing to the garbage collector while keys
// have one version each.
type tree struct {
	generation uint64 // nodes of older ones are in a copy as well
	root       node
	keys       int
}

// node is a leaf or an inner one; the zero value is that of an empty tree.
type node struct {
	leaf  *leaf
	inner *inner
}

const (
	leafKeys  = 60 // a leaf takes 504 bytes, of 512 that are allocated
	innerKids = 16 // 512 bytes
)

type leaf struct {
	older      *[leafKeys][]ref // nil: no key has another version than its latest
	generation uint64
	n          int
	latest     [leafKeys]ref
}

// inner has between kids i and i+1 the bound i: keys from it on are right of it.
type inner struct {
	generation uint64
	n          int // kids; at least 1
	bounds     [innerKids - 1]string
	kids       [innerKids]node
}

// copy returns the tree as it is now.
func (t *tree) copy() tree {
	c := *t
	t.generation++
	return c
}

// get returns the entry of a key.
func (t *tree) get(a *arena, key string) (entry, bool) {
	n := t.root
	for n.inner != nil {
		n = n.inner.kids[n.inner.find(key)]
	}
	if n.leaf == nil {
		return entry{}, false
	}
	i, ok := n.leaf.find(a, key)
	if !ok {
		return entry{}, false
	}
	return n.leaf.entry(i), true
}

// ascend yields the entries from a key on, in order.
func (t *tree) ascend(a *arena, from string, yield func(entry) bool) { t.root.ascend(a, from, yield) }

func (n node) ascend(a *arena, from string, yield func(entry) bool) bool {
	if in := n.inner; in != nil {
		for i := in.find(from); i < in.n; i++ {
			if !in.kids[i].ascend(a, from, yield) {
				return false
			}
			from = "" // lower than all that follow
		}
		return true
	}
	if n.leaf == nil {
		return true
	}
	i := 0
	if from != "" {
		i, _ = n.leaf.find(a, from)
	}
	for ; i < n.leaf.n; i++ {
		if !yield(n.leaf.entry(i)) {
			return false
		}
	}
	return true
}

// set gives a key an entry, whose latest version is one of that key.
func (t *tree) set(a *arena, e entry) {
	if t.root.leaf == nil && t.root.inner == nil {
		t.root.leaf = &leaf{generation: t.generation}
	}
	left, bound, right := t.insert(t.root, a, a.key(e.latest), e)
	t.root = left
	if right.leaf != nil || right.inner != nil {
		in := &inner{generation: t.generation, n: 2}
		in.kids[0], in.bounds[0], in.kids[1] = left, bound, right
		t.root.leaf, t.root.inner = nil, in
	}
}

// insert returns what takes the place of a node: one, or two and the bound between
// them.
func (t *tree) insert(n node, a *arena, key string, e entry) (left node, bound string, right node) {
	if n.inner == nil {
		l := t.ownLeaf(n.leaf)
		i, there := l.find(a, key)
		if there {
			l.put(i, e)
			return node{leaf: l}, "", node{}
		}
		t.keys++
		if l.n < leafKeys {
			l.insert(i, e)
			return node{leaf: l}, "", node{}
		}
		// Keys that come in order leave full leaves behind.
		at := leafKeys / 2
		if i == leafKeys {
			at = leafKeys
		}
		r := &leaf{generation: t.generation}
		r.take(l, at)
		if i > at || at == leafKeys {
			r.insert(i-at, e)
		} else {
			l.insert(i, e)
		}
		return node{leaf: l}, strings.Clone(a.key(r.latest[0])), node{leaf: r}
	}
	in := t.ownInner(n.inner)
	i := in.find(key)
	kid, bound, second := t.insert(in.kids[i], a, key, e)
	in.kids[i] = kid
	if second.leaf == nil && second.inner == nil {
		return node{inner: in}, "", node{}
	}
	if in.n < innerKids {
		in.insert(i, bound, second)
		return node{inner: in}, "", node{}
	}
	at := innerKids / 2
	if i == innerKids-1 {
		at = innerKids - 1
	}
	r := &inner{generation: t.generation}
	between := in.bounds[at-1]
	r.take(in, at)
	if i >= at {
		r.insert(i-at, bound, second)
	} else {
		in.insert(i, bound, second)
	}
	return node{inner: in}, between, node{inner: r}
}

// remove drops a key that is there.
func (t *tree) remove(a *arena, key string) {
	t.root = t.delete(t.root, a, key)
	for t.root.inner != nil && t.root.inner.n == 1 {
		t.root = t.root.inner.kids[0]
	}
}

func (t *tree) delete(n node, a *arena, key string) node {
	if n.inner == nil {
		l := t.ownLeaf(n.leaf)
		if i, there := l.find(a, key); there {
			l.remove(i)
			t.keys--
		}
		return node{leaf: l}
	}
	in := t.ownInner(n.inner)
	i := in.find(key)
	in.kids[i] = t.delete(in.kids[i], a, key)
	if !in.kids[i].small() {
		return node{inner: in}
	}
	for _, left := range []int{i - 1, i} {
		if left >= 0 && left+1 < in.n && t.join(in, left) {
			break
		}
	}
	return node{inner: in}
}

// small reports whether a node should be joined with one beside it.
func (n node) small() bool {
	if n.inner != nil {
		return n.inner.n < innerKids/4
	}
	return n.leaf.n < leafKeys/4
}

// join makes one of a kid and the next, if that does not fill it.
func (t *tree) join(in *inner, i int) bool {
	a, b := in.kids[i], in.kids[i+1]
	if a.leaf != nil {
		if a.leaf.n+b.leaf.n > leafKeys*3/4 && a.leaf.n > 0 && b.leaf.n > 0 {
			return false
		}
		l := t.ownLeaf(a.leaf)
		l.append(b.leaf)
		in.kids[i].leaf = l
	} else {
		if a.inner.n+b.inner.n > innerKids*3/4 {
			return false
		}
		to := t.ownInner(a.inner)
		to.bounds[to.n-1] = in.bounds[i]
		copy(to.bounds[to.n:], b.inner.bounds[:b.inner.n-1])
		copy(to.kids[to.n:], b.inner.kids[:b.inner.n])
		to.n += b.inner.n
		in.kids[i].inner = to
	}
	copy(in.bounds[i:in.n-1], in.bounds[i+1:in.n-1])
	copy(in.kids[i+1:in.n], in.kids[i+2:in.n])
	in.n--
	in.bounds[in.n-1], in.kids[in.n] = "", node{}
	return true
}

// update has change look at every entry, in order, and puts what it returns in the
// place of those that it changed. The key stays what it was.
func (t *tree) update(change func(entry) (entry, bool)) { t.root = t.updated(t.root, change) }

func (t *tree) updated(n node, change func(entry) (entry, bool)) node {
	if in := n.inner; in != nil {
		for i := range in.n {
			if kid := t.updated(in.kids[i], change); kid != in.kids[i] {
				in = t.ownInner(in)
				in.kids[i] = kid
			}
		}
		return node{inner: in}
	}
	l := n.leaf
	if l == nil {
		return n
	}
	for i := range l.n {
		if e, changed := change(l.entry(i)); changed {
			l = t.ownLeaf(l)
			l.put(i, e)
		}
	}
	if l.generation == t.generation && !l.hasOlder() {
		l.older = nil
	}
	return node{leaf: l}
}

func (t *tree) ownLeaf(l *leaf) *leaf {
	if l.generation == t.generation {
		return l
	}
	c := *l
	c.generation = t.generation
	if l.older != nil {
		older := *l.older
		c.older = &older
	}
	return &c
}

func (t *tree) ownInner(in *inner) *inner {
	if in.generation == t.generation {
		return in
	}
	c := *in
	c.generation = t.generation
	return &c
}

// find returns where a key is or belongs.
func (l *leaf) find(a *arena, key string) (int, bool) {
	return slices.BinarySearchFunc(l.latest[:l.n], key, func(r ref, key string) int { return strings.Compare(a.key(r), key) })
}

func (l *leaf) entry(i int) entry {
	e := entry{latest: l.latest[i]}
	if l.older != nil {
		e.older = l.older[i]
	}
	return e
}

func (l *leaf) hasOlder() bool {
	return l.older != nil && slices.ContainsFunc(l.older[:l.n], func(o []ref) bool { return len(o) > 0 })
}

func (l *leaf) put(i int, e entry) {
	l.latest[i] = e.latest
	if l.older == nil {
		if len(e.older) == 0 {
			return
		}
		l.older = new([leafKeys][]ref)
	}
	l.older[i] = e.older
}

func (l *leaf) insert(i int, e entry) {
	copy(l.latest[i+1:l.n+1], l.latest[i:l.n])
	if l.older != nil {
		copy(l.older[i+1:l.n+1], l.older[i:l.n])
	}
	l.n++
	l.put(i, e)
}

func (l *leaf) remove(i int) {
	copy(l.latest[i:l.n], l.latest[i+1:l.n])
	l.n--
	if l.older != nil {
		copy(l.older[i:l.n], l.older[i+1:l.n+1])
		l.older[l.n] = nil
	}
}

// take moves to an empty leaf what is from a place on.
func (l *leaf) take(from *leaf, at int) {
	for i := at; i < from.n; i++ {
		l.insert(i-at, from.entry(i))
		if from.older != nil {
			from.older[i] = nil
		}
	}
	from.n = min(from.n, at)
}

func (l *leaf) append(o *leaf) {
	for i := range o.n {
		l.insert(l.n, o.entry(i))
	}
}

// find returns which kid a key belongs to.
func (in *inner) find(key string) int {
	i, there := slices.BinarySearch(in.bounds[:in.n-1], key)
	if there {
		i++
	}
	return i
}

// insert adds a kid after another one.
func (in *inner) insert(after int, bound string, kid node) {
	copy(in.bounds[after+1:in.n], in.bounds[after:in.n-1])
	copy(in.kids[after+2:in.n+1], in.kids[after+1:in.n])
	in.bounds[after], in.kids[after+1] = bound, kid
	in.n++
}

// take moves to an empty node the kids from a place on.
func (in *inner) take(from *inner, at int) {
	in.n = from.n - at
	copy(in.kids[:], from.kids[at:from.n])
	copy(in.bounds[:], from.bounds[at:from.n-1])
	clear(from.kids[at:])
	clear(from.bounds[at-1:])
	from.n = at
}
