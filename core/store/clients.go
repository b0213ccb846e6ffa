package store

import (
	"encoding/binary"

	"github.com/tidwall/btree"
)

// clients remembers what was applied for whom, so that nothing is applied twice.
type clients struct {
	byID   *btree.Map[string, *client]
	byUse  *btree.Map[uint64, string] // ids by client.used
	uses   uint64
	bytes  int64 // of all results
	digest Digest
	views  uint64 // that were taken
}

// client is immutable once a view that has it was taken.
type client struct {
	since   uint64 // clients.views when it was made
	done    uint64
	used    uint64 // rises with each use of any client
	results *btree.Map[uint64, kept]
	bytes   int64
}

// kept is a result that may be asked for again, as EncodeResult writes it: it refers to
// nothing, and most are a few bytes.
type kept string

func (k kept) bytes() int64 { return int64(len(k)) }

func newClients() *clients {
	return &clients{byID: &btree.Map[string, *client]{}, byUse: &btree.Map[uint64, string]{}}
}

func (c *clients) snapshot() *clients {
	c.views++
	out := *c
	out.byID, out.byUse = c.byID.Copy(), c.byUse.Copy()
	return &out
}

// look returns the result of a command that must not be applied: it was before,
// or nobody knows.
func (c *clients) look(id Client) (Result, bool) {
	now, ok := c.byID.Get(string(id.ID[:]))
	switch {
	case !ok:
		return Result{Err: ErrClientUnknown}, true
	case id.Sequence <= now.done:
		return Result{Err: ErrResultGone, Repeated: true}, true
	}
	if k, there := now.results.Get(id.Sequence); there {
		r := k.result()
		r.Repeated = true
		return r, true
	}
	if id.Done <= now.done && now.results.Len() >= MaxOutstanding {
		return Result{Err: ErrClientBusy}, true
	}
	return Result{}, false
}

// register makes a client known.
func (c *clients) register(id ClientID) {
	key := string(id[:])
	if _, ok := c.byID.Get(key); ok {
		return
	}
	c.put(key, &client{since: c.views, results: &btree.Map[uint64, kept]{}})
	c.shrink()
}

// note keeps the result of a command that look knew nothing of.
func (c *clients) note(id Client, r Result) {
	key := string(id.ID[:])
	old, ok := c.byID.Get(key)
	if !ok {
		return // Invariant: look refused it
	}
	used, next := old.used, old
	if old.since != c.views { // a view has it
		next = &client{since: c.views, done: old.done, results: old.results.Copy(), bytes: old.bytes}
	}
	next.done = max(old.done, min(id.Done, id.Sequence-1))
	for {
		sequence, k, ok := next.results.Min()
		if !ok || sequence > next.done {
			break
		}
		next.results.PopMin()
		next.bytes -= k.bytes()
		c.bytes -= k.bytes()
		c.digest.remove(digestOfResult(key, sequence))
	}
	k := keep(r)
	next.results.Set(id.Sequence, k)
	next.bytes += k.bytes()
	c.bytes += k.bytes()
	c.digest.add(digestOfResult(key, id.Sequence))
	c.byUse.Delete(used)
	c.put(key, next)
	c.shrink()
}

func (c *clients) put(key string, next *client) {
	c.uses++
	next.used = c.uses
	c.byID.Set(key, next)
	c.byUse.Set(next.used, key)
}

// shrink forgets those not heard of for longest, but not the last one.
func (c *clients) shrink() {
	for c.byID.Len() > MaxClients || c.bytes > maxResultBytes && c.byID.Len() > 1 {
		_, key, _ := c.byUse.PopMin()
		gone, _ := c.byID.Delete(key)
		c.bytes -= gone.bytes
		gone.results.Scan(func(sequence uint64, _ kept) bool {
			c.digest.remove(digestOfResult(key, sequence))
			return true
		})
	}
}

// keep makes a result small enough to be kept.
func keep(r Result) kept {
	var room [128]byte // most are that small
	if r.Op.atLeast() <= maxKeptBytes {
		if b := appendResult(room[:0], r); len(b) <= maxKeptBytes {
			return kept(b)
		}
	}
	return kept(appendResult(room[:0], Result{Err: ErrResultGone, Revision: r.Revision}))
}

func (k kept) result() Result {
	d := decoder{b: []byte(k)}
	return d.result() // Invariant: keep wrote it
}

// atLeast is how many bytes the encoding has in any case.
func (r OpResult) atLeast() int {
	n := 0
	add := func(kvs ...KeyValue) {
		for _, kv := range kvs {
			n += len(kv.Key) + len(kv.Value)
		}
	}
	switch {
	case r.Range != nil:
		add(r.Range.KVs...)
	case r.Put != nil && r.Put.Prev != nil:
		add(*r.Put.Prev)
	case r.Delete != nil:
		add(r.Delete.Prev...)
	case r.Txn != nil:
		for _, inner := range r.Txn.Results {
			n += inner.atLeast()
		}
	}
	return n
}

func digestOfResult(client string, sequence uint64) Digest {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], sequence)
	return digest(head[:], client, nil)
}
